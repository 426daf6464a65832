//! The bundle: its records, read one at a time, and a private copy of them that can be read again. The page proves them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use cp_common::wire::bundle::{BLOB, BUNDLE, LEDGER, LINE, Line, VERSION};
pub(crate) use cp_common::wire::bundle::{Blob, Head, Ledger, LeftOut};
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

/// The proof of a line that the page keeps, as JSON; none in a ledger that is whole.
pub(crate) fn proof(line: &Line<'_>) -> Option<String> {
    let next = serde_json::to_string(&line.next).unwrap_or_default();
    line.proof.as_ref().map(|proof| format!("{{\"proof\":{proof},\"next\":{next}}}"))
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

/// Passes each record of a bundle, in order.
pub(crate) fn each(file: &Path, pass: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let mut lines = lines_of(file)?;
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

/// The kind of a piece of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Ledger = 1,
    Proof,
    Line,
    Blob,
}

fn failed(e: std::io::Error) -> Error {
    Error::io("cannot keep the bundle in a temporary file", e).fatal()
}

/// The copy while it is written.
pub(crate) struct Spool {
    file: BufWriter<File>,
    /// How long it is.
    pub(crate) size: u64,
}

impl Spool {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { file: BufWriter::with_capacity(BLOCK, tempfile::tempfile().map_err(failed)?), size: 0 })
    }

    pub(crate) fn push(&mut self, chunk: Chunk, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| Error::validation("a record is too long").fatal())?;
        self.file.write_all(&[chunk as u8]).map_err(failed)?;
        self.file.write_all(&length.to_le_bytes()).map_err(failed)?;
        self.file.write_all(bytes).map_err(failed)?;
        self.size += 5 + u64::from(length);
        Ok(())
    }

    /// The file, whole.
    pub(crate) fn finish(self) -> Result<File> {
        self.file.into_inner().map_err(|e| failed(e.into_error()))
    }
}

const BLOCK: usize = 64 << 10;

/// Reads the copy from a place on.
pub(crate) struct Reader<'a> {
    file: &'a File,
    at: u64,
    buffer: Vec<u8>,
    start: usize,
    size: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a File, at: u64, size: u64) -> Self {
        Self { file, at, buffer: Vec::new(), start: 0, size }
    }

    /// The next piece, until the end.
    pub(crate) fn next(&mut self) -> Result<Option<(Chunk, &[u8])>> {
        if self.start == self.buffer.len() && self.at == self.size {
            return Ok(None);
        }
        self.fill(5)?;
        let head = &self.buffer[self.start..self.start + 5];
        let chunk =
            [Chunk::Ledger, Chunk::Proof, Chunk::Line, Chunk::Blob].into_iter().find(|one| *one as u8 == head[0]);
        let chunk = chunk.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        self.fill(5 + length)?;
        let start = self.start + 5;
        self.start = start + length;
        Ok(Some((chunk, &self.buffer[start..self.start])))
    }

    /// Has so many bytes at hand.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.buffer.len() - self.start >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let old = self.buffer.len();
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        self.buffer.resize(old + wanted.max(BLOCK).saturating_sub(old).min(left), 0);
        self.file.read_exact_at(&mut self.buffer[old..], self.at).map_err(failed)?;
        self.at += (self.buffer.len() - old) as u64;
        // The memory of a long piece is released.
        self.buffer.shrink_to(wanted.max(BLOCK));
        Ok(())
    }
}
