//! Secrets in files of credentials: private key blocks, JSON Web Keys, tables, base64 blocks, wallet keys.

use std::ops::Range;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

use crate::Secret;
use crate::words::random::is_random;
use crate::words::scan::{Quote, blanks, is_base64, is_token, run, white};

/// Maximum distance between a member and the key type of its object, in bytes.
const OBJECT: usize = 4096;

/// Returns a private member of a JSON Web Key: `"d":"…"` beside `"kty"`. `start` is the offset of the quote before the
/// name, after the backslashes of nested text.
pub(crate) fn web_key(text: &[u8], start: usize) -> Option<Secret> {
    let names = [&b"d"[..], b"p", b"q", b"dp", b"dq", b"qi", b"k"];
    let name =
        names.iter().find(|name| text[start + 1..].starts_with(name) && !is_token_at(text, start + 1 + name.len()))?;
    let mut at = start + 1 + name.len();
    let closing = Quote::at(text, at)?;
    at += closing.length();
    at += blanks(text, at);
    (text.get(at) == Some(&b':')).then_some(())?;
    at += 1;
    at += blanks(text, at);
    let opening = Quote::at(text, at).filter(|opening| *opening == closing)?;
    at += opening.length();
    let length = run(text, at, is_token);
    let closed = Quote::at(text, at + length) == Some(opening);
    if length < 16 || !closed || !is_random(&text[at..at + length]) && length < 40 {
        return None;
    }
    let near = &text[start.saturating_sub(OBJECT)..text.len().min(at + length + OBJECT)];
    memchr::memmem::find(near, b"kty").map(|_| Secret { at: at..at + length, rule: "private_key" })
}

fn is_token_at(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| is_token(*byte))
}

/// Returns a private key block that is encoded in base64 as a whole. `start` is the offset of `LS0tLS1CRUdJTi`.
pub(crate) fn encoded_block(text: &[u8], start: usize) -> Option<Secret> {
    if !text[start..].starts_with(b"LS0tLS1CRUdJTi") {
        return None;
    }
    let length = text[start..].iter().take_while(|byte| is_base64(**byte)).count();
    let head = &text[start..start + length.min(80) / 4 * 4];
    let plain = BASE64.decode(head).ok()?;
    memchr::memmem::find(&plain, b"PRIVATE KEY").map(|_| Secret { at: start..start + length, rule: "private_key" })
}

/// Returns the words of a wallet's seed phrase: twelve or more, after a word that announces them. `start` is the offset
/// of that word.
pub(crate) fn mnemonic(text: &[u8], start: usize) -> Option<Secret> {
    let names = [
        &b"mnemonic"[..],
        b"seed phrase",
        b"seed_phrase",
        b"seedphrase",
        b"seed words",
        b"recovery phrase",
        b"recovery words",
        b"seed",
        b"wallet",
    ];
    let name = names
        .iter()
        .find(|name| text.get(start..start + name.len()).is_some_and(|here| here.eq_ignore_ascii_case(name)))?;
    let from = start + name.len();
    let is_word = |text: &[u8], at: usize| run(text, at, |byte| byte.is_ascii_lowercase());
    // The phrase begins near the word that announces it.
    let near = text.len().min(from + 48);
    let mut at = from;
    while at < near {
        if text[at].is_ascii_lowercase() && text[at - 1] != b'\\' && !text[at - 1].is_ascii_alphanumeric() {
            let (mut end, mut count, mut next) = (at, 0, at);
            loop {
                let length = is_word(text, next);
                if !(3..=8).contains(&length) {
                    break;
                }
                (end, count) = (next + length, count + 1);
                let gap = blanks(text, end);
                if gap != 1 {
                    break;
                }
                next = end + gap;
            }
            let closed = text.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric());
            if closed && matches!(count, 12 | 15 | 18 | 21 | 24) {
                return Some(Secret { at: at..end, rule: "mnemonic" });
            }
        }
        at += 1;
    }
    None
}

/// Maximum length of a block.
const LONGEST: usize = 64 << 10;

/// Returns a private key block through its end line, or through its last line if the end was truncated.
pub(crate) fn block(text: &[u8], start: usize) -> Option<Secret> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    if !text[start..].starts_with(BEGIN) {
        return None;
    }
    let label = start + BEGIN.len();
    let body = label + run(text, label, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
    let is_private = [&b"PRIVATE KEY"[..], b"PRIVATE KEY BLOCK"].iter().any(|end| text[label..body].ends_with(end));
    if !is_private || !text[body..].starts_with(b"-----") {
        return None;
    }
    let body = body + 5;
    let end = end_line(text, body).or_else(|| cut_off(text, body))?;
    Some(Secret { at: start..end, rule: "private_key" })
}

/// Returns the offset after the end line, if it is in the same string.
fn end_line(text: &[u8], body: usize) -> Option<usize> {
    let near = &text[body..text.len().min(body + LONGEST)];
    let end = body + memchr::memmem::find(near, b"-----END ")? + 9;
    let dashes = run(text, end, |byte| byte != b'-' && byte != b'"' && byte != b'\\');
    let end = end + dashes + run(text, end + dashes, |byte| byte == b'-');
    string_end(text, body..end).is_none().then_some(end)
}

/// Returns the offset after the lines of a block without an end line; `None` if it has no lines.
fn cut_off(text: &[u8], body: usize) -> Option<usize> {
    let mut end = body;
    loop {
        let line = end + white(text, end);
        let length = run(text, line, |byte| is_base64(byte) || matches!(byte, b':' | b',' | b'.'));
        let drawn = text[line..line + length].iter().any(u8::is_ascii_alphanumeric);
        if !drawn || !text[end..line].contains(&b'\\') {
            return (end > body).then_some(end);
        }
        end = line + length;
        // `Proc-Type: 4,ENCRYPTED`: a header.
        if text[..end].ends_with(b":") {
            end += run(text, end, |byte| byte == b' ' || is_base64(byte) || byte == b',');
        }
    }
}

/// Returns the private lines of a `PuTTY` key file.
pub(crate) fn putty(text: &[u8], start: usize) -> Option<Secret> {
    const LINES: &[u8] = b"Private-Lines: ";
    if !text[start..].starts_with(LINES) {
        return None;
    }
    let body = start + LINES.len() + run(text, start + LINES.len(), |byte| byte.is_ascii_digit());
    let end = cut_off(text, body)?;
    Some(Secret { at: body..end, rule: "private_key" })
}

/// Returns the end of the JSON string, if it is within the range.
fn string_end(text: &[u8], within: Range<usize>) -> Option<usize> {
    let mut at = within.start;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..within.end)?)?;
        if Quote::at(text, at).is_some_and(Quote::is_of_json) {
            return Some(at);
        }
        at += 1 + usize::from(text[at] == b'\\');
    }
}
