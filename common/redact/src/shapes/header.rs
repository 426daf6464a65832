//! Credentials in HTTP headers.

use std::ops::Range;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

use crate::Secret;
use crate::words::random::is_random;
use crate::words::scan::{Quote, is_base64, is_token, is_word_start, run};
use crate::words::value::{is_code, is_placeholder};

/// Maximum length of a cookie header; browsers store no longer cookie.
const LONGEST_COOKIE: usize = 4096;

fn is_credential(byte: u8) -> bool {
    is_base64(byte) || matches!(byte, b'.' | b'~')
}

/// True if the word begins here, in any case.
fn is_word(text: &[u8], start: usize, word: &[u8]) -> bool {
    text.get(start..start + word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word))
}

/// Returns the bytes after a scheme that begins here.
fn after(text: &[u8], start: usize, scheme: &[u8], of: impl Fn(u8) -> bool) -> Option<Range<usize>> {
    let at = start + scheme.len();
    (is_word(text, start, scheme) && is_word_start(text, start)).then(|| at..at + run(text, at, of))
}

/// Returns the credentials after `Bearer`.
pub(crate) fn bearer(text: &[u8], start: usize) -> Option<Secret> {
    let at = after(text, start, b"bearer ", |byte| is_credential(byte) || byte == b'%')?;
    let token = &text[at.clone()];
    let drawn = token.len() >= 16 && token.iter().any(u8::is_ascii_digit) || is_random(token);
    drawn.then_some(Secret { at, rule: "bearer" })
}

/// Returns the credentials after `Basic`: a name and a password in base64.
pub(crate) fn basic(text: &[u8], start: usize) -> Option<Secret> {
    let at = after(text, start, b"basic ", is_base64)?;
    is_name_and_password(&text[at.clone()]).then_some(Secret { at, rule: "basic" })
}

/// Returns the offset of the value of the header that begins here.
fn value(text: &[u8], start: usize, name: &[u8], signs: &[u8]) -> Option<usize> {
    let mut at = start + name.len();
    let quote = Quote::at(text, at);
    at += quote.map_or(0, Quote::length);
    at += run(text, at, |byte| byte == b' ');
    if !is_word(text, start, name) || !signs.contains(text.get(at)?) {
        return None;
    }
    at += 1 + usize::from(text[at..].starts_with(b"=>"));
    at += run(text, at, |byte| byte == b' ');
    let opening = Quote::at(text, at);
    Quote::are_of_one_level(quote, opening).then(|| at + opening.map_or(0, Quote::length))
}

/// True if this is `name:password` in base64.
pub(crate) fn is_name_and_password(text: &[u8]) -> bool {
    if text.len() < 8 || text.len() > 1024 {
        return false;
    }
    let Some(bytes) = std::str::from_utf8(text).ok().and_then(decoded) else { return false };
    let colon = bytes.iter().position(|byte| *byte == b':');
    let printable = std::str::from_utf8(&bytes).is_ok_and(|plain| plain.chars().all(|c| !c.is_control()));
    printable && colon.is_some_and(|colon| colon + 1 < bytes.len())
}

/// Decodes base64; the padding may be missing.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let padding = "=".repeat(text.len().wrapping_neg() % 4);
    BASE64.decode(format!("{text}{padding}")).ok()
}

/// Returns the credentials in an `Authorization` header of any scheme.
pub(crate) fn authorization(text: &[u8], start: usize) -> Option<Secret> {
    let mut at = value(text, start, b"authorization", b":=,")?;
    let scheme = run(text, at, |byte| byte.is_ascii_alphabetic() || byte == b'-');
    let mut rule = "authorization";
    if text.get(at + scheme) == Some(&b' ') {
        let named = |known: &&str| text[at..at + scheme].eq_ignore_ascii_case(known.as_bytes());
        rule = ["bearer", "basic"].into_iter().find(named).unwrap_or(rule);
        at += scheme + 1;
    }
    // `Token token="…"`.
    if text[at..].starts_with(b"token=") {
        at += 6;
        at += Quote::at(text, at).filter(|quote| !quote.is_of_json()).map_or(0, Quote::length);
    }
    let at = at..at + run(text, at, |byte| is_credential(byte) || byte == b':');
    let value = &text[at.clone()];
    let long = value.len() >= 12 && (value.iter().any(u8::is_ascii_digit) || is_random(value));
    let secret = long || rule == "basic" && is_name_and_password(value);
    let code = !value.is_empty() && is_code(value, text.get(at.end).copied());
    (secret && !code && !is_placeholder(value)).then_some(Secret { at, rule })
}

/// Returns the cookies of a request or a response if one of them is random. `inside` is the offset of `kie`.
pub(crate) fn cookie(text: &[u8], inside: usize) -> Option<Secret> {
    let at = value(text, inside.checked_sub(3)?, b"cookie", b":")?;
    let near = &text[..text.len().min(at + LONGEST_COOKIE)];
    let at = at..at + run(near, at, |byte| !matches!(byte, b'"' | b'\\' | b'\'' | b'`'));
    text[at.clone()].split(|byte| *byte == b';').any(is_session).then_some(Secret { at, rule: "cookie" })
}

/// True if this is `name=value` with a random value.
fn is_session(pair: &[u8]) -> bool {
    let Some(sign) = memchr::memchr(b'=', pair) else { return false };
    let (name, value) = (&pair[..sign], &pair[sign + 1..]);
    let named = name.iter().all(|byte| is_token(*byte) || matches!(byte, b' ' | b'.' | b'%' | b'[' | b']'));
    let small = name.to_ascii_lowercase();
    let says = |word: &&str| memchr::memmem::find(&small, word.as_bytes()).is_some();
    let says = ["sess", "sid", "auth", "token", "jwt"].iter().any(says);
    let digits = value.iter().any(u8::is_ascii_digit) && !value.contains(&b' ');
    named && digits && (says && value.len() >= 8 || value.len() >= 20 && is_random(value))
}
