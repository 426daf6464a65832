//! Assignments: a name that announces a secret, and its value, in the notations of files, code and prose.

use std::ops::Range;

use crate::Secret;
use crate::named::command::{self, in_quotes};
use crate::shapes::header::is_name_and_password;
use crate::shapes::{key, url};
use crate::words::extent::bare;
use crate::words::name::{Kind, Name};
use crate::words::random::{is_random, is_random_key};
use crate::words::scan::{
    self, Quote, blanks, is_base64, is_line_end, is_line_start, joint, line_before, run, white, word_before,
};
use crate::words::tables;
use crate::words::value::{is_bare_secret, is_drawn, is_placeholder, is_quoted_secret, is_wordy};

/// Returns the value of the name around this offset.
pub(crate) fn at(text: &[u8], inside: usize) -> Option<Secret> {
    if let Some(at) = command::piped(text, inside) {
        return Some(Secret { at, rule: "flag" });
    }
    let name = Name::around(text, inside)?;
    if name.kind >= Kind::OwnKey && !is_near(text, name.at.end) {
        return None;
    }
    let forms = [assigned, element, paired, declared, listed, stated, quoted, typed, fallback];
    let value = forms.iter().find_map(|form| form(text, &name)).map(|value| (value, "assignment"));
    match value.or_else(|| command::operand(text, &name).map(|value| (value, "flag"))) {
        // The kind of a key is more informative than its context.
        Some((at, rule)) => {
            let at = if name.kind == Kind::Pair { url::secret_of_pair(text, at)? } else { at };
            key::any_at(text, at.start).filter(|key| key.at == at).or(Some(Secret { at, rule }))
        }
        None if name.kind == Kind::Pair => None,
        None => after(text, &name),
    }
}

/// `name = value` and `"name": "value"`, with any assignment sign.
fn assigned(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let quote = Quote::at(text, name.at.end);
    let mut at = name.at.end + quote.map_or(0, Quote::length);
    at += index(text, at);
    at += markup(text, at);
    let before = blanks(text, at);
    at += before;
    let sign = sign(text, at)?;
    at += sign.len();
    at += markup(text, at);
    let after = joint(text, at, if sign == b":" { b"|>`^" } else { b"`^" });
    at += after;
    at += markup(text, at);
    // Prefixes of string literals in several languages.
    if matches!(text.get(at), Some(b'@' | b'b' | b'r' | b'f' | b'u' | b'L' | b'$')) && Quote::at(text, at + 1).is_some()
    {
        at += 1;
    }
    if let Some(opening) = Quote::at(text, at) {
        // In `"password:"` this is the closing quote of the name.
        let ends_name = quote.is_none() && text[..name.at.start].ends_with(&text[at..at + opening.length()]);
        return in_quotes(text, at, name).filter(|_| !ends_name);
    }
    if quote.is_some_and(Quote::is_of_json) {
        // A number, a list, or nothing.
        return None;
    }
    if text.get(at) == Some(&b'{')
        && let Some(hashed) = key::any_at(text, at)
    {
        return Some(hashed.at);
    }
    let is_setting = sign == b"=" && before + after == 0 && begins_line(text, name.at.start);
    let mut value = bare(text, at, is_setting, name.kind);
    if matches!(text[value.clone()], [.., b',' | b';' | b')']) {
        // An argument, or a statement on its own line.
        value = bare(text, at, false, name.kind);
    }
    let secret = &text[value.clone()];
    let next = text.get(value.end).copied();
    if !is_bare_secret(secret, name.kind, next) {
        return (name.kind == Kind::Basic && is_name_and_password(secret)).then_some(value);
    }
    let word = &text[name.at.clone()];
    if sign == b":" && after > 0 && (word == b"PASS" || word.eq_ignore_ascii_case(b"pass") && !is_chosen(secret)) {
        // `PASS: TestAll`, `the pass: 2000m`.
        return None;
    }
    if sign == b":" && text[value.end..].starts_with(b" = ") {
        // `NAME: Type = …`.
        return None;
    }
    if name.kind == Kind::Password && is_wordy(secret) {
        if word == b"--pass" || before + after > 0 && secret.contains(&b'_') {
            // `--pass=early`, `password = read_it`.
            return None;
        }
        let tight = sign != b":" && before + after == 0;
        let ends =
            if tight { !matches!(next, Some(b')' | b',' | b'(' | b']' | b'}')) } else { is_line_end(text, value.end) };
        return ends.then_some(value);
    }
    Some(value)
}

/// True if this resembles a chosen password: not a number with its unit, and not the name of a test.
fn is_chosen(secret: &[u8]) -> bool {
    let letters = secret.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    letters > 1 && letters < secret.len() && secret.len() >= 6
}

/// True if a name is the first on its line, except for words that set variables.
fn begins_line(text: &[u8], start: usize) -> bool {
    is_line_start(text, start)
        || [&b"export"[..], b"set", b"SET", b"ENV", b"ARG", b"-e", b"--env"].contains(&word_before(text, start))
}

/// Returns the length of the signs that end or begin bold or slanted text, in Markdown or HTML.
fn markup(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    tables::MARKUP.iter().find(|sign| rest.starts_with(sign.as_bytes())).map_or(0, |sign| sign.len())
}

/// Returns the length of an index: the rest of `["name"]`, or `[32]`.
fn index(text: &[u8], at: usize) -> usize {
    let length = run(text, at, |byte| matches!(byte, b'[' | b']' | b'0'..=b'9'));
    if text[at..at + length].ends_with(b"]") { length } else { 0 }
}

/// Returns the sign between a name and its value.
fn sign(text: &[u8], at: usize) -> Option<&[u8]> {
    let rest = text.get(at..)?;
    let sign = tables::ASSIGNMENT_SIGNS.iter().map(|sign| sign.as_bytes()).find(|sign| rest.starts_with(sign))?;
    let next = rest.get(sign.len());
    let compared = sign == b"=" && matches!(next, Some(b'=' | b'~'));
    let path = sign == b":" && matches!(next, Some(b':' | b'?' | b'+' | b'/'));
    (!compared && !path).then_some(&rest[..sign.len()])
}

/// `<name>value</name>`, also with attributes, and `<entry key="name">value</entry>`.
fn element(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let opened = opens_tag(text, name.at.start);
    let quote = Quote::at(text, name.at.end);
    let mut at = name.at.end + quote.map_or(0, Quote::length);
    if opened {
        // Attributes, up to the end of the tag on the same line.
        at += run(&text[..text.len().min(at + 80)], at, |byte| !matches!(byte, b'<' | b'>' | b'/' | b'(' | b','));
    }
    if !(opened || quote.is_some()) || text.get(at) != Some(&b'>') {
        return None;
    }
    at += 1 + white(text, at + 1);
    // The content of `<label for="password">` is usually a word.
    secret_before_tag(text, at, name.kind).filter(|value| opened || !is_wordy(&text[value.clone()]))
}

/// True if a tag begins with the name here; a prefix that ends with a colon or a full stop is its namespace.
fn opens_tag(text: &[u8], start: usize) -> bool {
    let space = text[..start].iter().rev().take(32);
    let space = space.take_while(|byte| scan::is_token(**byte) || matches!(byte, b':' | b'.')).count();
    start > space && text[start - space - 1] == b'<'
}

fn secret_before_tag(text: &[u8], at: usize, kind: Kind) -> Option<Range<usize>> {
    let end = at + run(text, at, |byte| !matches!(byte, b'<' | b'"' | b'\\' | b']'));
    let value = at..at + text[at..end].trim_ascii_end().len();
    let end = end + white(text, end);
    let closed = text[end..].starts_with(b"</");
    (closed && is_quoted_secret(&text[value.clone()], kind)).then_some(value)
}

/// A name that is itself a value, followed by its own value: `name="…" value="…"`, `<key>…</key><string>…`.
fn paired(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let colon = usize::from(text.get(name.at.end) == Some(&b':'));
    let mut at = name.at.end + colon;
    let closing = Quote::at(text, at);
    at += closing.map_or(0, Quote::length);
    if text.get(at..)?.starts_with(b"</") {
        // The tag that closes the name, and the tag that opens the value.
        let near = &text[..text.len().min(at + 160)];
        let opening = at + memchr::memchr(b'>', &near[at..])? + 1;
        let opening = opening + white(near, opening);
        let inner = near.get(opening..)?.starts_with(b"<").then(|| memchr::memchr(b'>', &near[opening..]))??;
        return secret_before_tag(text, opening + inner + 1, name.kind);
    }
    for sign in [b',', b':', b'{', b';'] {
        at += white(text, at);
        at += usize::from(text.get(at) == Some(&sign));
    }
    at += white(text, at);
    at += Quote::at(text, at).map_or(0, Quote::length);
    let word = run(text, at, scan::is_token);
    let named = [&b"value"[..], b"content", b"stringValue", b"defaultValue"];
    if !named.iter().any(|known| text[at..at + word].eq_ignore_ascii_case(known)) {
        return None;
    }
    at = behind_sign(text, at + word)?;
    if Quote::at(text, at).is_some() {
        return in_quotes(text, at, name);
    }
    if closing.is_some_and(Quote::is_of_json) {
        // A number, a list, or nothing.
        return None;
    }
    let value = bare(text, at, true, name.kind);
    (is_bare_secret(&text[value.clone()], name.kind, None) && is_line_end(text, value.end)).then_some(value)
}

/// Returns the offset behind `:` or `=`, and the blanks and the closing quote around it.
fn behind_sign(text: &[u8], at: usize) -> Option<usize> {
    let at = at + Quote::at(text, at).map_or(0, Quote::length);
    let at = at + blanks(text, at);
    matches!(text.get(at), Some(b':' | b'=')).then(|| at + 1 + blanks(text, at + 1))
}

/// `variable "name" { … default = "value" }`, `{"name":"…","type":"…","value":"…"}`: a member of the same block.
fn declared(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let quote = Quote::at(text, name.at.end)?;
    let from = name.at.end + quote.length();
    let near = &text[from..text.len().min(from + 240)];
    let opens = near.trim_ascii_start().starts_with(b"{");
    (opens || text.get(from) == Some(&b',')).then_some(())?;
    let block = &near[..near.iter().position(|byte| *byte == b'}').unwrap_or(near.len())];
    let words: &[&[u8]] = if opens { &[b"default"] } else { &[b"value", b"Value"] };
    let at = from + words.iter().find_map(|word| Some(memchr::memmem::find(block, word)? + word.len()))?;
    in_quotes(text, behind_sign(text, at)?, name)
}

/// `define('name', 'value')`, `getenv("name", "value")`, but not every list of words.
fn listed(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let quote = Quote::at(text, name.at.end)?;
    let before = text[..name.at.start.checked_sub(quote.length())?].trim_ascii_end();
    let mut at = name.at.end + quote.length();
    at += blanks(text, at);
    (before.last() == Some(&b'(') && text.get(at) == Some(&b',')).then_some(())?;
    at += 1 + white(text, at + 1);
    let drawn = |value: &[u8]| match name.kind {
        Kind::Password | Kind::Token => !is_wordy(value),
        _ => is_random(value),
    };
    in_quotes(text, at, name).filter(|value| drawn(&text[value.clone()]))
}

/// `the token is value`.
fn stated(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let rest = &text[name.at.end..];
    let verb = [&b" is "[..], b" was ", b" is: "].into_iter().find(|verb| rest.starts_with(verb))?;
    let at = name.at.end + verb.len();
    in_quotes(text, at, name).or_else(|| {
        let value = bare(text, at + usize::from(text.get(at) == Some(&b'`')), false, name.kind);
        let secret = &text[value.clone()];
        let is_secret = is_drawn(secret, name.kind) && is_bare_secret(secret, name.kind, None);
        is_secret.then_some(value)
    })
}

/// `PASSWORD 'value'` of SQL, `#define PASSWORD "value"`, `:password "value"`.
fn quoted(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let gap = blanks(text, name.at.end);
    let value = in_quotes(text, name.at.end + gap, name)?;
    let secret = &text[value.clone()];
    let sql = line_before(text, name.at.start).to_ascii_lowercase();
    let sets =
        sql.ends_with(b"with ") || sql.ends_with(b"encrypted ") || sql.ends_with(b"define ") || sql.ends_with(b":");
    // `pass` is also a verb.
    let verb = text[name.at.clone()].eq_ignore_ascii_case(b"pass");
    (gap > 0 && !verb && !secret.contains(&b' ') && (sets || !is_wordy(secret))).then_some(value)
}

/// `password: str = "value"`, `password string = "value"`.
fn typed(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let mut at = name.at.end;
    at += usize::from(text.get(at) == Some(&b':'));
    let is_type = |byte: u8| byte.is_ascii_alphanumeric() || b"_.&<>[]?|: *".contains(&byte);
    let length = run(&text[..text.len().min(at + 40)], at, is_type);
    at += length;
    if length < 2 || text.get(at) != Some(&b'=') || is_placeholder(&text[at..=at]) && text.get(at + 1) == Some(&b'=') {
        return None;
    }
    in_quotes(text, at + 1 + blanks(text, at + 1), name)
}

/// `password: env.PASSWORD || "value"`: the fallback value.
fn fallback(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let rest = &text[name.at.end..text.len().min(name.at.end + 80)];
    let line = &rest[..run(rest, 0, |byte| !matches!(byte, b';' | b'\\' | b'{' | b'"'))];
    let signs = [&b" || "[..], b" or ", b" ?? "];
    let (at, sign) = signs.iter().find_map(|sign| Some((memchr::memmem::find(line, sign)?, sign)))?;
    let set = line[..at].iter().any(|byte| matches!(byte, b'=' | b':'));
    let value = in_quotes(text, name.at.end + at + sign.len(), name)?;
    (set && !is_wordy(&text[value.clone()])).then_some(value)
}

/// Maximum distance between the word and the key, in bytes.
const REACH: usize = 48;
/// Maximum length of a key; longer text is a file.
const LONGEST: usize = 256;

/// True if text as long as a key is near. This check is necessary because words such as `key` are frequent.
pub(crate) fn is_near(text: &[u8], at: usize) -> bool {
    let near = &text[at..text.len().min(at + 2 * REACH)];
    near.split(|byte| !is_base64(*byte)).any(|piece| piece.len() >= 20)
}

/// Returns the random text that follows a name in the same clause.
pub(crate) fn after(text: &[u8], name: &Name) -> Option<Secret> {
    // Base64 text contains every short word somewhere.
    let joins = |byte: Option<&u8>| matches!(byte, Some(b'/' | b'+'));
    let before = text[..name.at.start].last();
    if joins(before) || before == Some(&b'=') || joins(text.get(name.at.end)) {
        return None;
    }
    let mut at = name.at.end;
    let limit = text.len().min(at + REACH);
    while at < limit {
        at += run(text, at, |byte| byte == b'=');
        let length = run(&text[..text.len().min(at + LONGEST)], at, is_base64);
        if length == LONGEST {
            return None;
        }
        if is_random_key(&text[at..at + length]) && !is_known(&text[at..at + length]) {
            return key::any_at(text, at).or(Some(Secret { at: at..at + length, rule: "entropy" }));
        }
        at += length;
        match text.get(at)? {
            b' ' | b':' | b'(' | b')' | b'|' | b'*' | b'`' | b'\'' | b'>' => at += 1,
            b'\\' if text.get(at + 1) == Some(&b'"') => at += 2,
            _ => return None,
        }
    }
    None
}

/// True for the beginnings of SSH public keys and of labelled checksums.
fn is_known(value: &[u8]) -> bool {
    value.starts_with(b"AAAA") || value.starts_with(b"sha") || value.starts_with(b"md5")
}
