//! Private key blocks.

use crate::Secret;
use crate::mark::string_end;
use crate::words::scan::{is_base64, run, white};

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
    string_end(&text[..end], body).is_none().then_some(end)
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
