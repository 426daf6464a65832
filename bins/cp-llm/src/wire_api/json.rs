//! JSON as providers send and take it.
//!
//! Servers escape text in pieces, so the two halves of one character (a surrogate pair) can arrive in two deltas.
//! Strict parsers refuse such JSON. [`parse`] accepts it, and [`TextBuffer`] keeps a half until the other one arrives;
//! a half that stays alone becomes U+FFFD.
//!
//! [`Body`] writes an object member by member and keeps the bytes of its values.

use std::collections::BTreeMap;

use cp_common::{Code, Error, Result, json};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Lone halves are parsed as characters of this private plane.
const PLANE: u32 = 0x10_0000;

/// Parsed JSON.
pub(crate) struct ParsedJson {
    pub value: Value,
    /// True if it has placeholders for lone halves.
    pub has_halves: bool,
}

/// Parses JSON that may have escapes of lone surrogates.
pub(crate) fn parse(bytes: &[u8]) -> Result<ParsedJson, serde_json::Error> {
    match placeholders(bytes) {
        None => Ok(ParsedJson { value: serde_json::from_slice(bytes)?, has_halves: false }),
        Some(patched) => Ok(ParsedJson { value: serde_json::from_slice(&patched)?, has_halves: true }),
    }
}

/// Parses JSON, with lone halves replaced by U+FFFD.
pub(crate) fn parse_lossy(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let ParsedJson { mut value, has_halves } = parse(bytes)?;
    if has_halves {
        settle(&mut value);
    }
    Ok(value)
}

/// Replaces the placeholders in a value by U+FFFD.
pub(super) fn settle(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = TextBuffer::of(text, true).finish();
        }
        Value::Array(values) => values.iter_mut().for_each(settle),
        Value::Object(members) => members.values_mut().for_each(settle),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces escapes of lone surrogates by placeholders; `None` if there are none.
fn placeholders(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut at, mut kept) = (0, 0);
    // JSON has backslashes only in strings, so escapes can be found without a parser.
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        at += found;
        match unit(&bytes[at..]) {
            Some(0xD800..=0xDBFF) if matches!(unit(&bytes[at + 6..]), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(half @ 0xD800..=0xDFFF) => {
                out.extend_from_slice(&bytes[kept..at]);
                let stand_in = char::from_u32(PLANE + half - 0xD800).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(stand_in.encode_utf8(&mut [0; 4]).as_bytes());
                at += 6;
                kept = at;
            }
            _ => at += 2,
        }
        if at >= bytes.len() {
            break;
        }
    }
    if kept == 0 {
        return None;
    }
    out.extend_from_slice(bytes.get(kept..).unwrap_or_default());
    Some(out)
}

/// The UTF-16 code unit of an escape at the start of `bytes`.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

/// Text that is assembled from deltas.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextBuffer {
    whole: String,
    half: Option<u32>,
}

impl TextBuffer {
    /// A text with a first piece.
    pub(super) fn of(piece: &str, has_halves: bool) -> Self {
        let mut text = Self::default();
        text.push(piece, has_halves);
        text
    }

    /// Appends a piece, and returns the complete characters that it added.
    pub(crate) fn push(&mut self, piece: &str, has_halves: bool) -> String {
        let from = self.whole.len();
        for char in piece.chars() {
            let unit = (u32::from(char)).wrapping_sub(PLANE);
            if has_halves && unit < 0x800 {
                self.push_half(0xD800 + unit);
            } else {
                self.flush_half();
                self.whole.push(char);
            }
        }
        self.whole[from..].to_owned()
    }

    fn push_half(&mut self, half: u32) {
        if half < 0xDC00 {
            self.flush_half();
            self.half = Some(half);
        } else {
            let char =
                self.half.take().and_then(|high| char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (half - 0xDC00)));
            self.whole.push(char.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn flush_half(&mut self) {
        if self.half.take().is_some() {
            self.whole.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// True if no text has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.half.is_none()
    }

    /// The text so far, without a pending half.
    pub(crate) fn as_str(&self) -> &str {
        &self.whole
    }

    /// The whole text. A pending half becomes U+FFFD.
    pub(crate) fn finish(mut self) -> String {
        self.flush_half();
        self.whole
    }
}

/// Writes a JSON object.
#[derive(Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
    names: Vec<String>,
}

impl Body {
    /// Sets a member, unless it is set.
    pub(super) fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        self.names.push(name.to_owned());
        let failed = |e: serde_json::Error| Error::validation(format!("{name}: {e}"));
        self.bytes.push(if self.bytes.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut self.bytes, name).map_err(failed)?;
        self.bytes.push(b':');
        serde_json::to_writer(&mut self.bytes, value).map_err(failed)
    }

    /// Sets a member if there is a value, unless it is set.
    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Serialize>) -> Result<()> {
        value.map_or(Ok(()), |value| self.set(name, &value))
    }

    /// The bytes of the object.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.bytes.is_empty() {
            self.bytes.push(b'{');
        }
        self.bytes.push(b'}');
        self.bytes
    }

    /// The object as a raw value.
    pub(super) fn into_raw(self) -> Result<Box<RawValue>> {
        serde_json::from_slice(&self.finish()).map_err(|e| Error::new(Code::Unknown, format!("encoding JSON: {e}")))
    }
}

/// The value at a JSON Pointer, in its own bytes and in one line, so that long integers keep their digits.
pub(crate) fn exact(bytes: &[u8], pointer: &str) -> Option<Box<RawValue>> {
    let mut here: &RawValue = serde_json::from_slice(bytes).ok()?;
    for name in pointer.split('/').skip(1) {
        here = match name.parse::<usize>() {
            Ok(at) => serde_json::from_str::<Vec<&RawValue>>(here.get()).ok()?.get(at)?,
            Err(_) => serde_json::from_str::<BTreeMap<String, &RawValue>>(here.get()).ok()?.get(name)?,
        };
    }
    let mut line = Vec::with_capacity(here.get().len());
    json::normalize(here.get().as_bytes(), &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

/// Makes an object of these members, with the raw bytes of one of them if given.
pub(super) fn object<'a>(
    members: impl IntoIterator<Item = (&'a String, &'a Value)>,
    spelt: Option<(&str, &RawValue)>,
) -> Result<Box<RawValue>> {
    let mut body = Body::default();
    for (name, value) in members {
        match spelt.filter(|(spelt, _)| spelt == name) {
            Some((name, bytes)) => body.set(name, bytes)?,
            None => body.set(name, value)?,
        }
    }
    body.into_raw()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(pieces: &[&str]) -> String {
        let mut text = TextBuffer::default();
        for piece in pieces {
            let loose = parse(piece.as_bytes()).unwrap();
            text.push(loose.value.as_str().unwrap(), loose.has_halves);
        }
        text.finish()
    }

    #[test]
    fn split_surrogate_pair_is_joined() {
        assert_eq!(joined([r#""a\ud83d""#, r#""\ude00b""#].as_slice()), "a\u{1F600}b");
        assert_eq!(joined([r#""\uD83D\uDE00""#].as_slice()), "\u{1F600}");
    }

    #[test]
    fn lone_surrogate_is_replaced() {
        assert_eq!(joined([r#""\ud83d""#, r#""x""#].as_slice()), "\u{FFFD}x");
        assert_eq!(joined([r#""\ude00\ud83d""#].as_slice()), "\u{FFFD}\u{FFFD}");
        assert_eq!(parse_lossy(br#"{"a":["\ud83d"]}"#).unwrap()["a"][0], "\u{FFFD}");
    }

    #[test]
    fn escaped_backslash_is_kept() {
        assert_eq!(joined([r#""\\ud83d""#].as_slice()), r"\ud83d");
        assert_eq!(joined(["\"\u{100000}\""].as_slice()), "\u{100000}");
    }

    proptest! {
        #[test]
        fn escaped_text_round_trips_at_any_split(text in "\\PC{0,24}", cut in any::<prop::sample::Index>()) {
            let units: Vec<u16> = text.encode_utf16().collect();
            let cut = cut.index(units.len() + 1);
            let piece = |units: &[u16]| {
                let escaped: Vec<String> = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
                format!("\"{}\"", escaped.concat())
            };
            prop_assert_eq!(joined(&[&piece(&units[..cut]), &piece(&units[cut..])]), text);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'u'), Just(b'd'), Just(b'8'), any::<u8>()], 0..60)) {
            let _ = parse(&bytes);
        }
    }
}
