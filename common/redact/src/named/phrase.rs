//! Passwords in English sentences: the words for a password, and the words between them and the value.

use std::ops::Range;

use crate::Secret;
use crate::words::extent;
use crate::words::name::Kind;
use crate::words::scan::{Quote, blanks, is_line_end, run, white};
use crate::words::tables;
use crate::words::value::is_bare_secret;

/// Maximum distance between the word and the verb, in bytes: `the password for the server is …`.
const REACH: usize = 72;

/// Returns the value in a sentence whose word for it begins here.
pub(crate) fn at(text: &[u8], start: usize, index: usize) -> Option<Secret> {
    let word = tables::PASSWORD_WORDS[index];
    let here = text.get(start..start + word.len())?;
    let before = start.checked_sub(1).map(|at| text[at]);
    let begins = before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
        || start > 1 && text[start - 2] == b'\\';
    if !here.eq_ignore_ascii_case(word.as_bytes()) || !begins {
        return None;
    }
    let from = start + word.len();
    let at = if word.ends_with(' ') {
        // `pass` has many meanings.
        value(text, from).filter(|at| is_chosen(&text[at.clone()]))
    } else {
        let near = &text[from..text.len().min(from + REACH)];
        let end = near.iter().position(|byte| matches!(byte, b'"' | b'\\' | b';' | b'!' | b'?')).unwrap_or(near.len());
        let clause = &near[..memchr::memmem::find(&near[..end], b". ").unwrap_or(end)];
        on_the_next_line(text, from + clause.len(), clause).or_else(|| value_after(text, from, clause))
    }?;
    Some(Secret { at, rule: "assignment" })
}

/// Returns the value in `the password Xy12!abc` and `the password for the server is Xy12!abc`.
fn value_after(text: &[u8], from: usize, clause: &[u8]) -> Option<Range<usize>> {
    // A sentence may contain several verbs; the value follows one of them.
    let verbs = tables::VERBS.iter();
    let verbs = verbs.flat_map(|verb| memchr::memmem::find_iter(clause, verb.as_bytes()).map(|at| at + verb.len()));
    let mut places: Vec<usize> = verbs.chain(clause.starts_with(b" ").then_some(1)).collect();
    places.sort_unstable();
    places.into_iter().filter_map(|place| value(text, from + place)).find(|at| is_strong(&text[at.clone()]))
}

/// Returns a value that is alone on the next line after `the password is:`, perhaps after an empty line.
fn on_the_next_line(text: &[u8], end: usize, clause: &[u8]) -> Option<Range<usize>> {
    let clause = clause.trim_ascii_end();
    if !clause.is_empty() && !clause.ends_with(b":") {
        return None;
    }
    let start = end + white(text, end);
    let is_part = |byte| byte > b' ' && !matches!(byte, b'"' | b'\\');
    let value = start..start + run(&text[..text.len().min(start + 64)], start, is_part);
    let begins = text.get(start).is_some_and(u8::is_ascii_alphanumeric);
    (begins && start > end && is_line_end(text, value.end) && is_chosen(&text[value.clone()])).then_some(value)
}

/// True if this can only be a password: not an option, a setting or an address.
fn is_chosen(value: &[u8]) -> bool {
    let is_address = value.contains(&b'@') && value.contains(&b'.');
    is_strong(value) && value.is_ascii() && value[0] != b'-' && !value.contains(&b'=') && !is_address
}

/// True if this has letters, digits and a sign that does not occur in identifiers.
fn is_strong(value: &[u8]) -> bool {
    let signs = value.iter().any(|byte| b"!@#$%^&*?~+=".contains(byte));
    let is_mixed = value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic);
    value.len() >= 8 && signs && is_mixed && !value.iter().any(|byte| b"([{</".contains(byte))
}

/// Returns the value here, with or without quotes.
fn value(text: &[u8], at: usize) -> Option<Range<usize>> {
    let at = at + blanks(text, at);
    let value = if Quote::at(text, at).is_some_and(|quote| !quote.is_of_json()) {
        extent::quoted(text, at)?
    } else {
        let is_part = |byte| byte > b' ' && byte < 128 && byte != b'"' && byte != b'\\';
        let plain = &text[at..at + run(&text[..text.len().min(at + 256)], at, is_part)];
        let is_end = |byte: &u8| matches!(byte, b'.' | b',' | b';' | b':' | b')');
        at..at + plain.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1)
    };
    let word = &text[value.clone()];
    let is_address = memchr::memmem::find(word, b"://").is_some();
    let is_one_word = word.is_ascii() && !word.contains(&b' ');
    (is_one_word && !is_address && is_bare_secret(word, Kind::Password, None)).then_some(value)
}
