//! The outcome of a run.

use std::time::Duration;

use cp_common::Error;
use cp_common::wire::DeniedStep;

use super::capture::Captured;
use crate::changes::Changes;
use crate::sandbox::report::{Enforcement, Failure, Status};

/// A callback that receives the output of a command as it arrives.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Stream, &[u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The reason why a run was ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    TimedOut,
    OutputLimit,
    /// This program received a signal to stop.
    Interrupted,
    /// A read-only file of a repository was replaced during the run.
    Conflict,
}

impl EarlyEnd {
    /// The name on the ledger.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::Interrupted => "interrupted",
            Self::Conflict => "conflict",
        }
    }
}

/// The outcome of a command that started.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status of the command's own process.
    pub status: Status,
    /// The reason why it was ended early; `None` if it ended by itself.
    pub ended: Option<EarlyEnd>,
    /// The number of remaining processes that were killed, if known.
    pub killed_processes: Option<u32>,
    pub stdout: Captured,
    pub stderr: Captured,
    /// The time from the start of the helper to the end of all processes.
    pub duration: Duration,
    /// The layers it ran under.
    pub enforcement: Enforcement,
    /// The programs that it started.
    pub steps: StepsReport,
    /// The files that it created, changed and removed.
    pub changes: Changes,
}

/// The reason why there is no outcome.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// The helper reported a failure.
    Failed(Failure),
    /// The run was ended before the command started.
    EarlyEnd(EarlyEnd),
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
    /// Programs that those programs started.
    pub programs: u64,
    /// The number of steps above the limit of recorded steps.
    pub unrecorded: u64,
    /// Steps that were refused or await approval.
    pub denied: Vec<DeniedStep>,
    /// The number of denied steps.
    pub denied_count: u64,
    /// The first refusal, or the first pending approval.
    pub error: Option<Error>,
    /// The error of the ledger. All later steps are refused.
    pub failed: Option<Error>,
}
