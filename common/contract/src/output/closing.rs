//! The closing line of an output. What it needs is shared, because after a bug, or a signal that the work does not check
//! for, another thread writes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::stdio::{stderr, stdout};
use serde_json::{Map, Value};

use super::sink::{printable_line, write_all, write_last};
use super::{Format, Notice, Output};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Result};

/// What a closing line needs.
pub(super) struct State {
    pub(super) program: &'static str,
    pub(super) format: Format,
    pub(super) started: Instant,
    pub(super) shape: Shape,
    pub(super) counts: Counts,
    pub(super) notices: Vec<Notice>,
    /// More members of the summary.
    pub(super) extras: Map<String, Value>,
    pub(super) end: End,
    /// True if the calling program reports the end of this one.
    pub(super) is_part: bool,
    /// True if the last write ended in the middle of a line.
    pub(super) is_inside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// Nothing was written yet, and the program is not a filter: its only line has no type.
    Answer,
    /// A filter that may answer with one closed record.
    Filter,
    /// Open records and a summary.
    Stream,
}

/// The number of items by outcome.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

/// The end of standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The closing line is to come.
    Open,
    /// The closing line was written.
    Closed,
    /// The output has no closing line, because it carries another protocol or the bytes of a command.
    Unmarked,
}

/// The output of this process. Its state lives as long as the process.
static CURRENT: OnceLock<&'static Mutex<State>> = OnceLock::new();

/// True if every failure exits with [`REFUSED`].
static FAILS_CLOSED: AtomicBool = AtomicBool::new(false);
/// The only status that every caller treats as a denial.
const REFUSED: u8 = 2;

/// Sets whether every failure, including a failed write, is a denial.
pub(crate) fn fail_closed(closed: bool) {
    FAILS_CLOSED.store(closed, Ordering::Relaxed);
}

/// True if every failure is a denial.
pub(crate) fn fails_closed() -> bool {
    FAILS_CLOSED.load(Ordering::Relaxed)
}

/// Returns the status to exit with.
pub(crate) fn status_of(status: u8) -> u8 {
    if status != 0 && fails_closed() { REFUSED } else { status }
}

/// Begins the output of this process.
pub(super) fn begin(state: State) -> &'static Mutex<State> {
    let state = Box::leak(Box::new(Mutex::new(state)));
    CURRENT.get_or_init(|| state);
    state
}

impl State {
    /// Writes finished bytes to standard output, with the closing line if they are the last.
    pub(super) fn deliver(&mut self, bytes: &[u8], is_last: bool) -> Result<()> {
        let Some(last) = bytes.last() else { return Ok(()) };
        // Also if the write fails in the middle: only a line end can follow a partial line.
        self.is_inside = true;
        write_all(bytes)?;
        self.is_inside = *last != b'\n';
        if is_last {
            self.end = End::Closed;
        }
        Ok(())
    }

    /// Completes a closing line.
    fn closed(&self, mut line: Vec<u8>) -> Vec<u8> {
        let duration = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut meta = Map::from_iter([("duration_ms".to_owned(), duration.into())]);
        if !self.notices.is_empty() {
            meta.insert("notices".to_owned(), serde_json::to_value(&self.notices).unwrap_or_default());
        }
        record::member(&mut line, "meta", Value::Object(meta).to_string().as_bytes());
        line.extend_from_slice(b"}\n");
        line
    }

    /// Makes the closing line of a failure without its end, in the shape that the reader expects.
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
        line
    }

    /// Makes the closing line of a stream that succeeded, without its end.
    fn summary(&self) -> Vec<u8> {
        let mut line = record::head(true, Some(Kind::Summary.name()));
        record::member(&mut line, "data", Value::Object(self.totals()).to_string().as_bytes());
        line
    }

    /// Returns the members of a summary.
    fn totals(&self) -> Map<String, Value> {
        let Counts { succeeded, failed, skipped } = self.counts;
        let total = succeeded + failed + skipped;
        let counts = [("total", total), ("succeeded", succeeded), ("failed", failed), ("skipped", skipped)];
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count.into()));
        counts.chain(self.extras.clone()).collect()
    }
}

impl Output {
    /// Locks the state until the end of the statement, in which nothing else may lock it. While the lock is held, no
    /// other thread writes.
    pub(super) fn state(&self) -> MutexGuard<'static, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the closing line and returns the matching exit status.
    pub(crate) fn close(&mut self, result: Result<()>) -> u8 {
        self.report_remaining_failures();
        let (status, _) = self.prediction(&result);
        match self.write_closing(result.map_err(Error::without_secrets)) {
            Ok(()) => status,
            Err(e) if e.is_reader_gone() && !fails_closed() => 0,
            Err(e) => {
                self.report_error(&e);
                e.code().row().exit
            }
        }
    }

    /// Predicts the exit status and the code of [`Output::close`], because they are recorded before the line is
    /// written.
    pub(crate) fn prediction(&self, result: &Result<()>) -> (u8, Option<Code>) {
        let code = match (result, &self.last) {
            (Err(error), _) if error.is_reader_gone() => None,
            (Err(error), _) => Some(error.code()),
            (Ok(()), Some(last)) => return (last.status, last.code),
            (Ok(()), None) => self.failure().map(|error| error.code()),
        };
        (code.map_or(0, |code| code.row().exit), code)
    }

    fn write_closing(&mut self, result: Result<()>) -> Result<()> {
        let failure = match result {
            Err(error) if error.is_reader_gone() => return Err(error),
            Err(error) => {
                if self.last.is_some() {
                    // A record that was held back is not the only line.
                    self.streaming()?;
                }
                // The owner of a part gets the error, and reports it.
                if !self.state().is_part {
                    self.report_error(&error);
                }
                Some(error)
            }
            Ok(()) if self.last.is_some() => None,
            Ok(()) => {
                self.streaming()?;
                self.failure()
            }
        };
        let open = match (self.last.take(), failure) {
            (Some(last), _) => last.open,
            (None, Some(error)) => self.state().failed(&error),
            (None, None) => self.state().summary(),
        };
        self.flush()?;
        if self.format() != Format::Json || open.is_empty() {
            return Ok(());
        }
        let line = self.state().closed(open);
        self.deliver(&line, true)
    }

    /// Returns the error with which the items make the stream fail, if they do.
    fn failure(&self) -> Option<Error> {
        if let Some(end) = &self.upstream_end {
            return Some(end.clone());
        }
        let first = self.first_failure.as_ref().filter(|_| !self.tolerates_failures)?;
        let Counts { succeeded, failed, .. } = self.state().counts;
        Some(match (succeeded, failed) {
            (0, 1) => Error::new(first.code(), first.message()),
            (0, _) => Error::new(first.code(), format!("all {failed} items failed, the first: {}", first.message())),
            (_, 1) => Error::new(Code::Partial, "1 item failed"),
            (_, _) => Error::new(Code::Partial, format!("{failed} items failed")),
        })
    }
}

/// Time that a write in progress may delay the closing line.
const PATIENCE: Duration = Duration::from_millis(20);

/// Writes the closing line of a failure and its message for people. Returns false and writes nothing if the closing
/// line was already written, because the program is about to exit by itself. Nothing can be written afterwards.
pub(crate) fn last_words(error: &Error) -> bool {
    let state = CURRENT.get().and_then(|current| {
        (0..10).find_map(|_| match current.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            // If the reader is stuck, the work blocks in its write; the closing line could not be delivered either.
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(PATIENCE / 10);
                None
            }
        })
    });
    let mut words = error.to_string();
    let mut is_said = false;
    if let Some(state) = &state {
        if state.end == End::Closed {
            return false;
        }
        let is_json = state.format == Format::Json;
        if is_json && state.end != End::Unmarked {
            let line_end = if state.is_inside { &b"\n"[..] } else { b"" };
            write_last(stdout(), &[line_end, &state.closed(state.failed(error))].concat());
        }
        words = if is_json { format!("{}: {error}", state.program) } else { format!("✗ {error}") };
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
