//! Secrets in files of credentials: JSON Web Keys, tables, base64 blocks, wallet keys.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};

use crate::Secret;
use crate::words::random::is_random;
use crate::words::scan::{Quote, blanks, is_base64, is_token, is_word_start, run};

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

/// Returns the secret after the ID of a key in a table: `AKIA…,secret`. The previous pass redacted the ID, and `start`
/// is the offset of `y]` in its mark.
pub(crate) fn aws_table(text: &[u8], start: usize) -> Option<Secret> {
    if !text[..start].ends_with(b"[REDACTED:aws_ke") {
        return None;
    }
    let mut at = start + 2;
    // Each may be quoted.
    at += Quote::at(text, at).map_or(0, Quote::length);
    let gap = blanks(text, at);
    let sign = matches!(text.get(at + gap), Some(b',' | b';' | b':' | b'|' | b'/'));
    if gap == 0 && !sign {
        return None;
    }
    at += gap + usize::from(sign);
    at += blanks(text, at);
    at += Quote::at(text, at).map_or(0, Quote::length);
    let length = run(text, at, is_base64);
    (length == 40 && is_random(&text[at..at + length])).then_some(Secret { at: at..at + length, rule: "aws_secret" })
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

const fn is_base58(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() && !matches!(byte, b'0' | b'O' | b'I' | b'l')
}

/// Returns a private key in wallet import format: 51 characters from `5H`, `5J`, `5K`, or 52 from `K` or `L`. `start`
/// is its offset.
pub(crate) fn wallet(text: &[u8], start: usize) -> Option<Secret> {
    let length = run(text, start, is_base58);
    let fits = match text.get(start..start + 2)? {
        [b'5', b'H' | b'J' | b'K'] => length == 51,
        [b'K' | b'L', _] => length == 52,
        _ => false,
    };
    let whole =
        is_word_start(text, start) && !is_token_at(text, start + length) && text.get(start + length) != Some(&b'/');
    let value = &text[start..start + length];
    let before = start.checked_sub(1).map(|at| text[at]);
    let apart =
        !matches!(before, Some(b'/' | b'+' | b'-' | b'.')) && !matches!(text.get(start + length), Some(b'+' | b'='));
    (fits && whole && apart && is_random(value)).then_some(Secret { at: start..start + length, rule: "wallet_key" })
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
