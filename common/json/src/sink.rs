//! Where accepted bytes go: into a buffer, or into a proof that nothing needs to change.

use std::ops::Range;

use crate::spelling::escaped;

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
