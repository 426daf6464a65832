//! `--jobs`: prompts are asked in parallel while the stream goes on, and at most a window of them is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cp_common::output::Place;
use cp_common::stream::jobs::Jobs;
use cp_common::wire::Message;
use cp_common::{Result, signals};

use crate::call::{Listener, Work};
use crate::work::Asker;

/// A prompt, or why it is none: that too is said in its turn.
struct Task {
    number: u64,
    place: Place,
    work: Result<Work>,
}

/// What came of a prompt.
pub(crate) struct Answered {
    number: u64,
    /// The place of its line.
    pub place: Place,
    /// The message or the failure.
    pub outcome: Result<Message>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Whether there were words before the end.
    pub spoke: bool,
}

/// Words of an answer that is under way, and the place of its prompt.
pub(crate) type Words = (Place, String);

/// Words that nobody has looked at, with the number of their prompt, and what to ring when there are more.
#[derive(Default)]
struct Voices {
    said: Mutex<Vec<(u64, Words)>>,
    bell: OnceLock<OwnedFd>,
}

/// The prompts under way.
pub(crate) struct Batch {
    jobs: Jobs<Task, Answered>,
    wake: OwnedFd,
    unordered: bool,
    /// The number of the next prompt, and those that have not been taken.
    next: u64,
    pending: BTreeSet<u64>,
    voices: Arc<Voices>,
    /// Words whose turn has not come.
    held: BTreeMap<u64, Words>,
}

impl Batch {
    /// Threads that ask, so many at the same time.
    pub(crate) fn new(asker: &Arc<Asker>, threads: usize, unordered: bool) -> Result<Self> {
        let voices = Arc::new(Voices::default());
        let (asker, speaking) = (Arc::clone(asker), Arc::clone(&voices));
        let jobs = Jobs::new(threads, unordered, move |task| answered(&asker, task, &speaking))?;
        // Words wake the stream as answers do.
        let bell = jobs.wakes()?;
        voices.bell.get_or_init(|| bell);
        let wake = jobs.wakes()?;
        Ok(Self { jobs, wake, unordered, next: 0, pending: BTreeSet::new(), voices, held: BTreeMap::new() })
    }

    /// What is readable when something may have come.
    pub(crate) fn wakes(&self) -> Result<OwnedFd> {
        self.jobs.wakes()
    }

    /// Whether one more prompt can be given.
    pub(crate) fn has_room(&self) -> bool {
        self.jobs.has_room()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.pending() == 0
    }

    /// Gives a prompt to the next thread that is free.
    pub(crate) fn give(&mut self, place: Place, work: Result<Work>) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number);
        self.jobs.give(Task { number, place, work })
    }

    /// The next answer, if it has come, and the words that are to be shown before it.
    pub(crate) fn ready(&mut self) -> (Option<Answered>, Vec<Words>) {
        let answered = self.jobs.take();
        let words = self.words(answered.as_ref());
        (answered, words)
    }

    /// Waits until something may have come. Fails when a signal comes first.
    pub(crate) fn wait(&self) -> Result<()> {
        signals::wait_readable(self.wake.as_fd(), None).map(|_| ())
    }

    /// Asks nothing more, and gives what comes within the time of what is under way, each with the words that were not shown.
    pub(crate) fn remaining(&mut self, limit: Duration) -> Vec<(Answered, Vec<Words>)> {
        self.jobs.take_back();
        let rest = self.jobs.drain(limit);
        rest.into_iter()
            .map(|answered| {
                let words = self.words(Some(&answered));
                (answered, words)
            })
            .collect()
    }

    /// Words that can be shown: those of the prompt whose turn it is, or where order does not matter all of them.
    fn words(&mut self, answered: Option<&Answered>) -> Vec<Words> {
        let said = std::mem::take(&mut *self.voices.said.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, (place, text)) in said {
            self.held.entry(number).or_insert_with(|| (place, String::new())).1.push_str(&text);
        }
        let turn = answered.map(|answered| answered.number);
        let due = if self.unordered {
            std::mem::take(&mut self.held).into_values().collect()
        } else {
            let turn = turn.or_else(|| self.pending.first().copied());
            turn.and_then(|turn| self.held.remove(&turn)).into_iter().collect()
        };
        if let Some(turn) = turn {
            self.pending.remove(&turn);
        }
        due
    }
}

fn answered(asker: &Asker, Task { number, place, work }: Task, voices: &Voices) -> Answered {
    let mut listener = Afar { number, place, voices, warnings: Vec::new(), spoke: false };
    let outcome = work.and_then(|mut work| asker.engine.message(&mut work, &mut listener));
    Answered { number, place, outcome, warnings: listener.warnings, spoke: listener.spoke }
}

/// Hands words on, and keeps warnings until their turn.
struct Afar<'a> {
    number: u64,
    place: Place,
    voices: &'a Voices,
    warnings: Vec<String>,
    spoke: bool,
}

impl Listener for Afar<'_> {
    fn words(&mut self, text: &str) -> Result<()> {
        self.spoke = true;
        let words = (self.number, (self.place, text.to_owned()));
        self.voices.said.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        if let Some(bell) = self.voices.bell.get() {
            // A counter that is full wakes too.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
}
