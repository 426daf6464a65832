//! What became of a run.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::Error;
use cp_common::wire::{ExecPart, Executable};

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
}

impl Ended {
    /// The word for it on the record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::Interrupted => "interrupted",
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
    /// What it changed in repositories: the number of each in the plan, and the directory that holds it.
    pub layers: Vec<(usize, OwnedFd)>,
    /// What it created, changed and removed; of a pipeline, on its last command that started.
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

/// What became of a plan.
pub(crate) struct LineEnded {
    pub parts: Vec<ExecPart>,
    pub status: u8,
    pub stop: Option<Stop>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub duration: Duration,
    pub exe: Executable,
    pub enforcement: Enforcement,
    pub pipefail: Option<u8>,
    /// The files that were opened for reading, and for writing.
    pub files: [Vec<PathBuf>; 2],
}

/// Why a plan went no further.
pub(crate) enum Stop {
    Ended(Ended),
    /// A part was refused, or could not be started, or left something behind.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Stop {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Ended(ended) => ended.name(),
            Self::Refused(_) => "ended",
        }
    }
}
