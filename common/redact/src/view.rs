//! Decoded views of a text: percent-encoding, escapes and base64 decoded, and colours removed. Secrets are searched for
//! in a view too, and mapped back to the bytes of the text.
//!
//! A view contains only the lines with such an encoding, so an ordinary text costs one search for its signs.

use std::ops::Range;

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::Engine as _;
use memchr::{memchr2, memmem};

use crate::mark::string_end;
use crate::words::scan::{is_base64, run, slashes};

/// Maximum number of bytes that are searched for the ends of a line.
const REACH: usize = 8 << 10;
/// Minimum length of base64 that is decoded, and maximum length of a block; a longer run is several blocks.
const BLOCK: Range<usize> = 32..64 << 10;

/// A decoded text, in JSON like the text itself, and the bytes that each of its parts was decoded from.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) text: Vec<u8>,
    /// The offset of each part in the view, and its range in the text.
    parts: Vec<(usize, Range<usize>)>,
}

impl View {
    /// Returns the view of a text; `None` if no encoding occurs.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let mut view = Self::default();
        let mut from = 0;
        while let Some(at) = next_unit(text, from) {
            let line = line_around(text, at, from);
            view.decode_line(text, &line);
            from = line.end.max(at + 1);
        }
        let mut from = 0;
        while let Some(block) = next_block(text, from) {
            // Base64 in several blocks or lines is one text.
            if !matches!(&text[from..block.start], b"" | b"\\n") {
                view.push(b"\\n", from..from);
            }
            from = block.end;
            view.decode_block(text, block);
        }
        (!view.text.is_empty()).then_some(view)
    }

    /// Returns the bytes of the text from which this range of the view was decoded.
    pub(crate) fn origin(&self, at: &Range<usize>) -> Option<Range<usize>> {
        let part = |offset: usize| {
            let index = self.parts.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
            let (start, origin) = &self.parts[index];
            let next = self.parts.get(index + 1).map_or(self.text.len(), |(next, _)| *next);
            // A plain part has as many bytes as its origin.
            let plain = next - start == origin.len();
            Some(if plain { origin.start + offset - start..origin.start + offset - start + 1 } else { origin.clone() })
        };
        let (first, last) = (part(at.start)?, part(at.end.checked_sub(1)?)?);
        (first.start < last.end).then_some(first.start..last.end)
    }

    fn push(&mut self, decoded: &[u8], origin: Range<usize>) {
        if !decoded.is_empty() {
            self.parts.push((self.text.len(), origin));
            self.text.extend_from_slice(decoded);
        }
    }

    /// Adds a decoded byte, as JSON.
    fn push_byte(&mut self, byte: u8, origin: Range<usize>) {
        match byte {
            b'"' | b'\\' => self.push(&[b'\\', byte], origin),
            b'\n' => self.push(b"\\n", origin),
            b' '..=b'~' => self.push(&[byte], origin),
            _ => self.push(b" ", origin),
        }
    }

    fn decode_line(&mut self, text: &[u8], line: &Range<usize>) {
        let mut at = line.start;
        while at < line.end {
            let unit = next_unit(&text[..line.end], at).unwrap_or(line.end);
            self.push(&text[at..unit], at..unit);
            at = unit;
            if let Some((length, byte)) = unit_at(&text[..line.end], unit) {
                at += length;
                if let Some(byte) = byte {
                    self.push_byte(byte, unit..at);
                }
            }
        }
        self.push(b"\\n", line.end..line.end);
    }

    fn decode_block(&mut self, text: &[u8], block: Range<usize>) {
        let Some(decoded) = decode(&text[block.clone()]) else { return };
        for (index, group) in decoded.chunks(3).enumerate() {
            // Three bytes were decoded from four letters.
            let start = block.start + index * 4;
            for byte in group {
                self.push_byte(*byte, start..block.end.min(start + 4));
            }
        }
    }
}

/// Returns the offset of the next encoded unit.
fn next_unit(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr2(b'\\', b'%', text.get(at..)?)?;
        at += match text[at..] {
            // The most frequent escapes.
            [b'\\', b'n' | b'"' | b't', ..] => 2,
            _ if unit_at(text, at).is_some() => return Some(at),
            // All backslashes before a letter belong to it.
            _ => slashes(text, at).max(1),
        };
    }
}

/// Returns the length of the encoded unit here, and its byte; `None` as the byte if it colours text.
fn unit_at(text: &[u8], at: usize) -> Option<(usize, Option<u8>)> {
    let rest = text.get(at..)?;
    if let [b'%', high, low, ..] = rest {
        return Some((3, Some(printable(hexadecimal(&[*high, *low])?)?)));
    }
    let slashes = slashes(text, at);
    // The escape of the JSON itself has one backslash; then only a colour is encoded.
    let (length, byte) = match &rest[slashes..] {
        [b'u', b'0', b'0', high, low, ..] if slashes > 0 => (5, hexadecimal(&[*high, *low])?),
        [b'x', high, low, ..] if slashes > 1 => (3, hexadecimal(&[*high, *low])?),
        _ => return None,
    };
    let length = slashes + length;
    match byte {
        0x1b => Some((length + colour(&rest[length..])?, None)),
        _ if slashes > 1 => Some((length, Some(printable(byte)?))),
        _ => None,
    }
}

/// Returns the length of the colour of a terminal, after its escape character.
fn colour(rest: &[u8]) -> Option<usize> {
    let parameters = rest.strip_prefix(b"[")?.iter().take_while(|byte| matches!(byte, b'0'..=b';')).count();
    (rest.get(1 + parameters) == Some(&b'm')).then_some(parameters + 2)
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn printable(byte: u8) -> Option<u8> {
    matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t').then_some(byte)
}

/// Returns the line around an offset, within the string that contains it, and not before `from`.
fn line_around(text: &[u8], at: usize, from: usize) -> Range<usize> {
    let first = from.max(at.saturating_sub(REACH));
    let near = &text[first..at];
    let feed = memmem::rfind(near, b"\\n").map_or(0, |feed| feed + 2);
    let is_end = |quote: &usize| near[..*quote].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0;
    let quote = memchr::memrchr_iter(b'"', near).find(is_end).map_or(0, |quote| quote + 1);
    let rest = &text[at..text.len().min(at + REACH)];
    let is_feed = |feed: &usize| !text[..at + feed].ends_with(b"\\");
    let end = memmem::find_iter(rest, b"\\n").find(is_feed).unwrap_or(rest.len());
    let end = string_end(&rest[..end], 0).map_or(end, |after| after - 1);
    first + feed.max(quote)..at + end
}

/// Returns the next long run of base64 that decodes to text.
fn next_block(text: &[u8], from: usize) -> Option<Range<usize>> {
    let (mut at, mut floor) = (from, from);
    loop {
        // Each run of that length contains one of these offsets.
        at += BLOCK.start - 1;
        let byte = *text.get(at)?;
        if !is_base64(byte) {
            continue;
        }
        let before = text[floor.max(at.saturating_sub(BLOCK.end))..at].iter().rev();
        let mut start = at - before.take_while(|byte| is_base64(**byte)).count();
        // The letter of an escape, and the sign of an assignment.
        start += usize::from(start > 0 && text[start - 1] == b'\\');
        let sign = text[start..=at].iter().rposition(|byte| *byte == b'=').map_or(0, |sign| sign + 1);
        let start = start + sign;
        let end = start + run(&text[..text.len().min(start + BLOCK.end)], start, is_base64);
        if end - start >= BLOCK.start && decode(&text[start..start + 16]).is_some() {
            return Some(start..end);
        }
        at = at.max(end);
        floor = at;
    }
}

/// Decodes base64 in either alphabet; `None` if the result is not a text.
fn decode(block: &[u8]) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let is_url_safe = block.iter().any(|byte| matches!(byte, b'-' | b'_'));
    let alphabet = if is_url_safe { &URL_SAFE } else { &STANDARD };
    let decoded = GeneralPurpose::new(alphabet, config).decode(block).ok()?;
    let is_text = decoded.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x80..));
    (is_text && decoded.iter().filter(|byte| byte.is_ascii()).count() * 2 > decoded.len()).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(text: &str) -> String {
        View::of(text.as_bytes()).map_or_else(String::new, |view| String::from_utf8(view.text).unwrap())
    }

    #[test]
    fn view_contains_decoded_lines() {
        for (text, decoded) in [
            (r#""plain 100% = 5\n""#, ""),
            (r#""a\nb%20c\nd""#, r"b c\n"),
            (r#""\u001b[1mbold\u001b[0m""#, r"bold\n"),
            (r#"{"a":"1%3D2","b":"c"}"#, r"1=2\n"),
            (r#""say \"x\" %22y""#, r#"say \"x\" \"y\n"#),
            (r#""\\u003d\\x3d\\x1b[0;1m.""#, r"==.\n"),
            (r#""aGVsbG8sIHRoaXMgaXMgYSB0ZXh0IGluIGJhc2U2NA==""#, r"\nhello, this is a text in base64"),
        ] {
            assert_eq!(views(text), decoded, "{text}");
        }
    }

    #[test]
    fn origin_covers_encoded_bytes() {
        let text = br#""one %41%42c\u001b[1m d""#;
        let view = View::of(text).unwrap();
        let origin = |word: &str| {
            let start = memmem::find(&view.text, word.as_bytes()).unwrap();
            view.origin(&(start..start + word.len())).map(|at| std::str::from_utf8(&text[at]).unwrap())
        };
        assert_eq!(origin("AB"), Some("%41%42"));
        assert_eq!(origin("Bc"), Some("%42c"));
        assert_eq!(origin("c d"), Some(r"c\u001b[1m d"));
        assert_eq!(origin("one"), Some("one"));
    }
}
