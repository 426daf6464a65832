//! Tokens of any provider: one or more short words, a separator, and a random body, such as `acme_live_…`. Identifiers
//! of many services have the same form; `tables/words.txt` lists the words with which those begin.

use std::ops::Range;

use crate::words::random::{is_hexadecimal, kinds};
use crate::words::tables::ID_WORDS;

/// The shortest token with its words.
const LEAST: usize = 19;
/// The longest token; longer text is data.
const MOST: usize = 400;
/// The longest word before a body.
const LONGEST_WORD: usize = 12;

/// Returns the tokens in a text, in order.
pub(crate) fn all(text: &[u8]) -> impl Iterator<Item = Range<usize>> + use<'_> {
    // Each run that is long enough covers the byte that comes as far behind the one before it.
    let (mut behind, mut probe) = (0, LEAST - 1);
    std::iter::from_fn(move || {
        let is_outside = |byte: &u8| !byte.is_ascii_alphanumeric() && !is_separator(byte);
        let is_token = |at: usize| text.get(at).is_some_and(|byte| !is_outside(byte));
        while probe < text.len() {
            // Such a run has nine bytes on one side.
            let is_long = is_token(probe)
                && ([3, 6, 9].iter().all(|step| is_token(probe + step))
                    || [3, 6, 9].iter().all(|step| is_token(probe - step)));
            if !is_long {
                probe += LEAST;
                continue;
            }
            let start = text[behind..probe].iter().rposition(is_outside).map_or(behind, |before| behind + before + 1);
            let end = text[probe..].iter().position(is_outside).map_or(text.len(), |length| probe + length);
            let token = token(text, start, end);
            behind = token.as_ref().map_or(end, |token| token.end);
            probe = behind + LEAST;
            if token.is_some() {
                return token;
            }
        }
        None
    })
}

/// Returns the token in a run of its bytes.
fn token(text: &[u8], start: usize, end: usize) -> Option<Range<usize>> {
    let before = start.checked_sub(1).map(|before| text[before]);
    // The letter of an escape is not a part of the token.
    let start = start + usize::from(before == Some(b'\\'));
    let end = end - usize::from(text.get(start..end)?.ends_with(b"."));
    let run = text.get(start..end).filter(|run| (LEAST..=MOST).contains(&run.len()))?;
    // Parts of paths, addresses and base64, and names of calls.
    let is_part =
        matches!(before, Some(b'/' | b'@' | b'+' | b'$' | b'#')) || matches!(text.get(end), Some(b'@' | b'(' | b'['));
    if is_part {
        return None;
    }
    let body = body_of(run)?;
    // Paths of code and names have full stops and dashes.
    let (shortest, least) = if run[run.len() - body.len() - 1] == b'_' { (14, 45) } else { (20, 75) };
    if body.len() < shortest || score(body) < least || !is_random(body) {
        return None;
    }
    // `v2-…`, `npm-…`: the key of a cache is the hash of a file after what the cache is for.
    let is_hash = |part: &[u8]| matches!(part.len(), 32 | 40 | 56 | 64 | 96 | 128) && is_hexadecimal(part);
    if run[run.len() - body.len() - 1] != b'_' && body.split(is_separator).all(is_hash) {
        return None;
    }
    // A hash has its name before the value.
    let name = || text[..start - 1].rsplit(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    let first = run.split(is_separator).next().unwrap_or_default();
    if is_id(first) || matches!(before, Some(b'=' | b':')) && is_id(name()) {
        return None;
    }
    let is_padding = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(byte);
    Some(start..end + text[end..].iter().take(MOST).take_while(is_padding).count())
}

/// True if an identifier or a hash begins with this word.
fn is_id(word: &[u8]) -> bool {
    ID_WORDS.iter().any(|id| word.eq_ignore_ascii_case(id.as_bytes()))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "iterators over bytes pass references")]
const fn is_separator(byte: &u8) -> bool {
    matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the part behind the words, if there are words.
fn body_of(run: &[u8]) -> Option<&[u8]> {
    let end = run.iter().take(LONGEST_WORD + 1).position(is_separator)?;
    let first = &run[..end];
    // Base64 has short parts, too, which are of both cases, and no full stop.
    let least = if run.len() > 74 && run[end] != b'.' { 3 } else { 2 };
    let is_of_one_case =
        !first.iter().any(u8::is_ascii_uppercase) || !first.iter().any(u8::is_ascii_lowercase) || end > 6;
    if end < least || !run[0].is_ascii_alphabetic() || !is_of_one_case || !is_word(first, true) {
        return None;
    }
    let mut body = &run[end + 1..];
    while let Some(end) = body.iter().position(is_separator).filter(|end| is_word(&body[..*end], false)) {
        body = &body[end + 1..];
    }
    // The extension of a file, and the end of a domain.
    let end = body.rsplit(is_separator).next().unwrap_or_default();
    let is_name = end.len() < body.len() && end.len() <= 6 && body[body.len() - end.len() - 1] == b'.';
    (!body.is_empty() && !is_name && !is_separator(&body[0])).then_some(body)
}

/// True for letters of one case, and for a few letters and digits.
fn is_word(part: &[u8], is_first: bool) -> bool {
    let Some((first, rest)) = part.split_first() else { return false };
    let is_short = part.len() <= if is_first { 6 } else { 3 };
    let is_small = first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase);
    is_short || part.len() <= LONGEST_WORD && (is_small || part.iter().all(u8::is_ascii_uppercase))
}

/// True if the body of a token is random, by the letters that it has.
fn is_random(body: &[u8]) -> bool {
    let parts = || body.split(is_separator);
    let longest = parts().map(<[u8]>::len).max().unwrap_or_default();
    let kinds = kinds(body);
    // Written text has more and shorter parts.
    if !kinds.digit || kinds.length < 8 * parts().count() || longest < 10 {
        return false;
    }
    if kinds.capital && kinds.small {
        // Such identifiers begin with their version.
        return kinds.length >= 14 && !(kinds.length <= 26 && body.starts_with(b"01"));
    }
    // ULIDs and TypeIDs begin with a digit below 8, because they have 128 bits.
    let is_id = kinds.length == 26 && matches!(body[0], b'0'..=b'7');
    let least = if is_hexadecimal(body) { 30 } else { 20 };
    !is_id && (kinds.capital || kinds.small) && longest >= 16 && kinds.length >= least
}

/// For each letter the information in favor of written text: the logarithm of its share in English, times 26.
const WRITTEN: [i32; 26] =
    [11, -14, -5, 2, 17, -8, -9, 7, 9, -47, -23, 1, -7, 8, 10, -10, -53, 6, 7, 12, -5, -19, -7, -47, -9, -57];
/// The information in a change of the class of a character, and in none: the first is frequent in random text.
const CHANGE: [i32; 2] = [-6, 13];

/// Returns the information in favor of random text, in tenths of a bit: letters are as frequent as all others, and
/// their classes change often.
fn score(body: &[u8]) -> i32 {
    let letter = |byte: &u8| byte.is_ascii_alphabetic().then(|| usize::from(byte.to_ascii_lowercase() - b'a'));
    let written: i32 = body.iter().filter_map(letter).map(|letter| WRITTEN[letter]).sum();
    let kinds = kinds(body);
    let [same, change] = CHANGE;
    let count = |count: usize| i32::try_from(count).unwrap_or_default();
    count(kinds.changes) * change + count(kinds.length - 1 - kinds.changes) * same - written
}
