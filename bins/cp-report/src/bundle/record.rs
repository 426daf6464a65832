//! The records of a bundle, read one at a time. What they prove is left to the page.

use std::path::Path;

use cp_common::wire::bundle::{BLOB, BUNDLE, Blob, Head, LEDGER, LINE, Ledger, Line, VERSION};
use cp_common::{Code, Error, Result, signals};
use cp_ledger::read::End;
use cp_ledger::read::source::lines_of;
use serde::Deserialize;

/// A record.
pub(crate) enum Record<'a> {
    Head(Head),
    Ledger(Ledger),
    Line(Line<'a>),
    Blob(Blob<'a>),
}

/// What the page keeps to prove a line, as JSON; none in a ledger that is whole.
pub(crate) fn proof(line: &Line<'_>) -> Option<String> {
    let next = serde_json::to_string(&line.next).unwrap_or_default();
    line.proof.as_ref().map(|proof| format!("{{\"proof\":{proof},\"next\":{next}}}"))
}

/// What every record begins with: they are written in one spelling.
const START: &[u8] = b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"";
const DATA: &[u8] = b",\"data\":";

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    error: Said<'a>,
}

#[derive(Deserialize)]
struct Said<'a> {
    code: &'a str,
    message: String,
}

fn no_bundle() -> Error {
    Error::validation("this is not a bundle").hint("make one: cp-log bundle --run RUN | cp-report >page.html").fatal()
}

/// Passes each record of a bundle, in order.
pub(crate) fn each(file: &Path, pass: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let mut lines = lines_of(file)?;
    let (mut number, mut is_closed) = (0_u64, false);
    while let Some(line) = lines.next()? {
        signals::check()?;
        number += 1;
        let fault = |error: Error| error.at_line(number).in_file(file).fatal();
        if line.end == End::Limit || is_closed {
            return Err(fault(no_bundle()));
        }
        let Some((kind, data)) = parts(line.bytes) else {
            return Err(fault(upstream(line.bytes).unwrap_or_else(no_bundle)));
        };
        if (number == 1) != (kind == BUNDLE) {
            return Err(fault(no_bundle()));
        }
        let wrong = |e: serde_json::Error| fault(Error::validation(format!("not a record of a bundle: {e}")));
        match kind {
            BUNDLE => {
                let head: Head = read(data).map_err(wrong)?;
                if head.version != VERSION {
                    let message = format!("version {} of bundles is not known", head.version);
                    return Err(fault(Error::validation(message).hint("use a newer cp-report")));
                }
                pass(Record::Head(head))?;
            }
            LEDGER => pass(Record::Ledger(read(data).map_err(wrong)?))?,
            LINE => pass(Record::Line(read(data).map_err(wrong)?))?,
            BLOB => pass(Record::Blob(read(data).map_err(wrong)?))?,
            "summary" => is_closed = true,
            _ => return Err(fault(no_bundle())),
        }
    }
    match (number, is_closed) {
        (0, _) => Err(no_bundle()),
        (_, false) => Err(Error::io("the bundle ends without its closing line", std::io::ErrorKind::UnexpectedEof)
            .in_file(file)
            .hint("make it again: what wrote it was stopped")
            .fatal()),
        (_, true) => Ok(()),
    }
}

/// The type of a record and where its data begins.
fn parts(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(START)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, rest[end + 1..].strip_prefix(DATA)?))
}

/// Reads the data; what closes the record stands behind it.
fn read<'a, T: Deserialize<'a>>(data: &'a [u8]) -> serde_json::Result<T> {
    T::deserialize(&mut serde_json::Deserializer::from_slice(data))
}

/// The failure that came in place of a bundle.
fn upstream(line: &[u8]) -> Option<Error> {
    let Said { code, message } = serde_json::from_slice::<Failure<'_>>(line).ok()?.error;
    Some(Error::new(Code::from_name(code)?, format!("there is no bundle: {message}")))
}
