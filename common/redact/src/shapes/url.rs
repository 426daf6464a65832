//! Secrets in URLs, `scheme://user:password@host`, and in options of the same form.

use std::ops::Range;

use crate::Secret;
use crate::words::random::{is_hexadecimal, is_random_key};
use crate::words::scan::run;
use crate::words::value::is_placeholder;

/// Returns the password, or a token without a user name, in the authority of a URL. `start` is the offset of `://`.
pub(crate) fn password(text: &[u8], start: usize) -> Option<Secret> {
    if !text[start..].starts_with(b"://") {
        return None;
    }
    let from = start + 3;
    let is_part = |byte| !matches!(byte, b'/' | b'"' | b'\\' | b'?' | b'#' | b'<' | b'>' | b'\'' | b'`' | 0..=b' ');
    let mut authority = &text[from..from + run(text, from, is_part)];
    if !authority.contains(&b'@') {
        // A password may contain a slash or a hash although the standard forbids them; in web URLs only a hash, because
        // a port and a path may follow.
        let scheme = text[..start].iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let is_web = text[start - scheme..start].starts_with(b"http");
        let near = &text[..text.len().min(from + 512)];
        let long = run(near, from, |byte| is_part(byte) || byte == b'#' || !is_web && matches!(byte, b'/' | b'?'));
        let port = memchr::memchr(b':', authority).map(|colon| &authority[colon + 1..]);
        if port.is_none_or(|port| port.iter().all(u8::is_ascii_digit)) {
            return None;
        }
        authority = &text[from..from + long];
    }
    let at = memchr::memrchr(b'@', authority)?;
    secret_of_pair(text, from..from + at).map(|at| Secret { at, rule: "url_password" })
}

/// Returns the secret in a name and its password, divided by a colon: the password, or a key without a password.
pub(crate) fn secret_of_pair(text: &[u8], at: Range<usize>) -> Option<Range<usize>> {
    let colon = memchr::memchr(b':', &text[at.clone()]).map_or(at.end, |colon| at.start + colon);
    let (name, value) = (&text[at.start..colon], text.get(colon + 1..at.end).unwrap_or_default());
    if value.is_empty() {
        // Random text is a token, and 32 hexadecimal digits are the key in a URL of Sentry.
        let is_key = is_random_key(name) || name.len() >= 32 && is_hexadecimal(name);
        return is_key.then_some(at.start..colon);
    }
    let number = value.len() < 4 && value.iter().all(u8::is_ascii_digit);
    (!is_placeholder(value) && !number).then_some(colon + 1..at.end)
}
