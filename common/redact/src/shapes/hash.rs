//! Password hashes, which are secrets because passwords can be tested against them.

use crate::Secret;
use crate::words::scan::{is_base64, is_token, run};

/// `$scheme$…$hash` of crypt(3), PHC and similar formats. `dollar` is the offset of the first `$`.
pub(crate) fn crypt(text: &[u8], dollar: usize) -> Option<Secret> {
    const SCHEMES: [(&[u8], usize); 16] = [
        (b"$1$", 22),
        (b"$apr1$", 22),
        (b"$2a$", 50),
        (b"$2b$", 50),
        (b"$2x$", 50),
        (b"$2y$", 50),
        (b"$5$", 43),
        (b"$6$", 86),
        (b"$y$", 43),
        (b"$gy$", 43),
        (b"$7$", 43),
        (b"$argon2", 22),
        (b"$scrypt$", 22),
        (b"$pbkdf2", 20),
        (b"$sha1$", 28),
        (b"$bcrypt-sha256$", 22),
    ];
    let rest = text.get(dollar..)?;
    let (scheme, shortest) = SCHEMES.iter().find(|(scheme, _)| rest.starts_with(scheme))?;
    // Hashes with doubled or escaped dollar signs, as in shells, are not searched for.
    let length = run(text, dollar, |byte| is_base64(byte) || matches!(byte, b'$' | b'.' | b',' | b'='));
    let value = text[dollar..dollar + length].trim_ascii_end();
    let value = value.strip_suffix(b".").filter(|_| !scheme.starts_with(b"$2")).unwrap_or(value);
    let last = value.rsplit(|byte| *byte == b'$').next()?;
    let hashed = last.len() >= *shortest && last.iter().any(|byte| *byte != last[0]);
    let parts = memchr::memchr_iter(b'$', value).count();
    (hashed && parts >= 2).then_some(Secret { at: dollar..dollar + value.len(), rule: "password_hash" })
}

/// `pbkdf2_sha256$600000$salt$hash` of Django, `scrypt:32768:8:1$salt$hash` of Werkzeug. `start` is the offset of `pbk`
/// or `scr`.
pub(crate) fn framework(text: &[u8], start: usize) -> Option<Secret> {
    let rest = text.get(start..)?;
    let known = [&b"pbkdf2_sha"[..], b"pbkdf2:sha", b"scrypt:", b"scrypt$", b"bcrypt_sha256$", b"argon2$"];
    known.iter().find(|known| rest.starts_with(known))?;
    let length = run(text, start, |byte| is_base64(byte) || matches!(byte, b'$' | b'.' | b',' | b':'));
    let value = &text[start..start + length];
    let last = value.rsplit(|byte| *byte == b'$').next()?;
    let parts = memchr::memchr_iter(b'$', value).count();
    (parts >= 2 && last.len() >= 20).then_some(Secret { at: start..start + length, rule: "password_hash" })
}

/// `{SSHA}…` of LDAP directories. `start` is the offset of the brace.
pub(crate) fn directory(text: &[u8], start: usize) -> Option<Secret> {
    let rest = text.get(start..)?;
    let schemes = [&b"{SSHA}"[..], b"{SHA}", b"{SMD5}", b"{MD5}", b"{SSHA256}", b"{SSHA512}", b"{SHA256}", b"{SHA512}"];
    let scheme = schemes.iter().find(|scheme| rest.starts_with(scheme))?;
    let from = start + scheme.len();
    let length = run(text, from, is_base64);
    (length >= 20).then_some(Secret { at: start..from + length, rule: "password_hash" })
}

/// `user:number:32 digits:32 digits:::` of Windows, as printed by tools. `colons` is the offset of `:::`.
pub(crate) fn windows(text: &[u8], colons: usize) -> Option<Secret> {
    let start = colons.checked_sub(65)?;
    let hex = |range: std::ops::Range<usize>| text[range].iter().all(u8::is_ascii_hexdigit);
    let fits = text[colons..].starts_with(b":::")
        && text[colons - 33] == b':'
        && hex(start..colons - 33)
        && hex(colons - 32..colons)
        && start > 0
        && text[start - 1] == b':'
        && !is_token(*text.get(colons + 3).unwrap_or(&b' '));
    fits.then_some(Secret { at: start..colons, rule: "password_hash" })
}
