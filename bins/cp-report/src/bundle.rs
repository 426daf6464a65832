//! The bundle: its records, read one at a time. The page proves them.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use cp_common::wire::bundle::{BLOB, BUNDLE, LEDGER, LINE, Line, VERSION};
pub(crate) use cp_common::wire::bundle::{Blob, Head, Ledger, LeftOut};
use cp_common::{Code, Error, Result, signals};
use cp_ledger::read::source::{is_stdin, seekable};
use cp_ledger::read::{End, Lines};
use serde::Deserialize;

/// A record.
pub(crate) enum Record<'a> {
    Head(Head),
    Ledger(Ledger),
    Line(Line<'a>),
    Blob(Blob<'a>),
}

/// The beginning of every record. Records have one spelling.
const START: &[u8] = b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"";
const DATA: &[u8] = b",\"data\":";

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow)]
    error: ErrorMembers<'a>,
}

#[derive(Deserialize)]
struct ErrorMembers<'a> {
    code: &'a str,
    message: String,
}

fn not_a_bundle() -> Error {
    Error::validation("this is not a bundle").hint("make one: cp-log bundle --run RUN | cp-report >page.html").fatal()
}

/// The file of a bundle, or a copy of a stream, which can be read more than once.
pub(crate) struct Bundle {
    name: PathBuf,
    file: File,
    size: u64,
}

impl Bundle {
    pub(crate) fn open(name: &Path) -> Result<Self> {
        let (file, size) = seekable(name)?;
        Ok(Self { name: name.to_owned(), file, size })
    }

    /// The lines from the first on.
    pub(crate) fn lines(&self) -> Result<Lines> {
        Ok(Lines::new(self.file.try_clone()?, &self.name, 0, self.size))
    }

    /// A path that another program can open while this one runs.
    pub(crate) fn path(&self) -> PathBuf {
        let descriptor = || format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into();
        if is_stdin(&self.name) { descriptor() } else { self.name.clone() }
    }

    /// Passes each record, in order.
    pub(crate) fn each(&self, pass: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<()> {
        each(&self.name, self.lines()?, pass)
    }
}

fn each(file: &Path, mut lines: Lines, pass: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let (mut number, mut is_closed) = (0_u64, false);
    while let Some(line) = lines.next()? {
        signals::check()?;
        number += 1;
        let fault = |error: Error| error.at_line(number).in_file(file).fatal();
        if line.end == End::Limit || is_closed {
            return Err(fault(not_a_bundle()));
        }
        let Some((kind, data)) = parts(line.bytes) else {
            return Err(fault(upstream(line.bytes).unwrap_or_else(not_a_bundle)));
        };
        if (number == 1) != (kind == BUNDLE) {
            return Err(fault(not_a_bundle()));
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
            _ => return Err(fault(not_a_bundle())),
        }
    }
    match (number, is_closed) {
        (0, _) => Err(not_a_bundle()),
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
    let ErrorMembers { code, message } = serde_json::from_slice::<Failure<'_>>(line).ok()?.error;
    Some(Error::new(Code::from_name(code)?, format!("the input is an error, not a bundle: {message}")))
}
