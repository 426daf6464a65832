//! One stored line: how it is composed, and how its parts are found by counting from its end.
//!
//! Nothing here parses JSON. A nested object may hold `"prev"` and `"hash"` too, so those are never searched for.

use std::fmt;
use std::ops::Range;

use cp_common::{Error, Result};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// The longest line that is written without moving a value into a blob.
pub const LINE_LIMIT: usize = 1 << 20;
/// The longest line that is read. A longer one is damage.
pub const HARD_LIMIT: usize = 16 << 20;
/// The highest sequence number: what every JSON reader holds exactly.
pub const MAX_SEQ: u64 = (1 << 53) - 1;

/// The length of `,"prev":"sha256:…"`.
const PREV_LEN: usize = 81;
/// The length of `,"hash":"sha256:…"}`.
const TAIL_LEN: usize = 82;
/// The length of a time, `YYYY-MM-DDTHH:MM:SS.ffffffZ`.
const TS_LEN: usize = 27;
/// The most bytes that a line adds to its body.
pub const FRAME: usize = 32 + TS_LEN + PREV_LEN + TAIL_LEN;

const SEQ: &[u8] = b"{\"seq\":";
const TS: &[u8] = b",\"ts\":\"";
const PREV: &[u8] = b",\"prev\":\"sha256:";
const HASH: &[u8] = b",\"hash\":\"sha256:";

/// A SHA-256 as its 64 lower-case hex digits, which is how lines carry it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 64]);

/// The digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let (digits, mut pairs, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

impl Hash {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_raw(&Sha256::digest(bytes).into())
    }

    /// The `prev` of line 0: the hash of the names of the format and of the ledger.
    pub fn of_origin(origin: &str) -> Self {
        Self::of(format!("cp-ledger/1\n{origin}\n").as_bytes())
    }

    /// The hash with these 32 bytes.
    pub fn from_raw(raw: &[u8; 32]) -> Self {
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(raw) {
            *pair = PAIRS[usize::from(*byte)];
        }
        Self(digits)
    }

    /// The hash written as 64 lower-case hex digits, with or without `sha256:` before them.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix("sha256:").unwrap_or(text).as_bytes())
    }

    /// The hash written as these 64 lower-case hex digits.
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        let text: [u8; 64] = digits.try_into().ok()?;
        text.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(text))
    }

    /// The 32 bytes.
    pub fn raw(&self) -> [u8; 32] {
        let mut raw = [0; 32];
        // Every constructor put hex digits here.
        let _ = base16ct::lower::decode(self.0, &mut raw);
        raw
    }

    /// The 64 digits.
    pub fn hex(&self) -> &str {
        // Every constructor put hex digits here.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A line that has the shape of a stored line: its bytes, without the line feed.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    bytes: &'a [u8],
    seq: u64,
    /// Where the members between `ts` and `prev` start.
    body: usize,
}

impl<'a> Line<'a> {
    /// Reads the shape of a line; `None` if it is not one of ours.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (seq, rest) = claimed_seq(bytes)?;
        let ts = rest.strip_prefix(TS)?;
        if !is_time(ts.get(..TS_LEN)?) || ts.get(TS_LEN) != Some(&b'"') {
            return None;
        }
        let body = bytes.len() - ts.len() + TS_LEN + 1;
        let end = bytes.len().checked_sub(PREV_LEN + TAIL_LEN)?;
        let (prev, tail) = bytes.get(end..)?.split_at(PREV_LEN);
        let shaped = body <= end
            && bytes[body] == b','
            && prev.starts_with(PREV)
            && prev[PREV_LEN - 1] == b'"'
            && tail.starts_with(HASH)
            && tail.ends_with(b"\"}")
            && is_hex(&prev[16..80])
            && is_hex(&tail[16..80]);
        shaped.then_some(Self { bytes, seq, body })
    }

    /// True if bytes are a stored line, also a damaged one: their beginning or their end has its shape.
    pub fn is_claimed(bytes: &[u8]) -> bool {
        let ts = claimed_seq(bytes).and_then(|(_, rest)| rest.strip_prefix(TS)?.get(..TS_LEN));
        let end = bytes.len().checked_sub(TAIL_LEN).map(|at| &bytes[at..]);
        ts.is_some_and(is_time) || end.is_some_and(|end| end.starts_with(HASH))
    }

    /// True if a file whose only line is not whole is what a crash left of a new ledger.
    pub fn is_torn_creation(bytes: &[u8]) -> bool {
        const START: &[u8] = b"{\"seq\":0,\"ts\":\"";
        START.starts_with(&bytes[..bytes.len().min(START.len())]) || bytes.iter().all(|byte| *byte == 0)
    }

    /// The bytes, without the line feed.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The place in the order.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The writer's clock, as text.
    pub fn ts(&self) -> &'a str {
        std::str::from_utf8(&self.bytes[self.body - 1 - TS_LEN..self.body - 1]).unwrap_or_default()
    }

    /// The members between `ts` and `prev`, each with its comma before it.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body..self.bytes.len() - TAIL_LEN - PREV_LEN]
    }

    /// The 64 digits of `prev`.
    pub fn prev_hex(&self) -> &'a [u8] {
        let k = self.bytes.len();
        &self.bytes[k - 147..k - 83]
    }

    /// The 64 digits of `hash`.
    pub fn hash_hex(&self) -> &'a [u8] {
        let k = self.bytes.len();
        &self.bytes[k - 66..k - 2]
    }

    /// The hash that the line says the line before it has.
    pub fn prev(&self) -> Hash {
        Hash(self.prev_hex().try_into().unwrap_or([b'0'; 64]))
    }

    /// The hash that the line says it has.
    pub fn hash(&self) -> Hash {
        Hash(self.hash_hex().try_into().unwrap_or([b'0'; 64]))
    }

    /// The bytes that the hash is over.
    pub fn hashed(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - TAIL_LEN]
    }

    /// True if the hash is that of the bytes.
    pub fn is_intact(&self) -> bool {
        Hash::of(self.hashed()).0 == self.hash_hex()
    }

    /// True if the line's event is `event`, which must not need escapes.
    pub fn is_event(&self, event: &str) -> bool {
        let rest = self.body().strip_prefix(b",\"event\":\"");
        rest.and_then(|rest| rest.strip_prefix(event.as_bytes())).is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// The value of a member between `ts` and `prev`, as JSON.
    pub fn member(&self, name: &str) -> Option<&'a [u8]> {
        member(self.body(), name)
    }

    /// The value of a member of the line's data, as JSON.
    pub fn data_member(&self, name: &str) -> Option<&'a [u8]> {
        member(inside(self.member("data")?)?, name)
    }
}

/// The value of a member of an object, given as the text between its braces in normal form.
pub fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(object).find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
}

/// Appends one whole line, line feed included, and returns its hash.
pub fn compose(seq: u64, ts: &str, body: &[u8], prev: &Hash, out: &mut Vec<u8>) -> Result<Hash> {
    if seq > MAX_SEQ {
        return Err(Error::validation("the ledger is full: no sequence number is left").fatal());
    }
    let start = out.len();
    out.extend_from_slice(SEQ);
    decimal(seq, out);
    out.extend_from_slice(TS);
    out.extend_from_slice(ts.as_bytes());
    out.push(b'"');
    out.extend_from_slice(body);
    out.extend_from_slice(PREV);
    out.extend_from_slice(&prev.0);
    out.push(b'"');
    let hash = Hash::of(&out[start..]);
    out.extend_from_slice(HASH);
    out.extend_from_slice(&hash.0);
    out.extend_from_slice(b"\"}\n");
    Ok(hash)
}

/// The number that a line begins with, whatever comes after it, and what does.
pub fn claimed_seq(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(SEQ)?;
    let digits = rest.iter().take(17).position(|byte| !byte.is_ascii_digit())?;
    if digits == 0 || digits > 16 || (digits > 1 && rest[0] == b'0') {
        return None;
    }
    let seq = rest[..digits].iter().fold(0, |seq, digit| seq * 10 + u64::from(digit - b'0'));
    (seq <= MAX_SEQ).then_some((seq, &rest[digits..]))
}

/// Appends a number in decimal.
pub fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        // A remainder of ten fits a byte.
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// True if a text is a time as lines have it.
pub fn is_time(text: &[u8]) -> bool {
    const FORM: &[u8; TS_LEN] = b"0000-00-00T00:00:00.000000Z";
    text.len() == TS_LEN
        && text.iter().zip(FORM).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
}

/// Which bytes are lower-case hex digits. A table, because every line needs 128 look-ups.
static IS_HEX: [bool; 256] = {
    let mut table = [false; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = true;
        digit += 1;
    }
    table
};

fn is_hex(digits: &[u8]) -> bool {
    // No early exit: a branch for each digit would cost more than looking at the rest.
    digits.iter().fold(true, |all, digit| all & IS_HEX[usize::from(*digit)])
}

/// The members of an object in normal form, given as its text between the braces, with or without a comma before it.
pub fn members(text: &[u8]) -> Members<'_> {
    Members { text, at: 0 }
}

/// The top-level members of an object in normal form: the name as spelt between its quotes, and the value's text.
///
/// On other bytes it ends early.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut at = self.at;
        if self.text.get(at) == Some(&b',') {
            at += 1;
        }
        let name = string_at(self.text, at)?;
        at = name.end;
        if self.text.get(at) != Some(&b':') {
            return None;
        }
        let value = value_at(self.text, at + 1)?;
        self.at = value.end;
        Some((&self.text[name.start + 1..name.end - 1], &self.text[value]))
    }
}

/// The text between the braces of an object; `None` for any other value.
pub fn inside(object: &[u8]) -> Option<&[u8]> {
    object.strip_prefix(b"{")?.strip_suffix(b"}")
}

fn string_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    if text.get(start) != Some(&b'"') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(start..at + 1);
        }
        at += 2;
    }
}

/// Where the value is that starts there; `None` if none does.
pub(crate) fn value_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    let mut depth = 0_u32;
    let mut at = start;
    loop {
        match text.get(at) {
            Some(b'"') => at = string_at(text, at)?.end,
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
                continue;
            }
            Some(b'}' | b']') if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            Some(b',' | b'}' | b']') | None if depth == 0 => return (at > start).then_some(start..at),
            None => return None,
            Some(_) => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(start..at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T03:00:00.000001Z";

    fn line(seq: u64, body: &str) -> Vec<u8> {
        let mut out = Vec::new();
        compose(seq, NOW, body.as_bytes(), &Hash::of(b"before"), &mut out).unwrap();
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_composed_line_has_its_parts_where_they_belong() {
        let bytes = line(7, r#","event":"e","data":{"a":[1,"}"],"b":{}}"#);
        let line = Line::parse(&bytes).unwrap();
        assert_eq!((line.seq(), line.ts()), (7, NOW));
        assert_eq!(line.prev(), Hash::of(b"before"));
        assert!(line.is_intact() && line.is_event("e") && !line.is_event("ee"));
        assert_eq!(line.member("data"), Some(&br#"{"a":[1,"}"],"b":{}}"#[..]));
        assert_eq!(line.member("prev"), None);
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
    }

    #[test]
    fn a_line_without_members_is_a_line() {
        let bytes = line(0, "");
        assert!(Line::parse(&bytes).unwrap().is_intact());
    }

    #[test]
    fn parts_are_counted_from_the_end_and_not_searched() {
        let inner = String::from_utf8(line(3, r#","event":"inner""#)).unwrap();
        let bytes = line(4, &format!(r#","event":"outer","data":{inner}"#));
        let line = Line::parse(&bytes).unwrap();
        assert!(line.is_intact());
        assert_eq!(line.seq(), 4);
        assert_eq!(line.member("data"), Some(inner.as_bytes()));
    }

    #[test]
    fn no_prefix_of_a_line_is_a_line() {
        let bytes = line(12, r#","event":"e""#);
        for end in 0..bytes.len() {
            assert!(Line::parse(&bytes[..end]).is_none());
        }
    }

    #[test]
    fn numbers_have_one_spelling() {
        for (seq, good) in
            [("0", true), ("01", false), ("", false), ("9007199254740991", true), ("9007199254740992", false)]
        {
            let text = String::from_utf8(line(5, "")).unwrap().replacen("\"seq\":5", &format!("\"seq\":{seq}"), 1);
            assert_eq!(Line::parse(text.as_bytes()).is_some(), good, "{seq}");
        }
        assert!(compose(MAX_SEQ + 1, NOW, b"", &Hash::of(b""), &mut Vec::new()).is_err());
        let mut out = Vec::new();
        decimal(u64::MAX, &mut out);
        assert_eq!(out, u64::MAX.to_string().as_bytes());
    }

    #[test]
    fn a_hash_is_the_same_in_all_its_forms() {
        let hash = Hash::of(b"");
        assert_eq!(hash.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        assert_eq!(Hash::from_raw(&hash.raw()), hash);
        assert_eq!(Hash::parse("sha256:E3"), None);
    }

    #[test]
    fn members_stop_at_invalid_bytes() {
        for text in ["", ",", "\"a\"", "\"a\":", "\"a\":\"x", "\"a\":[1", "x"] {
            assert_eq!(members(text.as_bytes()).count(), 0, "{text}");
        }
        let found: Vec<_> = members(br#""a":-1e5,"b\"":"x,\"","c":null"#).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], (&br#"b\""#[..], &br#""x,\"""#[..]));
    }
}
