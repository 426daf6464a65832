//! `--jobs`: prompts are asked in parallel while the stream goes on, and at most a window of them is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cp_common::output::Place;
use cp_common::stream::jobs::Jobs;
use cp_common::wire::Message;
use cp_common::{Result, signals};

use crate::engine::{Engine, Listener, Work};
use crate::wire_api::TextKind;

/// A prompt, or why there is no request of it: that too is reported in its turn.
struct Task {
    number: u64,
    place: Place,
    work: Result<Work>,
}

/// What came of a prompt.
pub(super) struct Completed {
    number: u64,
    /// The place of its line.
    pub place: Place,
    /// The message or the failure.
    pub outcome: Result<Message>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Whether text was shown before the end.
    pub shown: bool,
    /// How long it took.
    pub took: Duration,
}

/// Text of an answer that is under way, what it is, and the place of its prompt.
pub(super) type TextPiece = (Place, TextKind, String);

/// Text that has come and was not taken, with the number of its prompt, and the event counter that wakes the stream when there is more.
#[derive(Default)]
struct Inbox {
    pieces: Mutex<Vec<(u64, TextPiece)>>,
    /// What is said at once.
    messages: Mutex<Vec<String>>,
    wake: OnceLock<OwnedFd>,
}

impl Inbox {
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            // A counter that is full wakes too.
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The prompts under way.
pub(super) struct Batch {
    jobs: Jobs<Task, Completed>,
    wake: OwnedFd,
    unordered: bool,
    /// The number of the next prompt, and those that have not been taken.
    next: u64,
    pending: BTreeSet<u64>,
    inbox: Arc<Inbox>,
    /// Text whose turn has not come.
    held: BTreeMap<u64, Vec<TextPiece>>,
}

impl Batch {
    /// Threads that ask, so many at the same time.
    pub(super) fn new(engine: &Arc<Engine>, threads: usize, unordered: bool) -> Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let (engine, sender) = (Arc::clone(engine), Arc::clone(&inbox));
        let jobs = Jobs::new(threads, unordered, move |task| run_task(&engine, task, &sender))?;
        // Text wakes the stream as answers do.
        let counter = jobs.wakes()?;
        inbox.wake.get_or_init(|| counter);
        let wake = jobs.wakes()?;
        Ok(Self { jobs, wake, unordered, next: 0, pending: BTreeSet::new(), inbox, held: BTreeMap::new() })
    }

    /// What is readable when something may have come.
    pub(super) fn wakes(&self) -> Result<OwnedFd> {
        self.jobs.wakes()
    }

    /// Whether one more prompt can be given.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.has_room()
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.pending() == 0
    }

    /// Gives a prompt to the next thread that is free.
    pub(super) fn give(&mut self, place: Place, work: Result<Work>) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number);
        self.jobs.give(Task { number, place, work })
    }

    /// The next answer, if it has come, and the text that is to be shown before it.
    pub(super) fn ready(&mut self) -> (Option<Completed>, Vec<TextPiece>) {
        let answered = self.jobs.take();
        let pieces = self.take_due(answered.as_ref());
        (answered, pieces)
    }

    /// What a person should know at once.
    pub(super) fn messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something may have come. Fails when a signal comes first.
    pub(super) fn wait(&self) -> Result<()> {
        signals::wait_readable(self.wake.as_fd(), None).map(|_| ())
    }

    /// Sends nothing more, and gives the answers under way that come within the time, each with its text that was not shown.
    pub(super) fn remaining(&mut self, limit: Duration) -> Vec<(Vec<TextPiece>, Completed)> {
        self.jobs.take_back();
        let rest = self.jobs.drain(limit);
        rest.into_iter().map(|answered| (self.take_due(Some(&answered)), answered)).collect()
    }

    /// The text that can be shown: that of the prompt whose turn it is, or where order does not matter all of it.
    fn take_due(&mut self, answered: Option<&Completed>) -> Vec<TextPiece> {
        let pieces = std::mem::take(&mut *self.inbox.pieces.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, piece) in pieces {
            self.held.entry(number).or_default().push(piece);
        }
        let turn = answered.map(|answered| answered.number);
        let due = if self.unordered {
            std::mem::take(&mut self.held).into_values().flatten().collect()
        } else {
            let turn = turn.or_else(|| self.pending.first().copied());
            turn.and_then(|turn| self.held.remove(&turn)).unwrap_or_default()
        };
        if let Some(turn) = turn {
            self.pending.remove(&turn);
        }
        due
    }
}

fn run_task(engine: &Engine, Task { number, place, work }: Task, inbox: &Inbox) -> Completed {
    let begun = Instant::now();
    let mut listener = Forwarder { number, place, inbox, warnings: Vec::new(), shown: false };
    let outcome = work.and_then(|mut work| engine.message(&mut work, &mut listener));
    Completed { number, place, outcome, warnings: listener.warnings, shown: listener.shown, took: begun.elapsed() }
}

/// Hands text on to the thread that prints, and keeps warnings until their turn.
struct Forwarder<'a> {
    number: u64,
    place: Place,
    inbox: &'a Inbox,
    warnings: Vec<String>,
    shown: bool,
}

impl Listener for Forwarder<'_> {
    fn text(&mut self, text: &str) -> Result<()> {
        self.shown = true;
        self.forward(TextKind::Answer, text);
        Ok(())
    }

    fn thinking(&mut self, text: &str) -> Result<()> {
        self.forward(TextKind::Thinking, text);
        Ok(())
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }

    fn warn_now(&mut self, message: &str) {
        self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
        self.inbox.wake();
    }
}

impl Forwarder<'_> {
    fn forward(&self, kind: TextKind, text: &str) {
        let piece = (self.number, (self.place, kind, text.to_owned()));
        self.inbox.pieces.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
        self.inbox.wake();
    }
}
