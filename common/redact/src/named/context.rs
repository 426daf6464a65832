//! Random text that is a key because the preceding words mention one.

use crate::Secret;
use crate::shapes::key;
use crate::words::name::Name;
use crate::words::random::is_random_key;
use crate::words::scan::{is_base64, run};

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
            b' ' | b':' | b'(' | b')' | b'`' | b'\'' | b'>' => at += 1,
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
