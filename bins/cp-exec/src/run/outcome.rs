//! What became of a run.

use std::time::Duration;

use cp_common::Error;
use cp_common::wire::DeniedStep;

use super::capture::Captured;
use crate::changes::Changes;
use crate::sandbox::report::{Enforcement, Failure, Status};

/// Sees the bytes of a command as they come.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Stream, &[u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Why a command was ended before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    TimedOut,
    OutputLimit,
    /// This program got a signal to stop.
    Interrupted,
    /// A file that is read-only to it was replaced beside it.
    Conflict,
}

impl Ended {
    /// The word for it on the record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::Interrupted => "interrupted",
            Self::Conflict => "conflict",
        }
    }
}

/// What became of a command that started.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How its own process ended.
    pub status: Status,
    /// Why it was ended, if it did not end by itself.
    pub ended: Option<Ended>,
    /// How many processes were left and killed, where that is known.
    pub killed_processes: Option<u32>,
    pub stdout: Captured,
    pub stderr: Captured,
    /// From the start of the helper to the end of everything.
    pub duration: Duration,
    /// The layers it ran under.
    pub enforcement: Enforcement,
    /// The programs that it started.
    pub steps: StepsReport,
    /// The files that it created, changed and removed.
    pub changes: Changes,
}

/// Why there was no outcome.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// The helper says why.
    Failed(Failure),
    /// It was ended before it had started.
    Ended(Ended),
    /// The helper could not be started or was lost.
    Lost(Error),
}

impl From<Error> for NotRun {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

/// The steps of a run, for its record.
#[derive(Debug, Default)]
pub(crate) struct StepsReport {
    /// Programs that the line started.
    pub line: u64,
    /// Programs that these started.
    pub programs: u64,
    /// Steps beyond the most that are recorded.
    pub unrecorded: u64,
    /// Steps that were refused or await approval.
    pub denied: Vec<DeniedStep>,
    /// How many there were.
    pub denied_count: u64,
    /// The first refusal, or the first approval that is awaited.
    pub error: Option<Error>,
    /// The ledger failed, and nothing was let through after that.
    pub failed: Option<Error>,
}
