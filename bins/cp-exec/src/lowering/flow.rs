//! Which step runs next, and where, once it is known how those before it ended. Nothing is run here.

use std::path::{Path, PathBuf};

use super::steps::{Action, Join, Part, Step, Word};

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// Run these at once, and report with [`Flow::ended`].
    Pipeline { parts: &'a [Part], first: usize },
    /// Find this directory, and report with [`Flow::entered`].
    Cd(&'a Word),
}

/// Steps on their way.
#[derive(Debug)]
pub(crate) struct Flow<'a> {
    frames: Vec<Frame<'a>>,
    status: u8,
    directory: PathBuf,
    pipefail: bool,
    /// How many parts stand before the next step.
    parts: usize,
    /// Whether the status that is reported next is turned round.
    negates: bool,
}

/// Steps of a list or of a group in it.
#[derive(Debug)]
struct Frame<'a> {
    steps: std::slice::Iter<'a, Step>,
    /// The directory to come back to.
    leaves: Option<PathBuf>,
    negated: bool,
    /// How many parts stand before what follows it.
    parts_after: usize,
}

impl<'a> Flow<'a> {
    /// Steps that begin in a directory.
    pub(crate) fn new(steps: &'a [Step], directory: PathBuf, pipefail: bool) -> Self {
        let frame = Frame { steps: steps.iter(), leaves: None, negated: false, parts_after: count(steps) };
        Self { frames: vec![frame], status: 0, directory, pipefail, parts: 0, negates: false }
    }

    /// The status so far: `$?`, and in the end that of all.
    pub(crate) const fn status(&self) -> u8 {
        self.status
    }

    /// The directory in which the next step runs.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is to be done next; none at the end.
    pub(crate) fn next(&mut self) -> Option<Next<'a>> {
        loop {
            let Some(step) = self.frames.last_mut()?.steps.next() else {
                self.leave();
                continue;
            };
            let before = self.parts;
            let runs = match step.join {
                Join::Start | Join::Then => true,
                Join::And => self.status == 0,
                Join::Or => self.status != 0,
            };
            if !runs {
                self.parts += count(std::slice::from_ref(step));
                continue;
            }
            self.negates = step.negated;
            match &step.action {
                Action::Pipeline(parts) => {
                    self.parts += parts.len();
                    return Some(Next::Pipeline { parts, first: before });
                }
                Action::Cd(to) => return Some(Next::Cd(to)),
                Action::Group(steps) | Action::Block(steps) => self.frames.push(Frame {
                    steps: steps.iter(),
                    leaves: matches!(step.action, Action::Group(_)).then(|| self.directory.clone()),
                    negated: step.negated,
                    parts_after: before + count(steps),
                }),
                Action::Exit(status) => {
                    self.status = status.with_status(self.status).parse().unwrap_or(u8::MAX);
                    while self.frames.last().is_some_and(|frame| frame.leaves.is_none()) {
                        self.parts = self.frames.pop().map_or(self.parts, |frame| frame.parts_after);
                    }
                    self.leave();
                }
            }
        }
    }

    /// Reports the statuses of the parts of a pipeline that has run.
    pub(crate) fn ended(&mut self, statuses: &[u8]) {
        let failed = statuses.iter().rev().find(|status| **status != 0).filter(|_| self.pipefail);
        self.status = negated(*failed.or(statuses.last()).unwrap_or(&0), self.negates);
    }

    /// Reports the directory that `cd` led to; none if it failed.
    pub(crate) fn entered(&mut self, directory: Option<PathBuf>) {
        self.status = negated(u8::from(directory.is_none()), self.negates);
        if let Some(directory) = directory {
            self.directory = directory;
        }
    }

    /// Leaves the innermost steps.
    fn leave(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        self.parts = frame.parts_after;
        if let Some(directory) = frame.leaves {
            self.directory = directory;
        }
        self.status = negated(self.status, frame.negated);
    }
}

/// Every part of the steps, in the order in which they are written.
pub(crate) fn parts(steps: &[Step]) -> Vec<&Part> {
    let mut all = Vec::new();
    for step in steps {
        match &step.action {
            Action::Pipeline(parts) => all.extend(parts),
            Action::Group(steps) | Action::Block(steps) => all.extend(parts(steps)),
            Action::Cd(_) | Action::Exit(_) => {}
        }
    }
    all
}

fn count(steps: &[Step]) -> usize {
    parts(steps).len()
}

fn negated(status: u8, turned: bool) -> u8 {
    if turned { u8::from(status == 0) } else { status }
}
