//! The last words of a program that does not come to its own end: after a bug, or a signal that its work does not look for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::stdio::{stderr, stdout};
use rustix::termios::isatty;
use serde_json::{Map, Value};

use super::printable::printable_line;
use super::sink::{write_all, write_last};
use super::{Counts, Format, Shape};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Result};

/// How standard output stands, for those who must close it from beside the work.
pub(super) struct Stand {
    pub(super) program: &'static str,
    pub(super) format: Format,
    pub(super) shape: Shape,
    pub(super) counts: Counts,
    /// Whether another program runs this one and reports its end.
    pub(super) is_part: bool,
    /// Who reads both streams.
    reader: Reads,
    started: Option<Instant>,
    /// Whether what was written last is not a whole line.
    inside: bool,
    /// Whether the closing line is out.
    closed: bool,
}

/// Who reads what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// A program, or whoever asked for a format.
    AsAsked,
    /// A person at a terminal, who asked for none.
    Person,
}

static STAND: Mutex<Stand> = Mutex::new(Stand {
    program: "",
    format: Format::Json,
    shape: Shape::Answer,
    counts: Counts { succeeded: 0, failed: 0, skipped: 0 },
    is_part: false,
    reader: Reads::AsAsked,
    started: None,
    inside: false,
    closed: false,
});

/// Whether every failure leaves with [`REFUSED`].
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The one status that every caller takes for a no.
const REFUSED: u8 = 2;

/// Says whether every failure, also one to write, is a no.
pub(crate) fn fail_closed(closed: bool) {
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Whether every failure is a no.
pub(crate) fn fails_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// The status to leave with.
pub(crate) fn status_of(status: u8) -> u8 {
    if status != 0 && fails_closed() { REFUSED } else { status }
}

/// How long a write that is under way may keep the last words back.
const PATIENCE: Duration = Duration::from_millis(20);

/// How standard output stands. Whoever has this keeps everyone else from writing.
pub(super) fn stand() -> MutexGuard<'static, Stand> {
    STAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins an output.
pub(super) fn begin(program: &'static str, format: Format, started: Instant) {
    *stand() = Stand {
        program,
        format,
        shape: Shape::Answer,
        counts: Counts::default(),
        is_part: false,
        reader: Reads::AsAsked,
        started: Some(started),
        inside: false,
        closed: false,
    };
}

/// Sets whether another program runs this one and reports its end, so that a signal that ends both is reported once.
pub(crate) fn has_owner(is_part: bool) {
    stand().is_part = is_part;
}

/// Notes that no format was given: on a terminal a failure is then reported once, as text.
pub(crate) fn names_no_format() {
    if isatty(stdout()) && isatty(stderr()) {
        stand().reader = Reads::Person;
    }
}

impl Stand {
    /// Whether a failure is written as a record.
    pub(super) fn records_failure(&self) -> bool {
        self.format == Format::Json && (self.reader == Reads::AsAsked || self.shape == Shape::Stream)
    }
}

/// Writes what is certain to standard output, with the closing line at its end where `closes`.
pub(super) fn deliver(bytes: &[u8], counts: Counts, closes: bool) -> Result<()> {
    let Some(last) = bytes.last() else { return Ok(()) };
    let mut stand = stand();
    stand.counts = counts;
    // Also when the write fails in the middle: nothing can be put after half a line but its end.
    stand.inside = true;
    write_all(bytes)?;
    stand.inside = *last != b'\n';
    stand.closed |= closes;
    Ok(())
}

/// Leaves the closing line of a failure, and what a person reads of it. False, and nothing written, where the closing line is out
/// already: the program is about to leave by itself. Nothing can be written after this.
pub(crate) fn last_words(error: &Error) -> bool {
    let until = Instant::now() + PATIENCE;
    let stand = loop {
        match STAND.try_lock() {
            Ok(stand) => break Some(stand),
            Err(TryLockError::Poisoned(stand)) => break Some(stand.into_inner()),
            // A reader that does not read keeps the work in its write. It does not read the last line either.
            Err(TryLockError::WouldBlock) if Instant::now() >= until => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE / 10),
        }
    };
    let is_json = match &stand {
        Some(stand) if stand.closed => return false,
        Some(stand) => {
            if stand.records_failure() {
                write_last(stdout(), &closing_line(stand, error));
            }
            stand.records_failure()
        }
        None => true,
    };
    let program = stand.as_ref().map_or("", |stand| stand.program);
    let words = match (is_json, program) {
        (true, "") => error.to_string(),
        (true, program) => format!("{program}: {error}"),
        (false, _) => format!("✗ {error}"),
    };
    let is_said = error.code() == Code::Interrupted && stand.as_ref().is_some_and(|stand| stand.is_part);
    if !is_said {
        write_last(stderr(), format!("{}\n", printable_line(&words)).as_bytes());
    }
    std::mem::forget(stand);
    true
}

fn closing_line(stand: &Stand, error: &Error) -> Vec<u8> {
    let mut value = error.to_value();
    let kind = match stand.shape {
        Shape::Answer => None,
        Shape::Filter => Some(Kind::Error.name()),
        Shape::Stream => Some(Kind::Summary.name()),
    };
    if let (Shape::Stream, Some(Value::Object(details))) = (stand.shape, value.get_mut("details")) {
        details.extend(stand.counts.members());
    }
    let took = stand.started.map_or(0, |started| u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut meta = Map::new();
    meta.insert("duration_ms".to_owned(), took.into());
    let mut line = if stand.inside { b"\n".to_vec() } else { Vec::new() };
    line.extend(record::head(false, kind));
    record::member(&mut line, "error", value.to_string().as_bytes());
    record::member(&mut line, "meta", Value::Object(meta).to_string().as_bytes());
    line.extend_from_slice(b"}\n");
    line
}

/// The error of a program that a bug ends.
pub(crate) fn bug(message: &str) -> Error {
    Error::new(Code::Unknown, message).hint("this is a bug: please report it with the command line")
}
