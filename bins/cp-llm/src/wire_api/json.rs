//! JSON as providers send and take it.
//!
//! [`Body`] writes an object member by member and keeps the bytes of its values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cp_common::{Code, Error, Result, json};
use serde::Serialize;
use serde_json::value::RawValue;

/// Replaces the escapes of halves of characters (lone surrogates), which strict parsers refuse, by U+FFFD.
///
/// Servers escape text in pieces, so the two halves of one character can arrive in two deltas. In a stream, `held` is
/// the half at the end of an earlier piece, or 0: it is left out there, and the whole character is where the other half
/// arrives.
pub(crate) fn mended<'a>(bytes: &'a [u8], held: Option<&mut u32>) -> Cow<'a, [u8]> {
    let before = held.as_deref().copied().unwrap_or(0);
    let (mut out, mut at, mut kept, mut last) = (Vec::new(), 0, 0, before);
    // JSON has backslashes only in strings, so escapes can be found without a parser.
    while let Some(found) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        let half = match unit(&bytes[at..]) {
            Some(0xD800..=0xDBFF) if matches!(unit(&bytes[at + 6..]), Some(0xDC00..=0xDFFF)) => {
                at += 12;
                continue;
            }
            Some(half @ 0xD800..=0xDFFF) => half,
            _ => {
                at += 2;
                continue;
            }
        };
        out.extend_from_slice(&bytes[kept..at]);
        let (is_first, is_last) = (bytes[..at].ends_with(b"\""), bytes[at + 6..].starts_with(b"\""));
        at += 6;
        kept = at;
        if half < 0xDC00 && is_last && held.is_some() {
            last = half;
            continue;
        }
        let is_other = half >= 0xDC00 && is_first && before > 0;
        let whole = is_other.then(|| char::from_u32(0x1_0000 + ((before - 0xD800) << 10) + (half - 0xDC00))).flatten();
        out.extend_from_slice(whole.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut [0; 4]).as_bytes());
        if is_other && last == before {
            last = 0;
        }
    }
    if let Some(held) = held {
        *held = last;
    }
    if kept == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[kept..]);
    Cow::Owned(out)
}

/// The UTF-16 code unit of an escape at the start of `bytes`.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(pieces: &[&str]) -> String {
        let mut held = 0;
        let mut text = |piece: &&str| serde_json::from_slice::<String>(&mended(piece.as_bytes(), Some(&mut held)));
        pieces.iter().map(|piece| text(piece).unwrap()).collect()
    }

    #[test]
    fn halves_of_characters_are_joined_or_replaced() {
        for (pieces, text) in [
            (&[r#""a\ud83d""#, r#""\ude00b""#][..], "a\u{1F600}b"),
            (&[r#""a\ud83d""#, r#""""#, r#""\ude00\ud83d""#, r#""\ude01""#], "a\u{1F600}\u{1F601}"),
            (&[r#""\uD83D\uDE00""#], "\u{1F600}"),
            (&[r#""\ud83d""#, r#""x""#], "x"),
            (&[r#""\ud83dx""#, r#""\ude00""#], "\u{FFFD}x\u{FFFD}"),
            (&[r#""\\ud83d""#], r"\ud83d"),
            (&["\"\u{100000}\""], "\u{100000}"),
        ] {
            assert_eq!(joined(pieces), text, "{pieces:?}");
        }
        assert_eq!(&*mended(br#"["\ud83d"]"#, None), "[\"\u{FFFD}\"]".as_bytes());
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
            let _ = mended(&bytes, None);
            let _ = mended(&bytes, Some(&mut 0xD83D));
        }
    }
}
