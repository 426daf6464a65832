//! Secrets in URLs and in lines of connection parameters: `scheme://user:password@host`,
//! `host:port:database:user:password`.

use crate::Secret;
use crate::words::random::is_hexadecimal;
use crate::words::scan::{is_line_end, is_line_start, is_token, run};
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
    let secret = match memchr::memchr(b':', &authority[..at]) {
        Some(colon) => from + colon + 1..from + at,
        // Random text without a password is a token.
        None if crate::words::random::is_random_key(&authority[..at]) => from..from + at,
        // 32 hexadecimal digits are the key in a URL of Sentry.
        None if at >= 32 && is_hexadecimal(&authority[..at]) => from..from + at,
        None => return None,
    };
    let value = &text[secret.clone()];
    let number = value.len() < 4 && value.iter().all(u8::is_ascii_digit);
    (!is_placeholder(value) && !number).then_some(Secret { at: secret, rule: "url_password" })
}

/// Returns the password in a line of a `PostgreSQL` password file. `start` is the offset of `:54`, the port, or of `*`,
/// the host.
pub(crate) fn pgpass(text: &[u8], start: usize) -> Option<Secret> {
    let colon = start + usize::from(text[start] == b'*');
    let is_part = |byte: u8| is_token(byte) || matches!(byte, b'.' | b'*');
    let host = text[..colon].iter().rev().take(255).take_while(|byte| is_part(**byte)).count();
    // The letter of an escaped line feed is not part of the host.
    if host == 0 || !is_line_start(text, colon - host) && text.get(colon - host - 1) != Some(&b'\\') {
        return None;
    }
    let mut at = colon;
    for _ in 0..3 {
        let length = run(text, at + 1, is_part);
        at += 1 + length;
        if length == 0 || text.get(at) != Some(&b':') {
            return None;
        }
    }
    let start = at + 1;
    let length = run(text, start, |byte| !matches!(byte, b'"' | b'\\' | b':' | 0..=b' '));
    let fits = length >= 4 && is_line_end(text, start + length) && !is_placeholder(&text[start..start + length]);
    fits.then(|| Secret { at: start..start + length, rule: "pgpass" })
}

/// Returns the password in `jdbc:oracle:thin:name/password@…`. `start` is the offset of `oracle:`.
pub(crate) fn oracle(text: &[u8], start: usize) -> Option<Secret> {
    let rest = text.get(start..)?;
    let scheme =
        [&b"oracle:thin:"[..], b"oracle:oci:", b"oracle:oci8:"].into_iter().find(|scheme| rest.starts_with(scheme))?;
    let from = start + scheme.len();
    let is_part = |byte| !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'\'' | 0..=b' ');
    let near = &text[from..from + run(text, from, is_part)];
    let slash = memchr::memchr(b'/', near)?;
    let at = slash + memchr::memchr(b'@', &near[slash..])?;
    let value = &near[slash + 1..at];
    let fits = slash > 0 && value.len() >= 3 && !is_placeholder(value);
    fits.then_some(Secret { at: from + slash + 1..from + at, rule: "url_password" })
}
