//! The scanner: one pass over the bytes of one value, which go into a buffer, or into a proof that nothing needs to
//! change.

use std::collections::HashSet;
use std::ops::Range;

use crate::Normal;

use crate::spelling::{escaped, hex4, plain_run, short_escape};
use std::fmt;

pub(crate) fn scan<S: Sink>(input: &[u8], sink: &mut S, depth: usize) -> Result<Normal, Fault> {
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

#[inline]
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

/// From this many members on, an object's names are kept in a hash set.
const MANY_MEMBERS: usize = 24;

/// The member names of one object.
pub(crate) struct Names {
    pub(crate) base: usize,
    /// One bit for each (length, last byte) met, so that most new names need no comparison.
    pub(crate) seen: u64,
    pub(crate) many: Option<HashSet<Box<[u8]>>>,
}

impl Names {
    /// Adds a name; false if it was there.
    pub(crate) fn insert<S: Sink>(&mut self, name: Range<usize>, all: &mut Vec<Range<usize>>, sink: &S) -> bool {
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

/// Where accepted bytes go. Two kinds come: a buffer, and a proof that nothing needs to change.
pub(crate) trait Sink {
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

pub(crate) struct Written<'a> {
    pub(crate) out: &'a mut Vec<u8>,
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

pub(crate) struct Unchanged<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) at: usize,
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

/// Why some bytes are not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset of the first byte that is wrong.
    pub offset: usize,
    /// The description of the fault.
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
    /// JSON, but not in normal form. Only [`crate::is_normal`] sees it.
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
