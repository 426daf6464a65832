//! The scanner: one pass over the bytes of one value, which go into a buffer.

use std::collections::HashSet;
use std::ops::Range;

use crate::{MAX_DEPTH, Normal};

use crate::spelling::{escaped, hex4, plain_run, short_escape};
use std::fmt;

pub(crate) fn scan(input: &[u8], out: &mut Vec<u8>) -> Result<Normal, Fault> {
    if let Err(e) = std::str::from_utf8(input) {
        return Err(Fault { offset: e.valid_up_to(), reason: Reason::Utf8 });
    }
    let mut scanner = Scanner { input, at: 0, out, names: Vec::new(), replaced: 0 };
    scanner.value(MAX_DEPTH)?;
    scanner.space();
    if scanner.at < input.len() {
        return Err(scanner.fault(Reason::Follow));
    }
    Ok(Normal { replaced: scanner.replaced })
}

struct Scanner<'a> {
    input: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
    /// The member names of all open objects, as ranges of the output.
    names: Vec<Range<usize>>,
    replaced: u32,
}

impl Scanner<'_> {
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
        self.out.extend_from_slice(&self.input[self.at..self.at + count]);
        self.at += count;
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        self.space();
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
        self.space();
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
        self.space();
        if self.peek() == Some(b'}') {
            self.keep(1);
            return Ok(());
        }
        let mut names = Names { base: self.names.len(), seen: 0, many: None };
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fault(Reason::Name));
            }
            let (offset, start) = (self.at, self.out.len());
            self.string()?;
            let name = start + 1..self.out.len() - 1;
            if !names.insert(name, &mut self.names, self.out) {
                return Err(Fault { offset, reason: Reason::Duplicate });
            }
            self.space();
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
        self.space();
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
        match character {
            '"' | '\\' | '\0'..='\x1f' => escaped(character as u8, self.out),
            _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
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
struct Names {
    base: usize,
    /// One bit for each (length, last byte) met, so that most new names need no comparison.
    seen: u64,
    many: Option<HashSet<Box<[u8]>>>,
}

impl Names {
    /// Adds a name; false if it was there.
    fn insert(&mut self, name: Range<usize>, all: &mut Vec<Range<usize>>, out: &[u8]) -> bool {
        let text = &out[name.clone()];
        if let Some(many) = &mut self.many {
            return many.insert(text.into());
        }
        let last = text.last().copied().unwrap_or(0);
        let bit = 1_u64 << ((usize::from(last) ^ (text.len() << 2)) & 63);
        let open = &all[self.base..];
        if self.seen & bit != 0 && open.iter().any(|other| &out[other.clone()] == text) {
            return false;
        }
        self.seen |= bit;
        if open.len() == MANY_MEMBERS {
            let mut many: HashSet<Box<[u8]>> = open.iter().map(|other| out[other.clone()].into()).collect();
            many.insert(text.into());
            self.many = Some(many);
        } else {
            all.push(name);
        }
        true
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
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for Fault {}
