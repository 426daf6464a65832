//! Strict JSON in one pass: check it, or write it in the one spelling that is hashed and searched.
//!
//! The normal form is compact, has one spelling for every string, keeps the text of numbers and the order of members,
//! and never holds the same member name twice in one object. It builds no tree: bytes in, bytes out.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// How deep objects and arrays may nest.
pub const MAX_DEPTH: usize = 64;

/// From this many members on, an object's names are kept in a hash set.
const MANY_MEMBERS: usize = 24;

/// What a successful [`normalize`] did beyond spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Normal {
    /// Lone surrogates that became U+FFFD.
    pub replaced: u32,
}

/// Why some bytes are not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset of the first byte that is wrong.
    pub offset: usize,
    /// What is wrong with it.
    pub reason: Reason,
}

/// A kind of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The input ends inside a value.
    End,
    /// No value starts here.
    Value,
    /// A value is followed by something that does not belong there.
    Follow,
    /// An object's member does not start with a string.
    Name,
    /// A member name is not followed by a colon.
    Colon,
    /// A number that JSON does not know, such as `01` or `1.`.
    Number,
    /// A backslash before a character that needs none.
    Escape,
    /// A control character inside a string.
    Control,
    /// Not UTF-8.
    Utf8,
    /// A member name that the object already has.
    Duplicate,
    /// Nested too deep.
    Depth,
    /// JSON, but not in normal form. Only [`is_normal`] sees it.
    Spelling,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "ends inside a value",
            Self::Value => "expected a value",
            Self::Follow => "unexpected bytes after a value",
            Self::Name => "expected a member name in quotes",
            Self::Colon => "expected a colon after the member name",
            Self::Number => "not a JSON number",
            Self::Escape => "unknown escape",
            Self::Control => "control character in a string",
            Self::Utf8 => "not UTF-8",
            Self::Duplicate => "duplicate member name",
            Self::Depth => "nested too deep",
            Self::Spelling => "not in normal form",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for Fault {}

/// Appends the normal form of the one JSON value in `input` to `out`.
///
/// On a fault `out` is as long as it was before.
pub fn normalize(input: &[u8], out: &mut Vec<u8>) -> Result<Normal, Fault> {
    normalize_within(input, out, MAX_DEPTH)
}

/// Like [`normalize`], with another limit on the depth.
// Not inlined: the scanner behind it must be compiled with this crate, which is built for speed, not with its callers.
#[inline(never)]
pub fn normalize_within(input: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<Normal, Fault> {
    let start = out.len();
    let result = scan(input, &mut Written { out: &mut *out }, depth);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Whether `input` is one strict JSON value, in any spelling.
pub fn check(input: &[u8]) -> Result<(), Fault> {
    // Most of what is checked was written by one of us, and this needs no copy.
    if is_normal(input) {
        return Ok(());
    }
    normalize(input, &mut Vec::with_capacity(input.len())).map(|_| ())
}

/// Whether `input` is one strict JSON value in normal form.
// Not inlined: the scanner behind it must be compiled with this crate, which is built for speed, not with its callers.
#[inline(never)]
pub fn is_normal(input: &[u8]) -> bool {
    scan(input, &mut Unchanged { input, at: 0 }, MAX_DEPTH).is_ok()
}

/// Appends `text` to `out` as a JSON string in normal form, quotes included.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let run = plain_run(&bytes[at..]);
        out.extend_from_slice(&bytes[at..at + run]);
        at += run;
        match bytes.get(at) {
            Some(&byte) => escaped(byte, out),
            None => break,
        }
        at += 1;
    }
    out.push(b'"');
}

/// The text of the JSON string whose quoted spelling is `quoted`; `None` if it is no JSON string.
pub fn unquote(quoted: &[u8]) -> Option<String> {
    serde_json::from_slice(quoted).ok()
}

/// Where accepted bytes go. Two kinds come: a buffer, and a proof that nothing needs to change.
trait Sink {
    /// Takes bytes that the scanner accepted as they stand.
    fn keep(&mut self, bytes: &[u8]);
    /// Skips input that the normal form leaves out; false if that is not allowed.
    fn skip(&mut self) -> bool;
    /// Takes one character that came as the escape `spelt`; false if the normal form spells it otherwise.
    fn respell(&mut self, spelt: &[u8], character: char) -> bool;
    /// How many bytes were taken.
    fn len(&self) -> usize;
    /// Bytes that were taken before.
    fn taken(&self, range: Range<usize>) -> &[u8];
}

struct Written<'a> {
    out: &'a mut Vec<u8>,
}

impl Sink for Written<'_> {
    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    fn skip(&mut self) -> bool {
        true
    }

    fn respell(&mut self, _spelt: &[u8], character: char) -> bool {
        match character {
            '"' | '\\' | '\0'..='\x1f' => escaped(character as u8, self.out),
            _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        true
    }

    #[inline]
    fn len(&self) -> usize {
        self.out.len()
    }

    #[inline]
    fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.out[range]
    }
}

struct Unchanged<'a> {
    input: &'a [u8],
    at: usize,
}

impl Sink for Unchanged<'_> {
    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        self.at += bytes.len();
    }

    #[inline]
    fn skip(&mut self) -> bool {
        false
    }

    fn respell(&mut self, spelt: &[u8], character: char) -> bool {
        self.at += spelt.len();
        match character {
            '"' | '\\' | '\x08' | '\x0c' | '\n' | '\r' | '\t' => spelt.len() == 2,
            '\0'..='\x1f' => spelt[2..].iter().all(|digit| !digit.is_ascii_uppercase()),
            _ => false,
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.at
    }

    #[inline]
    fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.input[range]
    }
}

fn scan<S: Sink>(input: &[u8], sink: &mut S, depth: usize) -> Result<Normal, Fault> {
    if let Err(e) = std::str::from_utf8(input) {
        return Err(Fault { offset: e.valid_up_to(), reason: Reason::Utf8 });
    }
    let mut scanner = Scanner { input, at: 0, sink, names: Vec::new(), replaced: 0 };
    scanner.value(depth)?;
    scanner.space()?;
    if scanner.at < input.len() {
        return Err(scanner.fault(Reason::Follow));
    }
    Ok(Normal { replaced: scanner.replaced })
}

struct Scanner<'a, S> {
    input: &'a [u8],
    at: usize,
    sink: &'a mut S,
    /// The member names of all open objects, as ranges of what the sink took.
    names: Vec<Range<usize>>,
    replaced: u32,
}

impl<S: Sink> Scanner<'_, S> {
    fn fault(&self, reason: Reason) -> Fault {
        // Whatever was expected, at the end of the input that is what is wrong.
        let reason = if self.at >= self.input.len() { Reason::End } else { reason };
        Fault { offset: self.at, reason }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    #[inline]
    fn keep(&mut self, count: usize) {
        self.sink.keep(&self.input[self.at..self.at + count]);
        self.at += count;
    }

    #[inline]
    fn space(&mut self) -> Result<(), Fault> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            if !self.sink.skip() {
                return Err(self.fault(Reason::Spelling));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        self.space()?;
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'{') if depth > 0 => self.object(depth - 1),
            Some(b'[') if depth > 0 => self.array(depth - 1),
            Some(b'{' | b'[') => Err(self.fault(Reason::Depth)),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.fault(Reason::Value)),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.input[self.at..].starts_with(word) {
            return Err(self.fault(Reason::Value));
        }
        self.keep(word.len());
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Fault> {
        self.keep(1);
        self.space()?;
        if self.peek() == Some(b']') {
            self.keep(1);
            return Ok(());
        }
        loop {
            self.value(depth)?;
            if self.closes(b']')? {
                return Ok(());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Fault> {
        self.keep(1);
        self.space()?;
        if self.peek() == Some(b'}') {
            self.keep(1);
            return Ok(());
        }
        let mut names = Names { base: self.names.len(), seen: 0, many: None };
        loop {
            self.space()?;
            if self.peek() != Some(b'"') {
                return Err(self.fault(Reason::Name));
            }
            let (offset, start) = (self.at, self.sink.len());
            self.string()?;
            let name = start + 1..self.sink.len() - 1;
            if !names.insert(name, &mut self.names, self.sink) {
                return Err(Fault { offset, reason: Reason::Duplicate });
            }
            self.space()?;
            if self.peek() != Some(b':') {
                return Err(self.fault(Reason::Colon));
            }
            self.keep(1);
            self.value(depth)?;
            if self.closes(b'}')? {
                self.names.truncate(names.base);
                return Ok(());
            }
        }
    }

    /// Passes the closing bracket, or the comma before the next element.
    #[inline]
    fn closes(&mut self, bracket: u8) -> Result<bool, Fault> {
        self.space()?;
        match self.peek() {
            Some(b',') => {
                self.keep(1);
                Ok(false)
            }
            Some(byte) if byte == bracket => {
                self.keep(1);
                Ok(true)
            }
            _ => Err(self.fault(Reason::Follow)),
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        let rest = &self.input[self.at..];
        let sign = usize::from(rest[0] == b'-');
        let mut end = sign + digits(&rest[sign..]);
        let whole = end - sign;
        let mut good = whole == 1 || (whole > 1 && rest[sign] != b'0');
        if good && rest.get(end) == Some(&b'.') {
            let fraction = digits(&rest[end + 1..]);
            good = fraction > 0;
            end += 1 + fraction;
        }
        if good && matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = rest.get(end + 1 + sign..).map_or(0, digits);
            good = exponent > 0;
            end += 1 + sign + exponent;
        }
        if !good {
            let at = self.at + end.min(rest.len());
            let reason = if at == self.input.len() && whole < 2 { Reason::End } else { Reason::Number };
            return Err(Fault { offset: at, reason });
        }
        self.keep(end);
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        let opening = self.at;
        let mut end = self.at + 1;
        loop {
            end += plain_run(&self.input[end..]);
            match self.input.get(end) {
                Some(b'"') => {
                    self.keep(end + 1 - self.at);
                    return Ok(());
                }
                Some(b'\\') => {
                    self.keep(end - self.at);
                    self.escape()?;
                    end = self.at;
                }
                Some(_) => return Err(Fault { offset: end, reason: Reason::Control }),
                None => return Err(Fault { offset: opening, reason: Reason::End }),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let rest = &self.input[self.at..];
        let (length, character) = match rest.get(1) {
            Some(b'u') => self.unicode(rest)?,
            Some(&byte) => (2, short_escape(byte).ok_or(Fault { offset: self.at, reason: Reason::Escape })?),
            None => return Err(Fault { offset: self.input.len(), reason: Reason::End }),
        };
        if !self.sink.respell(&rest[..length], character) {
            return Err(self.fault(Reason::Spelling));
        }
        self.at += length;
        Ok(())
    }

    /// The length and the character of a `\u` escape, both halves of a pair at once.
    fn unicode(&mut self, rest: &[u8]) -> Result<(usize, char), Fault> {
        let bad = Fault { offset: self.at, reason: Reason::Escape };
        let unit = hex4(rest.get(2..6)).ok_or(bad)?;
        if let Some(character) = char::from_u32(unit) {
            return Ok((6, character));
        }
        if unit < 0xdc00
            && rest.get(6..8) == Some(b"\\u")
            && let Some(low @ 0xdc00..=0xdfff) = hex4(rest.get(8..12))
        {
            let pair = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            return Ok((12, char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
        self.replaced = self.replaced.saturating_add(1);
        Ok((6, char::REPLACEMENT_CHARACTER))
    }
}

/// The member names of one object.
struct Names {
    base: usize,
    /// One bit for each (length, last byte) met, so that most new names need no comparison.
    seen: u64,
    many: Option<HashSet<Box<[u8]>>>,
}

impl Names {
    /// Adds a name; false if it was there.
    fn insert<S: Sink>(&mut self, name: Range<usize>, all: &mut Vec<Range<usize>>, sink: &S) -> bool {
        let text = sink.taken(name.clone());
        if let Some(many) = &mut self.many {
            return many.insert(text.into());
        }
        let last = text.last().copied().unwrap_or(0);
        let bit = 1_u64 << ((usize::from(last) ^ (text.len() << 2)) & 63);
        let open = &all[self.base..];
        if self.seen & bit != 0 && open.iter().any(|other| sink.taken(other.clone()) == text) {
            return false;
        }
        self.seen |= bit;
        if open.len() == MANY_MEMBERS {
            let mut many: HashSet<Box<[u8]>> = open.iter().map(|other| sink.taken(other.clone()).into()).collect();
            many.insert(text.into());
            self.many = Some(many);
        } else {
            all.push(name);
        }
        true
    }
}

/// How many bytes from the start may stand in a string as they are.
#[inline]
fn plain_run(bytes: &[u8]) -> usize {
    // Most strings are short, and a call with its own start-up would cost more than they do.
    let mut at = 0;
    for word in bytes.chunks_exact(8).take(4) {
        let stops = stops_in(word);
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    if bytes.len() - at >= 32 {
        let length = memchr::memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
        let run = &bytes[at..at + length];
        return at + first_control(run).unwrap_or(length);
    }
    at + bytes[at..].iter().position(|&byte| is_stop(byte)).unwrap_or(bytes.len() - at)
}

/// A word of ones, and a word of highest bits: arithmetic on eight bytes at once.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

#[inline]
fn is_stop(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Marks the bytes of a word that end a run, by their highest bit; the lowest mark is exact.
#[inline]
fn stops_in(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    let word = u64::from_le_bytes(bytes);
    let zero_in = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
    let quote = zero_in(word ^ (ONES * 0x22));
    let backslash = zero_in(word ^ (ONES * 0x5c));
    quote | backslash | controls_in(word)
}

/// Marks the bytes of a word that are below 0x20, by their highest bit; the lowest mark is exact.
#[inline]
fn controls_in(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGH
}

fn first_control(run: &[u8]) -> Option<usize> {
    // By words and by hand: what a compiler makes vector code of depends on how the whole program is built.
    let (words, rest) = run.as_chunks::<8>();
    let any = words.iter().fold(0, |any, word| any | controls_in(u64::from_le_bytes(*word)));
    if any == 0 && rest.iter().all(|&byte| byte >= 0x20) {
        return None;
    }
    run.iter().position(|&byte| byte < 0x20)
}

#[inline]
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
}

fn short_escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'"' | b'\\' | b'/' => char::from(byte),
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => return None,
    })
}

fn escaped(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(input: &str) -> String {
        let mut out = Vec::new();
        normalize(input.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn fault(input: &[u8]) -> (usize, Reason) {
        let mut out = b"kept".to_vec();
        let fault = normalize(input, &mut out).unwrap_err();
        assert_eq!(out, b"kept", "a fault leaves the output alone");
        assert_eq!(check(input), Err(fault));
        (fault.offset, fault.reason)
    }

    #[test]
    fn space_goes_and_order_and_numbers_stay() {
        assert_eq!(normal(" { \"b\" : [ 1 , 1e2,1.50 ,-0 ] ,\t\"a\":null}\r\n"), r#"{"b":[1,1e2,1.50,-0],"a":null}"#);
        let long = "123456789012345678901234567890";
        assert_eq!(normal(long), long);
        assert_eq!(normal("[]"), "[]");
        assert_eq!(normal("{ }"), "{}");
    }

    #[test]
    fn every_spelling_of_a_string_becomes_one() {
        assert_eq!(normal(r#""\u00e9\/\u0041\u0022\u005c\u000a\u001F""#), "\"é/A\\\"\\\\\\n\\u001f\"");
        assert_eq!(normal(r#""\ud83d\ude00""#), "\"😀\"");
        assert_eq!(normal(r#""\b\f\n\r\t\"\\""#), r#""\b\f\n\r\t\"\\""#);
        assert_eq!(normal("\"\x7f\""), "\"\x7f\"");
    }

    #[test]
    fn lone_surrogates_are_replaced_and_counted() {
        let mut out = Vec::new();
        let done = normalize(br#"["\ud800","\udc00x","\ud800\u0041","\ud83d\ude00"]"#, &mut out).unwrap();
        assert_eq!(done.replaced, 3);
        assert_eq!(out, "[\"\u{fffd}\",\"\u{fffd}x\",\"\u{fffd}A\",\"😀\"]".as_bytes());
    }

    #[test]
    fn faults_name_the_place_and_the_reason() {
        for (input, offset, reason) in [
            ("", 0, Reason::End),
            ("  ", 2, Reason::End),
            ("{\"a\":1", 6, Reason::End),
            ("[1 2]", 3, Reason::Follow),
            ("1 1", 2, Reason::Follow),
            ("{a:1}", 1, Reason::Name),
            ("{\"a\" 1}", 5, Reason::Colon),
            ("[1,]", 3, Reason::Value),
            ("{\"a\":1,}", 7, Reason::Name),
            ("01", 2, Reason::Number),
            ("-x", 1, Reason::Number),
            ("1.x", 2, Reason::Number),
            ("\"a\nb\"", 2, Reason::Control),
            ("\"ab", 0, Reason::End),
            (r#""\x""#, 1, Reason::Escape),
            (r#""\u12g4""#, 1, Reason::Escape),
            ("tru", 0, Reason::Value),
            ("\u{feff}1", 0, Reason::Value),
            ("{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", 18, Reason::Duplicate),
            (r#"{"a":1,"\u0061":2}"#, 7, Reason::Duplicate),
        ] {
            assert_eq!(fault(input.as_bytes()), (offset, reason), "{input}");
        }
        assert_eq!(fault(b"[\"a\xff\"]"), (3, Reason::Utf8));
    }

    #[test]
    fn depth_has_a_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(normal(&nested(64)), nested(64));
        assert_eq!(fault(nested(65).as_bytes()), (64, Reason::Depth));
        assert!(normalize_within(nested(100).as_bytes(), &mut Vec::new(), 100).is_ok());
    }

    #[test]
    fn big_objects_find_their_duplicates_too() {
        let members = |names: &[usize]| {
            let members: Vec<_> = names.iter().map(|name| format!("\"name{name}\":{name}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let names: Vec<_> = (0..1000).collect();
        assert_eq!(normal(&members(&names)), members(&names));
        for again in [0, 23, 24, 25, 999] {
            let mut names = names.clone();
            names.push(again);
            assert_eq!(fault(members(&names).as_bytes()).1, Reason::Duplicate, "{again}");
        }
        // Names of a closed object do not count for its siblings.
        assert_eq!(normal(r#"[{"a":1},{"a":{"a":1}}]"#), r#"[{"a":1},{"a":{"a":1}}]"#);
    }

    #[test]
    fn only_the_normal_form_is_normal() {
        for good in ["{}", r#"{"a":[1,true,"x\n\u0001é"],"b":null}"#, "1e5", "\"\x7f\""] {
            assert!(is_normal(good.as_bytes()), "{good}");
        }
        for bad in
            [" 1", "1\n", r#""\/""#, r#""\u0041""#, r#""\u000a""#, r#""\u001F""#, r#"{"a": 1}"#, r#""\ud83d\ude00""#]
        {
            assert!(!is_normal(bad.as_bytes()), "{bad}");
            assert_eq!(check(bad.as_bytes()), Ok(()), "{bad}");
        }
    }

    #[test]
    fn stops_are_found_at_every_place_of_a_run() {
        for length in 0..150 {
            for stop in [b'"', b'\\', 0x1f, 0x00] {
                let mut bytes = vec![b'x'; length];
                bytes.push(stop);
                bytes.extend_from_slice(&[b' ', 0x80, 0xff, b'!', b'#', b'[', b']']);
                assert_eq!(plain_run(&bytes), length);
            }
            assert_eq!(plain_run(&vec![0xa2; length]), length);
        }
    }

    /// Any JSON value, as `serde_json` builds it.
    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,80}".prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::btree_map(".{0,12}", inner, 0..40)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_value_is_kept_whatever_the_spelling(value in values()) {
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                let once = normal(&text);
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&once).unwrap(), &value);
                prop_assert!(is_normal(once.as_bytes()));
                prop_assert_eq!(normal(&once), once);
            }
        }

        #[test]
        fn what_is_accepted_is_what_others_accept(text in r#"[\[\]{}":,\\ua01e.\- \n"]{0,24}"#) {
            let mut out = Vec::new();
            if normalize(text.as_bytes(), &mut out).is_ok() {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok(), "{}", text);
                prop_assert!(is_normal(&out));
            }
            prop_assert_eq!(is_normal(text.as_bytes()), out == text.as_bytes() && !out.is_empty());
        }

        #[test]
        fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = normalize(&bytes, &mut Vec::new());
            let _ = check(&bytes);
        }

        #[test]
        fn a_quoted_string_reads_back(text in any::<String>()) {
            let mut out = Vec::new();
            string(&text, &mut out);
            prop_assert!(is_normal(&out));
            prop_assert_eq!(unquote(&out), Some(text));
        }
    }
}
