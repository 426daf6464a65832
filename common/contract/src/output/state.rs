//! The closing line of a program that does not finish normally: after a bug, or a signal that its work does not check
//! for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::stdio::{stderr, stdout};
use serde_json::{Map, Value};

use super::sink::{printable_line, write_all, write_last};
use super::{Counts, Format, Shape};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Result};

/// The state of standard output, for code that must close it from another thread.
pub(super) struct StdoutState {
    pub(super) program: &'static str,
    pub(super) format: Format,
    pub(super) shape: Shape,
    pub(super) counts: Counts,
    /// True if the calling program reports the end of this one.
    pub(super) is_part: bool,
    started: Option<Instant>,
    /// True if the last write ended in the middle of a line.
    inside: bool,
    pub(super) ending: Ending,
}

/// The end of standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The closing line is not written yet.
    Open,
    /// The closing line was written.
    Closed,
    /// The output has no closing line, because it carries another protocol or the bytes of a command.
    Unmarked,
}

static STATE: Mutex<StdoutState> = Mutex::new(StdoutState::new("", Format::Json, None));

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

/// Locks the state of standard output. While the lock is held, no other thread writes.
pub(super) fn state() -> MutexGuard<'static, StdoutState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins an output.
pub(super) fn begin(program: &'static str, format: Format, started: Instant) {
    *state() = StdoutState::new(program, format, Some(started));
}

/// Sets whether the calling program reports the end of this one, so that a signal that ends both is reported once.
pub(crate) fn has_owner(is_part: bool) {
    state().is_part = is_part;
}

impl StdoutState {
    const fn new(program: &'static str, format: Format, started: Option<Instant>) -> Self {
        Self {
            program,
            format,
            shape: Shape::Answer,
            counts: Counts { succeeded: 0, failed: 0, skipped: 0 },
            is_part: false,
            started,
            inside: false,
            ending: Ending::Open,
        }
    }
}

/// Writes finished bytes to standard output; `closes` tells that they end with the closing line.
pub(super) fn deliver(bytes: &[u8], counts: Counts, closes: bool) -> Result<()> {
    let Some(last) = bytes.last() else { return Ok(()) };
    let mut state = state();
    state.counts = counts;
    // Also if the write fails in the middle: only a line end can follow a partial line.
    state.inside = true;
    write_all(bytes)?;
    state.inside = *last != b'\n';
    if closes {
        state.ending = Ending::Closed;
    }
    Ok(())
}

/// Writes the closing line of a failure and its message for people. Returns false and writes nothing if the closing
/// line was already written, because the program is about to exit by itself. Nothing can be written afterwards.
pub(crate) fn last_words(error: &Error) -> bool {
    let until = Instant::now() + PATIENCE;
    let state = loop {
        match STATE.try_lock() {
            Ok(state) => break Some(state),
            Err(TryLockError::Poisoned(state)) => break Some(state.into_inner()),
            // If the reader is stuck, the work blocks in its write; the closing line could not be delivered either.
            Err(TryLockError::WouldBlock) if Instant::now() >= until => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE / 10),
        }
    };
    let is_json = match &state {
        Some(state) if state.ending == Ending::Closed => return false,
        Some(state) => {
            if state.format == Format::Json && state.ending == Ending::Open {
                write_last(stdout(), &closing_line(state, error));
            }
            state.format == Format::Json
        }
        None => true,
    };
    let program = state.as_ref().map_or("", |state| state.program);
    let words = match (is_json, program) {
        (true, "") => error.to_string(),
        (true, program) => format!("{program}: {error}"),
        (false, _) => format!("✗ {error}"),
    };
    let is_said = error.code() == Code::Interrupted && state.as_ref().is_some_and(|state| state.is_part);
    if !is_said {
        write_last(stderr(), format!("{}\n", printable_line(&words)).as_bytes());
    }
    std::mem::forget(state);
    true
}

fn closing_line(state: &StdoutState, error: &Error) -> Vec<u8> {
    let mut value = error.to_value();
    let kind = match state.shape {
        Shape::Answer => None,
        Shape::Filter => Some(Kind::Error.name()),
        Shape::Stream => Some(Kind::Summary.name()),
    };
    if let (Shape::Stream, Some(Value::Object(details))) = (state.shape, value.get_mut("details")) {
        details.extend(state.counts.members());
    }
    let took = state.started.map_or(0, |started| u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut meta = Map::new();
    meta.insert("duration_ms".to_owned(), took.into());
    let mut line = if state.inside { b"\n".to_vec() } else { Vec::new() };
    line.extend(record::head(false, kind));
    record::member(&mut line, "error", value.to_string().as_bytes());
    record::member(&mut line, "meta", Value::Object(meta).to_string().as_bytes());
    line.extend_from_slice(b"}\n");
    line
}

/// Makes the error for a bug.
pub(crate) fn bug(message: &str) -> Error {
    Error::new(Code::Unknown, message).hint("this is a bug: please report it with the command line")
}
