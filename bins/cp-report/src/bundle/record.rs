//! The records of a bundle, read one at a time. What they prove is left to the page.

use std::borrow::Cow;
use std::path::Path;

use cp_common::{Code, Error, Result, signals};
use cp_ledger::read::End;
use cp_ledger::read::source::lines_of;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A record.
pub(crate) enum Record<'a> {
    Head(Head),
    Ledger(Ledger),
    Line(Line<'a>),
    Blob(Blob<'a>),
}

/// What was asked for, and what is never in a bundle.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Head {
    /// The version of the format.
    version: u32,
    /// When the bundle was made.
    pub(crate) made_at: String,
    /// What was asked for.
    pub(crate) selection: Selection,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Selection {
    /// Ledgers, or directories of them.
    #[serde(default)]
    pub(crate) files: Vec<String>,
    /// A run.
    pub(crate) run: Option<String>,
    /// A session.
    pub(crate) session: Option<String>,
    /// A time.
    pub(crate) since: Option<String>,
}

/// A ledger, as it was when the bundle was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ledger {
    /// Its own name.
    pub(crate) origin: String,
    /// The name of its file.
    pub(crate) file: String,
    /// How many lines it had.
    pub(crate) size: u64,
    /// The root of the tree of these lines, in base 64.
    pub(crate) root: String,
    /// How many of them are here.
    pub(crate) lines: u64,
    /// Whether all are.
    pub(crate) whole: bool,
    /// The signed note.
    pub(crate) checkpoint: Option<String>,
    /// The proof that the tree goes on where the checkpoint's ended.
    #[serde(default)]
    pub(crate) consistency: Vec<String>,
}

/// A line, and what proves it where the ledger is not whole.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(borrow)]
    pub(crate) raw: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) proof: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) next: Option<&'a RawValue>,
}

impl Line<'_> {
    /// What the page keeps to prove it, as JSON; none in a ledger that is whole.
    pub(crate) fn proof(&self) -> Option<String> {
        let next = self.next.map_or("null", RawValue::get);
        self.proof.map(|proof| format!("{{\"proof\":{proof},\"next\":{next}}}"))
    }
}

/// The bytes of a value, or a part of them.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Blob<'a> {
    pub(crate) hash: Cow<'a, str>,
    pub(crate) media_type: Cow<'a, str>,
    pub(crate) size: u64,
    pub(crate) offset: u64,
    #[serde(borrow)]
    pub(crate) base64: Cow<'a, str>,
    #[serde(default)]
    pub(crate) missing: bool,
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
        if (number == 1) != (kind == "bundle") {
            return Err(fault(no_bundle()));
        }
        let wrong = |e: serde_json::Error| fault(Error::validation(format!("not a record of a bundle: {e}")));
        match kind {
            "bundle" => {
                let head: Head = read(data).map_err(wrong)?;
                if head.version != 1 {
                    let message = format!("version {} of bundles is not known", head.version);
                    return Err(fault(Error::validation(message).hint("use a newer cp-report")));
                }
                pass(Record::Head(head))?;
            }
            "bundle_ledger" => pass(Record::Ledger(read(data).map_err(wrong)?))?,
            "bundle_line" => pass(Record::Line(read(data).map_err(wrong)?))?,
            "bundle_blob" => pass(Record::Blob(read(data).map_err(wrong)?))?,
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
