//! The scanner: one pass over the bytes of one value, which go into a buffer.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use crate::MAX_DEPTH;
use crate::spelling::{escaped, plain, plain_run};

/// Appends the normal form of the one JSON value in `input` to `out`, and returns how many lone surrogates became U+FFFD.
///
/// On a fault `out` is as long as it was before.
// Not inlined: the scanner must be compiled with this crate, which is built for speed, not with its callers.
#[inline(never)]
pub fn normalize(input: &[u8], out: &mut Vec<u8>) -> Result<u32, Fault> {
    if let Err(e) = std::str::from_utf8(input) {
        return Err(Fault { offset: e.valid_up_to(), reason: "not UTF-8" });
    }
    let start = out.len();
    let mut scanner = Scanner { input, at: 0, out, names: Vec::new(), replaced: 0 };
    let result = scanner.whole();
    if result.is_err() {
        scanner.out.truncate(start);
    }
    result.map(|()| scanner.replaced)
}

/// Why some bytes are not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset of the first byte that is wrong.
    pub offset: usize,
    /// The description of the fault.
    pub reason: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

/// The input ends inside a value.
pub(crate) const END: &str = "ends inside a value";
/// A value is followed by something that does not belong there.
pub(crate) const FOLLOW: &str = "unexpected bytes after a value";

struct Scanner<'a> {
    input: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
    /// The member names of all open objects, as ranges of the output.
    names: Vec<Range<usize>>,
    /// Lone surrogates that became U+FFFD.
    replaced: u32,
}

impl Scanner<'_> {
    fn fault(&self, reason: &'static str) -> Fault {
        // Whatever was expected, at the end of the input that is what is wrong.
        Fault { offset: self.at, reason: if self.at >= self.input.len() { END } else { reason } }
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

    fn whole(&mut self) -> Result<(), Fault> {
        self.value(MAX_DEPTH)?;
        self.space();
        if self.at < self.input.len() { Err(self.fault(FOLLOW)) } else { Ok(()) }
    }

    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'{' | b'[') if depth == 0 => Err(self.fault("nested too deep")),
            Some(b'{') => self.elements(b'}', depth - 1),
            Some(b'[') => self.elements(b']', depth - 1),
            _ => {
                let rest = &self.input[self.at..];
                let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
                self.keep(word.ok_or_else(|| self.fault("expected a value"))?.len());
                Ok(())
            }
        }
    }

    /// The elements of an array or the members of an object, up to the bracket that closes it.
    fn elements(&mut self, bracket: u8, depth: usize) -> Result<(), Fault> {
        self.keep(1);
        self.space();
        if self.peek() == Some(bracket) {
            self.keep(1);
            return Ok(());
        }
        let mut names = Names { base: self.names.len(), seen: 0, many: None };
        loop {
            if bracket == b'}' {
                self.name(&mut names)?;
            }
            self.value(depth)?;
            self.space();
            match self.peek() {
                Some(b',') => self.keep(1),
                Some(byte) if byte == bracket => {
                    self.keep(1);
                    self.names.truncate(names.base);
                    return Ok(());
                }
                _ => return Err(self.fault(FOLLOW)),
            }
        }
    }

    fn name(&mut self, names: &mut Names) -> Result<(), Fault> {
        self.space();
        if self.peek() != Some(b'"') {
            return Err(self.fault("expected a member name in quotes"));
        }
        let (offset, start) = (self.at, self.out.len());
        self.string()?;
        let name = start + 1..self.out.len() - 1;
        if !names.insert(name, &mut self.names, self.out) {
            return Err(Fault { offset, reason: "duplicate member name" });
        }
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault("expected a colon after the member name"));
        }
        self.keep(1);
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let rest = &self.input[self.at..];
        let sign = usize::from(rest[0] == b'-');
        let whole = digits(&rest[sign..]);
        let mut end = sign + whole;
        let mut good = whole == 1 || (whole > 1 && rest[sign] != b'0');
        for marks in [&b"."[..], b"eE"] {
            if good && rest.get(end).is_some_and(|mark| marks.contains(mark)) {
                end += 1;
                end += usize::from(marks.len() > 1 && matches!(rest.get(end), Some(b'+' | b'-')));
                let more = digits(&rest[end..]);
                good = more > 0;
                end += more;
            }
        }
        if !good {
            let offset = self.at + end;
            let reason = if offset == self.input.len() && whole < 2 { END } else { "not a JSON number" };
            return Err(Fault { offset, reason });
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
                Some(_) => return Err(Fault { offset: end, reason: "control character in a string" }),
                None => return Err(Fault { offset: opening, reason: END }),
            }
        }
    }

    /// An escape; both halves of a pair of surrogates at once.
    fn escape(&mut self) -> Result<(), Fault> {
        let rest = &self.input[self.at..];
        let bad = Fault { offset: self.at, reason: "unknown escape" };
        let unit = |at: usize| {
            let digits = rest.get(at..at + 6)?.strip_prefix(b"\\u")?;
            let unit = digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))?;
            u16::try_from(unit).ok()
        };
        let (length, character) = if rest.get(1) == Some(&b'u') {
            let character = char::decode_utf16([unit(0).ok_or(bad)?].into_iter().chain(unit(6))).next();
            let character = character.and_then(Result::ok);
            self.replaced = self.replaced.saturating_add(u32::from(character.is_none()));
            character.map_or((6, char::REPLACEMENT_CHARACTER), |character| (6 * character.len_utf16(), character))
        } else {
            let letter = rest.get(1).ok_or(Fault { offset: self.input.len(), reason: END })?;
            (2, char::from(plain(*letter).ok_or(bad)?))
        };
        match character {
            '"' | '\\' | '\0'..='\x1f' => escaped(character as u8, self.out),
            _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        self.at += length;
        Ok(())
    }
}

#[inline]
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

/// The member names of one object.
struct Names {
    base: usize,
    /// One bit for each (length, last byte) met, so that most new names need no comparison.
    seen: u64,
    /// All names of an object with many members.
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
        if open.len() == 24 {
            self.many = Some(open.iter().chain([&name]).map(|name| out[name.clone()].into()).collect());
        } else {
            all.push(name);
        }
        true
    }
}
