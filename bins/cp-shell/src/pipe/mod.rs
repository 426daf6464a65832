//! Pipe mode: requests on standard input, and one answer on each line. A request is recorded in the ledgers before it
//! is answered. The stream is split into its values, on a line each or over many lines.

pub(crate) mod responder;

use std::time::Duration;

use cp_common::output::{Format, printable, to_stderr};
use cp_common::stream::lines::Lines;
use cp_common::{Code, Context, Error, Result, signals};
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use self::responder::{EXAMPLE, Session};
use crate::journal::{self, Journal};
use crate::plane::{Failure, Plane, fault};

/// The maximum number of bytes of answers that wait for the next commit.
const WAITING: usize = 128 << 10;

/// Answers the requests on standard input about the tree, as `agent`.
pub(crate) fn run(agent: Option<&str>, context: &mut Context) -> Result<()> {
    // Every answer must be recorded, so signals only interrupt the waits.
    let _effect = signals::effect();
    let plane = Plane::of_context(context)?;
    let agent = context.agent(agent);
    let joined = journal::joined(false, context)?;
    let journal = Journal::open(joined.as_ref(), &agent, context)?;
    let session = Session::new(&plane, journal, context)?;
    let mut pipe = Pipe { plane, session, answers: Vec::new(), asked: 0, failed: false };
    let mut outcome = pipe.answer_all(context);
    if let Err(error) = &outcome
        && error.code() == Code::Interrupted
    {
        // Requests that were completed before the signal are answered.
        outcome = pipe.flush(context).and(outcome);
    }
    let ended = pipe.session.journal.end(context);
    outcome.and(ended)
}

struct Pipe {
    plane: Plane,
    session: Session,
    /// Answers that wait until their turns are recorded.
    answers: Vec<u8>,
    asked: u64,
    failed: bool,
}

impl Pipe {
    fn answer_all(&mut self, context: &mut Context) -> Result<()> {
        let (mut splitter, mut pieces) = (Splitter::new(), Vec::new());
        let (mut input, mut block) = (Lines::new(rustix::stdio::stdin()), Vec::new());
        loop {
            let Some(read) = input.some(&mut block, Duration::ZERO)? else {
                // Answers are flushed before a wait.
                self.flush(context)?;
                signals::wait_readable(rustix::stdio::stdin(), None)?;
                continue;
            };
            if read == 0 {
                splitter.finish(&mut pieces);
            } else {
                splitter.feed(&block, &mut pieces);
            }
            block.clear();
            for piece in pieces.drain(..) {
                signals::check()?;
                self.answer(piece, context)?;
            }
            if read == 0 {
                break;
            }
        }
        if self.asked == 0 {
            let error = fault("EMPTY_INPUT", "no request was given").hint(EXAMPLE);
            self.answer(Piece { text: Vec::new(), error: Some(error) }, context)?;
        }
        self.flush(context)?;
        context.out.ended_with(u8::from(self.failed));
        Ok(())
    }

    fn answer(&mut self, piece: Piece, context: &mut Context) -> Result<()> {
        self.asked += 1;
        let response = self.respond(piece)?;
        if let Some(error) = &response.error {
            self.failed = true;
            warn(self.asked, error, context.out.format());
        }
        let line = match (context.out.format(), &response.result) {
            (Format::Json, _) => serde_json::to_vec(&response).ok(),
            (Format::Text, Some(result)) => Some(printable(&format!("{result:#}")).into_owned().into_bytes()),
            (Format::Raw, Some(result)) => Some(result.to_string().into_bytes()),
            (_, None) => None,
        };
        if let Some(line) = line {
            self.answers.extend(line);
            self.answers.push(b'\n');
        }
        if self.answers.len() >= WAITING { self.flush(context) } else { Ok(()) }
    }

    /// Records the answered requests, and writes the answers.
    fn flush(&mut self, context: &mut Context) -> Result<()> {
        self.session.journal.commit()?;
        context.out.raw(&self.answers)?;
        self.answers.clear();
        context.out.flush()
    }
}

/// Reports a failed request on standard error.
fn warn(request: u64, error: &Failure, format: Format) {
    let hint = error.details.get("hint").and_then(Value::as_str).filter(|_| format != Format::Json);
    let hint = hint.map(|hint| format!("  Hint: {hint}\n")).unwrap_or_default();
    let words = match format {
        Format::Json => format!("cp-shell: request {request}: {}: {}\n", error.code, error.message),
        Format::Text | Format::Raw => format!("✗ {}: {}\n{hint}", error.code, error.message),
    };
    to_stderr(&words);
}

/// The longest request, in bytes.
const LONGEST: usize = 1 << 20;

const TOO_LONG: &str = "the request is longer than 1 MiB";
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A piece of the stream.
struct Piece {
    /// A value, or the bytes before an error. The content of strings and repeated member names are not checked.
    text: Vec<u8>,
    /// The error, with its line in the input, from 1.
    error: Option<Error>,
}

/// Splits a stream that arrives in blocks. Its memory is bounded by the size of a block and [`LONGEST`].
#[derive(Debug)]
struct Splitter {
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
    fn new() -> Self {
        Self { pending: Vec::new(), line: 1, is_skipping: false, is_start: true }
    }

    /// Adds a block of the stream.
    fn feed(&mut self, bytes: &[u8], found: &mut Vec<Piece>) {
        self.pending.extend_from_slice(bytes);
        self.split(false, found);
    }

    /// Ends the stream.
    fn finish(&mut self, found: &mut Vec<Piece>) {
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
            let (end, wrong) = match parsed {
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
            self.is_skipping = wrong.is_some();
            let error = wrong.map(|reason| {
                let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason);
                let code = if reason == TOO_LONG { "INVALID_REQUEST" } else { "INVALID_JSON" };
                fault(code, format!("line {}: {reason}", self.line)).with("line", self.line).hint(EXAMPLE)
            });
            found.push(Piece { text, error });
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
        let shown = |piece: &Piece| {
            let text = || String::from_utf8_lossy(&piece.text).into_owned();
            piece.error.as_ref().map_or_else(text, ToString::to_string)
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
            ("nope and more nope\n{}\n", &["line 1: expected ident", "{}"]),
            ("{} nope {}\n{}\n", &["{}", "line 1: expected ident", "{}"]),
            ("{'a': 'b'}\n{}\n", &["line 1: key must be a string", "{}"]),
            ("{\"a\": 01}\n{}\n", &["line 1: invalid number", "{}"]),
            ("}\n{}\n", &["line 1: expected value", "{}"]),
            ("{\"a\n{}\n", &["line 1: control character (\\u0000-\\u001F) found while parsing a string", "{}"]),
            ("{\"a\": 1\n{\"b\":2}\n{\"c\":3}\n", &["line 1: expected `,` or `}`", "{\"b\":2}", "{\"c\":3}"]),
            ("{\"a\": [\n{\"b\":2}\n]}\n{}", &["{\"a\": [\n{\"b\":2}\n]}", "{}"]),
            ("{\n", &["line 2: ends inside a value"]),
            ("{\"a\":\"b", &["line 1: ends inside a value"]),
            ("{\n  \"a\": 1,\n  \"b\": oops,\n  \"c\": {\n  }\n}\n{}\n", &["line 3: expected value", "{}"]),
            (&deep, &["line 3: ends inside a value"]),
        ] {
            for chunk in [usize::MAX, 1, 3] {
                assert_eq!(split_in(text, chunk), pieces, "{text} in {chunk}");
            }
        }
        let text = format!("[\"{}\"]\n{{}}\n", "x".repeat(2 * LONGEST));
        assert_eq!(split_in(&text, 4096), ["line 1: the request is longer than 1 MiB", "{}"]);
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
