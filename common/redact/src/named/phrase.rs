//! Passwords in sentences of several languages: the words for a password, and the words between them and the value.

use crate::words::tables;
use std::ops::Range;

use crate::Secret;
use crate::words::extent;
use crate::words::name::Kind;
use crate::words::scan::{Quote, blanks, is_line_end, line_before, run, white};
use crate::words::value::{is_bare_secret, is_placeholder, is_wordy};

/// Maximum distance between the word and the verb, in bytes: `das Passwort für den Server lautet …`.
const REACH: usize = 72;

/// Returns the value in a sentence whose word for it begins here.
pub(crate) fn at(text: &[u8], start: usize, index: usize) -> Option<Secret> {
    let word = tables::PASSWORD_WORDS[index];
    let here = text.get(start..start + word.len())?;
    let before = start.checked_sub(1).map(|at| text[at]);
    let begins = !word.is_ascii()
        || before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
        || start > 1 && text[start - 2] == b'\\'
        || matches!(word, "passwort" | "kennwort" | "schlüssel");
    if !here.eq_ignore_ascii_case(word.as_bytes()) || !begins {
        return None;
    }
    let from = start + word.len();
    let near = &text[from..text.len().min(from + REACH)];
    let clause =
        &near[..near.iter().position(|byte| matches!(byte, b'"' | b'\\' | b';' | b'!' | b'?')).unwrap_or(near.len())];
    let stop = memchr::memmem::find(clause, b". ").unwrap_or(clause.len());
    let clause = &clause[..stop];
    if word.ends_with(' ') && word != "passphrase " {
        let at = value(text, from, true, false)?;
        return is_chosen(&text[at.clone()]).then_some(Secret { at, rule: "assignment" });
    }
    if let Some(at) = value_before(text, start).or_else(|| on_the_next_line(text, from + clause.len(), clause)) {
        return Some(Secret { at, rule: "assignment" });
    }
    let english = word.starts_with("pass") && word != "passwort";
    if english && !clause.iter().any(u8::is_ascii_digit) {
        return None;
    }
    // `the password Xy12!abc`, and English words with many meanings: only strong passwords match.
    if clause.starts_with(b" ") && value(text, from + 1, true, false).is_some_and(|at| is_strong(&text[at])) {
        return value(text, from + 1, true, false).map(|at| Secret { at, rule: "assignment" });
    }
    // A sentence may contain several verbs; the value follows one of them.
    let mut places: Vec<usize> = tables::VERBS
        .iter()
        .flat_map(|verb| memchr::memmem::find_iter(clause, verb.as_bytes()).map(move |at| at + verb.len()))
        .collect();
    places.sort_unstable();
    let is_direct =
        |place: usize| tables::VERBS.iter().any(|verb| verb.len() == place && clause.starts_with(verb.as_bytes()));
    let weak = matches!(word, "jeton" | "キー" | "ключ" | "Ключ" | "schlüssel" | "geheimnis");
    places
        .into_iter()
        .filter_map(|place| value(text, from + place, is_direct(place), weak))
        .find(|at| !english || is_strong(&text[at.clone()]))
        .map(|at| Secret { at, rule: "assignment" })
}

/// Returns the value in `VALUE is the root password`.
fn value_before(text: &[u8], start: usize) -> Option<Range<usize>> {
    const VERBS: [&str; 9] = [" is ", " was ", " ist ", " war ", " est ", " es ", " é ", "が", "は"];
    let line = line_before(text, start);
    let near = &line[line.len().saturating_sub(REACH)..];
    let (at, verb) =
        VERBS.iter().filter_map(|verb| Some((memchr::memmem::rfind(near, verb.as_bytes())?, verb))).max()?;
    // An article, and the owner of the password.
    let between = &near[at + verb.len()..];
    let is_name = |byte: &u8| byte.is_ascii_alphabetic() || *byte >= 128 || matches!(byte, b' ' | b'-' | b'\'');
    if !between.iter().all(is_name) {
        return None;
    }
    let said = near[..at].rsplit(|byte| matches!(byte, b' ' | b'"')).next()?;
    let is_quote = |byte: &u8| matches!(byte, b'`' | b'\'');
    let opening = said.iter().take_while(|byte| is_quote(byte)).count();
    let closing = said[opening..].iter().rev().take_while(|byte| is_quote(byte)).count();
    let end = start - near.len() + at;
    let value = end - said.len() + opening..end - closing;
    is_chosen(&text[value.clone()]).then_some(value)
}

/// Returns a value that is alone on the next line after `the password is:`, perhaps after an empty line.
fn on_the_next_line(text: &[u8], end: usize, clause: &[u8]) -> Option<Range<usize>> {
    let clause = clause.trim_ascii_end();
    if !clause.is_empty() && ![":", "：", "。"].iter().any(|sign| clause.ends_with(sign.as_bytes())) {
        return None;
    }
    let start = end + white(text, end);
    let value = start
        ..start + run(&text[..text.len().min(start + 64)], start, |byte| byte > b' ' && !matches!(byte, b'"' | b'\\'));
    let begins = text.get(start).is_some_and(u8::is_ascii_alphanumeric);
    (begins && start > end && is_line_end(text, value.end) && is_chosen(&text[value.clone()])).then_some(value)
}

/// True if this can only be a password: not an option, a setting or an address.
fn is_chosen(value: &[u8]) -> bool {
    is_strong(value)
        && value.is_ascii()
        && value[0] != b'-'
        && !value.contains(&b'=')
        && !(value.contains(&b'@') && value.contains(&b'.'))
}

/// True if this has letters, digits and a sign that does not occur in identifiers.
fn is_strong(value: &[u8]) -> bool {
    let signs = value.iter().any(|byte| b"!@#$%^&*?~+=".contains(byte));
    value.len() >= 8
        && signs
        && value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_alphabetic)
        && !value.iter().any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<' | b'/'))
}

/// Returns the value here: in quotes of any language, or bare with mixed characters.
fn value(text: &[u8], at: usize, is_direct: bool, weak: bool) -> Option<Range<usize>> {
    const QUOTES: [(&str, &str); 9] = [
        ("«", "»"),
        ("„", "“"),
        ("“", "”"),
        ("「", "」"),
        ("『", "』"),
        ("‘", "’"),
        ("\u{ab}\u{a0}", "\u{a0}»"),
        ("»", "«"),
        ("›", "‹"),
    ];
    let at = at + blanks(text, at);
    let rest = text.get(at..)?;
    for (opening, closing) in QUOTES {
        if let Some(inner) = rest.strip_prefix(opening.as_bytes()) {
            let inner = &inner[..inner.len().min(256)];
            let end = memchr::memmem::find(inner, closing.as_bytes())?;
            let padded = inner[..end].len() - inner[..end].trim_ascii_start().len();
            let start = at + opening.len() + padded;
            let value = start..at + opening.len() + inner[..end].trim_ascii_end().len();
            return is_secret(text, &value, true, weak).then_some(value);
        }
    }
    if Quote::at(text, at).is_some_and(|quote| !quote.is_of_json()) {
        let value = extent::quoted(text, at)?;
        return is_secret(text, &value, true, weak).then_some(value);
    }
    let length =
        run(&text[..text.len().min(at + 256)], at, |byte| byte > b' ' && byte < 128 && byte != b'"' && byte != b'\\');
    let plain = text[at..at + length].trim_ascii_end();
    let end =
        plain.iter().rposition(|byte| !matches!(byte, b'.' | b',' | b';' | b':' | b')')).map_or(0, |last| last + 1);
    let value = at..at + end;
    (is_direct || end >= 8).then_some(())?;
    is_secret(text, &value, false, weak).then_some(value)
}

fn is_secret(text: &[u8], at: &Range<usize>, quoted: bool, weak: bool) -> bool {
    let value = &text[at.clone()];
    let letters = value.iter().any(u8::is_ascii_alphabetic);
    let digits = value.iter().any(u8::is_ascii_digit);
    let kind = if weak { Kind::Token } else { Kind::Password };
    let mixed = letters && digits && !is_wordy(value);
    let plain = value.len() >= 5 && !value.contains(&b' ') && value.is_ascii() && !is_placeholder(value);
    let fits = mixed || quoted && !weak && value.len() >= 8;
    let address = memchr::memmem::find(value, b"://").is_some();
    plain && fits && !address && is_bare_secret(value, kind, None)
}
