//! Keys of providers, recognized by their prefix.

use crate::Secret;
use crate::shapes::token;
use crate::words::random::{is_hexadecimal, is_random};
use crate::words::scan::{is_base64, is_token, is_word_start, run};

/// The format of the text after the prefix of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Letters, digits, `-`, `_` and `.`.
    Token,
    /// Like `Token`, with at least one digit, for prefixes that also begin words.
    Mixed,
    /// Like `Token`, but random, for prefixes that also begin names.
    Random,
    /// Letters and digits.
    Alnum,
    /// Upper-case letters and digits, of the exact length.
    Upper,
    /// Lower-case hexadecimal digits.
    Hex,
    /// Base64 in either alphabet.
    Base64,
    /// The path of a URL that is a secret.
    Path,
    /// Parts separated by dollar signs.
    Dollar,
    /// Letters and digits with URL escapes.
    Percent,
    /// Upper-case letters and digits, of the minimum length.
    UpperFrom,
    /// A UUID.
    Uuid,
    /// 14 letters and digits, a full stop, 64 hexadecimal digits.
    Airtable,
}

use Rest::{Airtable, Alnum, Base64, Dollar, Hex, Mixed, Path, Percent, Random, Token, Upper, UpperFrom, Uuid};

/// A kind of key.
pub(crate) struct Key {
    pub(crate) rule: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) rest: Rest,
    /// Minimum length of the rest.
    pub(crate) least: usize,
}

/// Maximum number of bytes that are examined; the longest keys have some hundred bytes.
const LONGEST: usize = 2048;

include!(concat!(env!("OUT_DIR"), "/keys.rs"));

/// Returns the offset of the rarest three bytes of a prefix: signs and digits are rarer than letters, and some letters
/// than others.
pub(crate) fn rarest_of(prefix: &[u8]) -> usize {
    let weight_at = |at: &usize| prefix[*at..at + 3].iter().map(|byte| WEIGHTS[usize::from(*byte)]).sum::<u32>();
    // The first of several that are equally rare.
    (0..prefix.len() - 2).rev().max_by_key(weight_at).unwrap_or(0)
}

/// The rarity of each byte.
static WEIGHTS: [u32; 256] = {
    let (mut weights, mut byte) = ([2; 256], 0_u8);
    while byte < 128 {
        weights[byte as usize] = match byte.to_ascii_lowercase() {
            b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 1,
            b'j' | b'q' | b'x' | b'z' | b'k' | b'v' | b'w' | b'g' | b'b' | b'-' | b'.' | b'/' | b'~' => 3,
            b'0'..=b'9' | b'_' => 4,
            _ => 2,
        };
        byte += 1;
    }
    weights
};

/// Returns the key of this kind that begins here.
pub(crate) fn at(text: &[u8], start: usize, key: &Key) -> Option<Secret> {
    let Key { rule, prefix, rest, least } = *key;
    if !text.get(start..)?.starts_with(prefix.as_bytes()) || !is_word_start(text, start) {
        return None;
    }
    if start > 0 && matches!(text[start - 1], b'+' | b'/') && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        // Base64 text contains every such prefix somewhere.
        return None;
    }
    let tail = start + prefix.len();
    let text = &text[..text.len().min(tail + LONGEST)];
    let end = tail
        + match rest {
            Token | Mixed | Random | Airtable => run(text, tail, |byte| is_token(byte) || byte == b'.'),
            Dollar => run(text, tail, |byte| byte.is_ascii_alphanumeric() || byte == b'$'),
            Percent => run(text, tail, |byte| byte.is_ascii_alphanumeric() || byte == b'%'),
            Base64 => run(text, tail, is_base64),
            Path => run(text, tail, |byte| is_token(byte) || matches!(byte, b'/' | b'@')),
            Alnum | Upper | UpperFrom | Hex | Uuid => run(text, tail, is_token),
        };
    // A full stop ends the sentence, not the key.
    let end = end - usize::from(text[tail..end].ends_with(b"."));
    let body = &text[tail..end];
    // `ghp_xxxx…` illustrates the format of a key.
    let fits = body.len() >= least
        && body.iter().any(|byte| *byte != body[0])
        && match rest {
            Token | Base64 | Path | Dollar => true,
            Airtable => is_airtable(body),
            Uuid => is_uuid(body),
            Mixed => body.iter().any(u8::is_ascii_digit),
            Percent | Random => is_random(body),
            Alnum => body.iter().all(u8::is_ascii_alphanumeric),
            Upper => body.len() == least && body.iter().all(|byte| is_capital(*byte)),
            UpperFrom => body.iter().all(|byte| is_capital(*byte)) && body.iter().any(u8::is_ascii_digit),
            Hex => body.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')),
        };
    fits.then_some(Secret { at: start..end, rule })
}

fn is_capital(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_airtable(body: &[u8]) -> bool {
    body.len() == 79
        && body[14] == b'.'
        && body[..14].iter().all(u8::is_ascii_alphanumeric)
        && is_hexadecimal(&body[15..])
}

fn is_uuid(body: &[u8]) -> bool {
    let dashes = [8, 13, 18, 23].iter().all(|at| body.get(*at) == Some(&b'-'));
    body.len() == 36 && dashes && is_hexadecimal(body)
}

/// Returns the key of any kind that begins here.
pub(crate) fn any_at(text: &[u8], start: usize) -> Option<Secret> {
    let key = KEYS.iter().find_map(|key| at(text, start, key));
    key.or_else(|| token::jwt(text, start)).or_else(|| token::discord(text, start))
}
