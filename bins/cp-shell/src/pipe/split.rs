//! Splits a stream of JSON into its values, on a line each or over many lines.
//!
//! Invalid input is reported once. Reading continues on the next line after the open brackets have closed, or at a line that begins with
//! `{`.

use cp_common::json::MAX_DEPTH;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// The longest request, in bytes.
pub(super) const LONGEST: usize = 1 << 20;

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
    /// While invalid input is skipped: the number of open brackets.
    skipping: Option<usize>,
    /// True if the last byte that was skipped is a line feed.
    skipped_line: bool,
    /// True until a byte order mark has been looked for.
    is_start: bool,
}

/// The result of parsing the beginning of some bytes.
enum Parsed {
    /// So many bytes are a value.
    Value(usize),
    Incomplete,
    /// The bytes before this offset, or the byte at it, are invalid.
    Invalid(usize, String),
}

impl Splitter {
    pub(super) fn new() -> Self {
        Self { pending: Vec::new(), line: 1, skipping: None, skipped_line: false, is_start: true }
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
        let mut rest = bytes.as_slice();
        loop {
            rest = self.skip(rest);
            let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
            rest = self.advance(rest, blank);
            if rest.is_empty() {
                return;
            }
            rest = match parse(rest, is_end) {
                Parsed::Value(length) if length <= LONGEST => {
                    found.push(Piece::Value(rest[..length].to_vec()));
                    self.advance(rest, length)
                }
                Parsed::Incomplete if rest.len() <= LONGEST => {
                    self.pending = rest.to_vec();
                    return;
                }
                Parsed::Invalid(at, reason) if at <= LONGEST => self.fail(rest, at, reason, found),
                _ => self.fail(rest, LONGEST + 1, "longer than 1 MiB".to_owned(), found),
            };
        }
    }

    /// Consumes bytes.
    fn advance<'a>(&mut self, bytes: &'a [u8], length: usize) -> &'a [u8] {
        self.line += line_feeds(&bytes[..length]);
        &bytes[length..]
    }

    /// Reports an error at an offset. If its line begins with `{` and the value began on an earlier line, the line is parsed again.
    fn fail<'a>(&mut self, bytes: &'a [u8], at: usize, reason: String, found: &mut Vec<Piece>) -> &'a [u8] {
        let (text, line) = (&bytes[..at], self.line + line_feeds(&bytes[..at]));
        let start = text.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        let start = start.filter(|start| bytes.get(*start) == Some(&b'{'));
        if start.is_none() {
            (self.skipping, self.skipped_line) = (Some(brackets(text).0), false);
        }
        let end = start.unwrap_or(at);
        found.push(Piece::Broken(Broken { text: bytes[..end].to_vec(), line, reason }));
        self.advance(bytes, end)
    }

    /// Skips the rest of invalid input.
    fn skip<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(mut open) = self.skipping.take() else { return bytes };
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'{' if self.skipped_line => return self.advance(bytes, at),
                b'\n' if open == 0 => return self.advance(bytes, at + 1),
                b'{' | b'[' => open += 1,
                b'}' | b']' => open = open.saturating_sub(1),
                _ => {}
            }
            self.skipped_line = *byte == b'\n';
        }
        self.skipping = Some(open);
        self.advance(bytes, bytes.len())
    }
}

fn line_feeds(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Parses the first value. Its first byte is not blank.
fn parse(bytes: &[u8], is_end: bool) -> Parsed {
    let mut values = Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    let parsed = values.next();
    let length = if matches!(parsed, Some(Ok(_))) { values.byte_offset() } else { bytes.len() };
    match parsed {
        Some(Err(e)) if !e.is_eof() => {
            // The column of the invalid byte counts from 1; it is 0 for a line feed that ends the line before.
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(e.line().saturating_sub(1));
            let at = (lines.map(<[u8]>::len).sum::<usize>() + e.column()).saturating_sub(1);
            // A word that is invalid is part of the error; it may continue in the next block.
            let end = at + bytes[at..].iter().take_while(|byte| !b" \t\r\n,:\"{}[]".contains(byte)).count();
            if end == bytes.len() && !is_end {
                return Parsed::Incomplete;
            }
            let message = e.to_string();
            let reason = message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason);
            Parsed::Invalid(end, reason.to_owned())
        }
        parsed => match (brackets(&bytes[..length]).1, parsed) {
            (Some(at), _) => Parsed::Invalid(at, "nested too deep".to_owned()),
            // A number or a word may continue in the next block.
            (None, Some(Ok(_)))
                if is_end || length < bytes.len() || matches!(bytes[length - 1], b'}' | b']' | b'"') =>
            {
                Parsed::Value(length)
            }
            (None, Some(Err(_))) if is_end => Parsed::Invalid(length, "ends inside a value".to_owned()),
            (None, _) => Parsed::Incomplete,
        },
    }
}

/// Returns the number of brackets that are open at the end, and the offset of the first one that is nested too deep.
fn brackets(bytes: &[u8]) -> (usize, Option<usize>) {
    let (mut open, mut too_deep, mut is_string, mut is_escaped) = (0_usize, None, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'{' | b'[' if !is_string => {
                open += 1;
                if open > MAX_DEPTH && too_deep.is_none() {
                    too_deep = Some(at);
                }
            }
            b'}' | b']' if !is_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    (open, too_deep)
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

    fn split(text: &str) -> Vec<String> {
        let whole = split_in(text, usize::MAX);
        assert_eq!(split_in(text, 1), whole, "{text}");
        assert_eq!(split_in(text, 3), whole, "{text}");
        whole
    }

    #[test]
    fn splitter_accepts_any_layout() {
        assert_eq!(
            split("{\"a\":1}{\"b\":[2,{\"c\":\"}\\\"{\"}]}\n\n{\n  \"d\": null\n}"),
            ["{\"a\":1}", "{\"b\":[2,{\"c\":\"}\\\"{\"}]}", "{\n  \"d\": null\n}"]
        );
        assert_eq!(split("\u{feff}{}\r\n[]"), ["{}", "[]"]);
        assert_eq!(split("1 \"x\"true{}"), ["1", "\"x\"", "true", "{}"]);
        assert_eq!(split(" \n\t\r\n"), Vec::<String>::new());
    }

    #[test]
    fn splitter_returns_value_at_its_last_byte() {
        let (mut splitter, mut found) = (Splitter::new(), Vec::new());
        splitter.feed(b"{\"a\":1}", &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn splitter_reports_invalid_input_once() {
        assert_eq!(split("nope\n{}\n"), ["! 1 expected ident", "{}"]);
        assert_eq!(split("nope and more nope\n  {}\n"), ["! 1 expected ident", "{}"]);
        assert_eq!(split("{} nope {}\n[]\n"), ["{}", "! 1 expected ident", "[]"]);
        assert_eq!(split("{'a': 'b'}\n {}\n"), ["! 1 key must be a string", "{}"]);
        assert_eq!(split("{\"a\": b}\n{}\n"), ["! 1 expected value", "{}"]);
        assert_eq!(split("{\"a\": 01}\n{}\n"), ["! 1 invalid number", "{}"]);
        assert_eq!(split("}\n{}\n"), ["! 1 expected value", "{}"]);
        assert_eq!(split("{\"a\n{}\n"), ["! 1 control character (\\u0000-\\u001F) found while parsing a string", "{}"]);
    }

    #[test]
    fn splitter_resumes_after_unclosed_value() {
        assert_eq!(split("{\"a\": 1\n{\"b\":2}\n{\"c\":3}\n"), ["! 2 expected `,` or `}`", "{\"b\":2}", "{\"c\":3}"]);
        assert_eq!(split("{\"a\": [\n{\"b\":2}\n]}\n{}"), ["{\"a\": [\n{\"b\":2}\n]}", "{}"]);
        assert_eq!(split("{\n"), ["! 2 ends inside a value"]);
        assert_eq!(split("{\"a\":\"b"), ["! 1 ends inside a value"]);
    }

    #[test]
    fn splitter_reports_multi_line_value_once() {
        assert_eq!(split("{\n  \"a\": 1,\n  \"b\": oops,\n  \"c\": {\n  }\n}\n[]\n"), ["! 3 expected value", "[]"]);
        assert_eq!(split("{\n\"a\": oops,\n\"b\": 2\n}\n{}\n"), ["! 2 expected value", "{}"]);
    }

    #[test]
    fn splitter_limits_length_and_depth() {
        let text = format!("[\"{}\"]\n{{}}\n", "x".repeat(2 * LONGEST));
        assert_eq!(split_in(&text, 4096), ["! 1 longer than 1 MiB", "{}"]);
        let deep = format!("{}\n{{}}\n", "[".repeat(MAX_DEPTH + 1));
        assert_eq!(split(&deep), ["! 1 nested too deep", "{}"]);
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
