//! `--jobs`: prompts are asked in parallel while the stream goes on, and at most a window of them is in memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cp_common::Result;
use cp_common::jobs::Jobs;
use cp_common::output::Place;
use cp_common::wire::Message;

use crate::call::{Listener, Work};
use crate::work::Asker;

/// A prompt, or why it is none: that too is said in its turn.
struct Task {
    place: Place,
    work: Result<Work>,
}

/// What came of a prompt.
pub(crate) struct Answered {
    /// The place of its line.
    pub place: Place,
    /// The message or the failure.
    pub outcome: Result<Message>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// The prompts under way.
pub(crate) struct Batch(Jobs<Task, Answered>);

impl Batch {
    /// Threads that ask, so many at the same time.
    pub(crate) fn new(asker: &Arc<Asker>, threads: usize, unordered: bool) -> Result<Self> {
        let asker = Arc::clone(asker);
        Jobs::new(threads, unordered, move |task| answered(&asker, task)).map(Self)
    }

    /// What is readable when an answer may have come.
    pub(crate) fn wakes(&self) -> Result<OwnedFd> {
        self.0.wakes()
    }

    /// Whether one more prompt can be given.
    pub(crate) fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Gives a prompt to the next thread that is free.
    pub(crate) fn give(&mut self, place: Place, work: Result<Work>) -> Result<()> {
        self.0.give(Task { place, work })
    }

    /// The next answer, if it has come.
    pub(crate) fn ready(&mut self) -> Option<Answered> {
        self.0.take()
    }

    /// The next answer; none when nothing is under way. `idle` runs before a wait. Fails when a signal comes first.
    pub(crate) fn next(&mut self, idle: impl FnOnce() -> Result<()>) -> Result<Option<Answered>> {
        match self.0.take() {
            None if self.0.pending() > 0 => {
                idle()?;
                self.0.wait()
            }
            ready => Ok(ready),
        }
    }

    /// Asks nothing more, and gives what comes within the time of what is under way.
    pub(crate) fn remaining(&mut self, limit: Duration) -> Vec<Answered> {
        self.0.take_back();
        self.0.drain(limit)
    }
}

fn answered(asker: &Asker, Task { place, work }: Task) -> Answered {
    let mut listener = Silent(Vec::new());
    let outcome = work.and_then(|mut work| asker.engine.message(&mut work, &mut listener));
    Answered { place, outcome, warnings: listener.0 }
}

/// Keeps warnings until their turn.
struct Silent(Vec<String>);

impl Listener for Silent {
    fn words(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn warn(&mut self, message: &str) {
        self.0.push(message.to_owned());
    }
}
