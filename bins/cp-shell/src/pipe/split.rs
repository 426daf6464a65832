//! Splits a stream of JSON into its values, on a line each or over many lines.
//!
//! Invalid input is reported once. Reading continues at the next line that begins with `{`.

use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// The longest request, in bytes.
pub(super) const LONGEST: usize = 1 << 20;

const TOO_LONG: &str = "longer than 1 MiB";
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A value. The content of its strings and repeated member names are not checked.
    Value(Vec<u8>),
    /// Bytes that are not a value.
    Broken(Broken),
}

/// Bytes that are not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// The bytes before the error.
    pub(super) text: Vec<u8>,
    /// The line of the error in the input, from 1.
    pub(super) line: u64,
    pub(super) reason: String,
}

/// Splits a stream that arrives in blocks. Its memory is bounded by the size of a block and [`LONGEST`].
#[derive(Debug)]
pub(super) struct Splitter {
    /// The bytes of a value that is not complete.
    pending: Vec<u8>,
    /// The line on which they begin.
    line: u64,
    /// True while invalid input is skipped.
    is_skipping: bool,
    /// True until a byte order mark has been looked for.
    is_start: bool,
}

impl Splitter {
    pub(super) fn new() -> Self {
        Self { pending: Vec::new(), line: 1, is_skipping: false, is_start: true }
    }

    /// Adds a block of the stream.
    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut Vec<Piece>) {
        self.pending.extend_from_slice(bytes);
        self.split(false, found);
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self, found: &mut Vec<Piece>) {
        self.split(true, found);
    }

    fn split(&mut self, is_end: bool, found: &mut Vec<Piece>) {
        if self.is_start {
            if self.pending.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.pending) && !is_end {
                return;
            }
            self.is_start = false;
            if self.pending.starts_with(BYTE_ORDER_MARK) {
                self.pending.drain(..BYTE_ORDER_MARK.len());
            }
        }
        let bytes = std::mem::take(&mut self.pending);
        let mut rest = self.begin(&bytes);
        while !rest.is_empty() && !self.is_skipping {
            let mut values = Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
            let (parsed, length) = (values.next(), values.byte_offset());
            // A number or a word may continue in the next block.
            let has_ended = is_end || length < rest.len() || matches!(rest.last(), Some(b'}' | b']' | b'"'));
            let (end, fault) = match parsed {
                Some(Ok(_)) if length <= LONGEST && has_ended => (length, None),
                Some(Err(e)) if !e.is_eof() => match end_of_invalid(rest, &e, is_end) {
                    Some(end) if end <= LONGEST => (end, Some(e.to_string())),
                    None if rest.len() <= LONGEST => break,
                    _ => (LONGEST + 1, Some(TOO_LONG.to_owned())),
                },
                _ if rest.len() > LONGEST => (LONGEST + 1, Some(TOO_LONG.to_owned())),
                Some(Err(_)) if is_end => (rest.len(), Some("ends inside a value".to_owned())),
                _ => break,
            };
            let text = rest[..end].to_vec();
            self.line += line_feeds(&text);
            self.is_skipping = fault.is_some();
            found.push(match fault {
                Some(fault) => {
                    let reason = fault.rsplit_once(" at line ").map_or(&*fault, |(reason, _)| reason).to_owned();
                    Piece::Broken(Broken { text, line: self.line, reason })
                }
                None => Piece::Value(text),
            });
            rest = self.begin(&rest[end..]);
        }
        self.pending = rest.to_vec();
    }

    /// Consumes blanks, or the rest of invalid input up to the next line that begins with `{`.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let passed = if self.is_skipping {
            let line = bytes.windows(2).position(|pair| pair == b"\n{");
            self.is_skipping = line.is_none();
            // The next block may continue a line feed at the end with a `{`.
            line.map_or(bytes.len() - usize::from(bytes.ends_with(b"\n")), |at| at + 1)
        } else {
            bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count()
        };
        self.line += line_feeds(&bytes[..passed]);
        &bytes[passed..]
    }
}

fn line_feeds(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// The end of the line of an error, or of the line before if this line begins with `{`. `None` if the line has not
/// arrived whole.
fn end_of_invalid(bytes: &[u8], error: &serde_json::Error, is_end: bool) -> Option<usize> {
    // The column is 0 for a line feed, which ends the line before.
    let before = error.line() - 1 - usize::from(error.column() == 0);
    let start: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(before).map(<[u8]>::len).sum();
    if before > 0 && bytes[start] == b'{' {
        return Some(start - 1);
    }
    let end = bytes[start..].iter().position(|byte| *byte == b'\n').map(|length| start + length);
    end.or_else(|| is_end.then_some(bytes.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_in(text: &str, chunk: usize) -> Vec<String> {
        let (mut splitter, mut found) = (Splitter::new(), Vec::new());
        for bytes in text.as_bytes().chunks(chunk) {
            splitter.feed(bytes, &mut found);
        }
        splitter.finish(&mut found);
        let shown = |piece: &Piece| match piece {
            Piece::Value(value) => String::from_utf8_lossy(value).into_owned(),
            Piece::Broken(broken) => format!("! {} {}", broken.line, broken.reason),
        };
        found.iter().map(shown).collect()
    }

    #[test]
    fn splitter_reads_any_layout_and_reports_invalid_input_once() {
        let deep = format!("{}\n{{}}\n", "[".repeat(200));
        for (text, pieces) in [
            (
                "{\"a\":1}{\"b\":[2,{\"c\":\"}\\\"{\"}]}\n\n{\n  \"d\": null\n}",
                &["{\"a\":1}", "{\"b\":[2,{\"c\":\"}\\\"{\"}]}", "{\n  \"d\": null\n}"][..],
            ),
            ("\u{feff}{}\r\n[]", &["{}", "[]"]),
            ("1 \"x\"true{}", &["1", "\"x\"", "true", "{}"]),
            (" \n\t\r\n", &[]),
            ("nope and more nope\n{}\n", &["! 1 expected ident", "{}"]),
            ("{} nope {}\n{}\n", &["{}", "! 1 expected ident", "{}"]),
            ("{'a': 'b'}\n{}\n", &["! 1 key must be a string", "{}"]),
            ("{\"a\": 01}\n{}\n", &["! 1 invalid number", "{}"]),
            ("}\n{}\n", &["! 1 expected value", "{}"]),
            ("{\"a\n{}\n", &["! 1 control character (\\u0000-\\u001F) found while parsing a string", "{}"]),
            ("{\"a\": 1\n{\"b\":2}\n{\"c\":3}\n", &["! 1 expected `,` or `}`", "{\"b\":2}", "{\"c\":3}"]),
            ("{\"a\": [\n{\"b\":2}\n]}\n{}", &["{\"a\": [\n{\"b\":2}\n]}", "{}"]),
            ("{\n", &["! 2 ends inside a value"]),
            ("{\"a\":\"b", &["! 1 ends inside a value"]),
            ("{\n  \"a\": 1,\n  \"b\": oops,\n  \"c\": {\n  }\n}\n{}\n", &["! 3 expected value", "{}"]),
            (&deep, &["! 3 ends inside a value"]),
        ] {
            for chunk in [usize::MAX, 1, 3] {
                assert_eq!(split_in(text, chunk), pieces, "{text} in {chunk}");
            }
        }
        let text = format!("[\"{}\"]\n{{}}\n", "x".repeat(2 * LONGEST));
        assert_eq!(split_in(&text, 4096), ["! 1 longer than 1 MiB", "{}"]);
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<i32>().prop_map(|n| n.to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        ];
        let nested = leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(" ,\n"))),
                prop::collection::vec((any::<u8>(), inner), 0..4).prop_map(|members| {
                    let members: Vec<String> = members.iter().map(|(name, it)| format!("\"{name}\" : {it}")).collect();
                    format!("{{\r\n{}}}", members.join(",  "))
                }),
            ]
        });
        nested.prop_map(|value| format!("[{value}]"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn splitter_round_trips_values(
            values in prop::collection::vec(values(), 0..5),
            between in prop_oneof![Just(""), Just(" "), Just("\n"), Just("\r\n\n")],
            chunk in 1_usize..9,
        ) {
            let text: String = values.iter().map(|value| value.clone() + between).collect();
            prop_assert_eq!(split_in(&text, chunk), values);
        }

        #[test]
        fn splitter_reports_garbage_alike_in_any_chunks(
            garbage in "[\\[\\]{}\",:\\\\ a0\n-]{0,60}",
            chunk in 1_usize..9,
        ) {
            let text = format!("{garbage}\n{{\"last\":1}}\n{{\"last\":2}}\n");
            let whole = split_in(&text, usize::MAX);
            prop_assert_eq!(&split_in(&text, chunk), &whole);
            prop_assert!(text.trim().is_empty() || whole.last().is_some());
        }
    }
}
