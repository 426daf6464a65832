//! The state of standard output that a closing line needs. It is shared, because after a bug, or a signal that the work
//! does not check for, another thread writes the closing line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::stdio::{stderr, stdout};
use serde_json::{Map, Value};

use super::sink::{printable_line, write_all, write_last};
use super::{Counts, Format, Notice};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Result};

/// The state of one output.
pub(super) struct State {
    pub(super) program: &'static str,
    pub(super) format: Format,
    pub(super) quiet: bool,
    pub(super) started: Instant,
    pub(super) shape: Shape,
    pub(super) counts: Counts,
    pub(super) notices: Vec<Notice>,
    pub(super) extras: Map<String, Value>,
    pub(super) end: End,
    /// True if the calling program reports the end of this one.
    pub(super) is_part: bool,
    /// True if the last write ended in the middle of a line.
    pub(super) inside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing was written yet, and the program is not a filter: its only line has no type.
    Answer,
    /// A filter that may answer with one closed record.
    Filter,
    /// Open records and a summary.
    Stream,
}

/// The end of standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The closing line is to come.
    Open,
    /// The closing line waits in the buffer.
    Closing,
    /// The closing line was written.
    Closed,
    /// The output has no closing line, because it carries another protocol or the bytes of a command.
    Unmarked,
}

/// The output of this process that began last.
static CURRENT: Mutex<Option<&'static Mutex<State>>> = Mutex::new(None);

/// True if every failure exits with [`REFUSED`].
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The only status that every caller treats as a denial.
const REFUSED: u8 = 2;

/// Sets whether every failure, including a failed write, is a denial.
pub(crate) fn fail_closed(closed: bool) {
    CLOSED.store(closed, Ordering::Relaxed);
}

/// True if every failure is a denial.
pub(crate) fn fails_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns the status to exit with.
pub(crate) fn status_of(status: u8) -> u8 {
    if status != 0 && fails_closed() { REFUSED } else { status }
}

/// Time that a write in progress may delay the closing line.
const PATIENCE: Duration = Duration::from_millis(20);

/// Begins an output. Its state lives as long as the process.
pub(super) fn begin(state: State) -> &'static Mutex<State> {
    let state = Box::leak(Box::new(Mutex::new(state)));
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    state
}

/// Locks a state. While the lock is held, no other thread writes.
pub(super) fn lock(state: &'static Mutex<State>) -> MutexGuard<'static, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Writes finished bytes to standard output.
    pub(super) fn deliver(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(last) = bytes.last() else { return Ok(()) };
        // Also if the write fails in the middle: only a line end can follow a partial line.
        self.inside = true;
        write_all(bytes)?;
        self.inside = *last != b'\n';
        if self.end == End::Closing {
            self.end = End::Closed;
        }
        Ok(())
    }

    /// Completes a closing line.
    pub(super) fn closed(&self, mut line: Vec<u8>) -> Vec<u8> {
        let duration = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut meta = Map::from_iter([("duration_ms".to_owned(), duration.into())]);
        if !self.notices.is_empty() {
            meta.insert("notices".to_owned(), serde_json::to_value(&self.notices).unwrap_or_default());
        }
        record::member(&mut line, "meta", Value::Object(meta).to_string().as_bytes());
        line.extend_from_slice(b"}\n");
        line
    }

    /// Makes the closing line of a failure, in the shape that the reader expects.
    pub(super) fn failed(&self, error: &Error) -> Vec<u8> {
        let mut value = error.to_value();
        let kind = match self.shape {
            Shape::Answer => None,
            Shape::Filter => Some(Kind::Error.name()),
            Shape::Stream => Some(Kind::Summary.name()),
        };
        if let (Shape::Stream, Some(Value::Object(details))) = (self.shape, value.get_mut("details")) {
            details.extend(self.totals());
        }
        let mut line = record::head(false, kind);
        record::member(&mut line, "error", value.to_string().as_bytes());
        self.closed(line)
    }

    /// Returns the members of a summary.
    pub(super) fn totals(&self) -> Map<String, Value> {
        let Counts { succeeded, failed, skipped } = self.counts;
        let total = succeeded + failed + skipped;
        let counts = [("total", total), ("succeeded", succeeded), ("failed", failed), ("skipped", skipped)];
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count.into()));
        counts.chain(self.extras.clone()).collect()
    }
}

/// Writes the closing line of a failure and its message for people. Returns false and writes nothing if the closing
/// line was already written, because the program is about to exit by itself. Nothing can be written afterwards.
pub(crate) fn last_words(error: &Error) -> bool {
    let until = Instant::now() + PATIENCE;
    let current = *CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let state = current.and_then(|current| {
        loop {
            match current.try_lock() {
                Ok(state) => break Some(state),
                Err(TryLockError::Poisoned(state)) => break Some(state.into_inner()),
                // If the reader is stuck, the work blocks in its write; the closing line could not be delivered either.
                Err(TryLockError::WouldBlock) if Instant::now() >= until => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE / 10),
            }
        }
    });
    let mut words = error.to_string();
    let mut is_said = false;
    if let Some(state) = &state {
        if state.end == End::Closed {
            return false;
        }
        if state.format == Format::Json && state.end != End::Unmarked {
            let line_end = if state.inside { &b"\n"[..] } else { b"" };
            write_last(stdout(), &[line_end, &state.failed(error)].concat());
        }
        words =
            if state.format == Format::Json { format!("{}: {error}", state.program) } else { format!("✗ {error}") };
        is_said = error.code() == Code::Interrupted && state.is_part;
    }
    if !is_said {
        write_last(stderr(), format!("{}\n", printable_line(&words)).as_bytes());
    }
    std::mem::forget(state);
    true
}

/// Makes the error for a bug.
pub(crate) fn bug(message: &str) -> Error {
    Error::new(Code::Unknown, message).hint("this is a bug: please report it with the command line")
}
