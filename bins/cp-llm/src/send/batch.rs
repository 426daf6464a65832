//! `--jobs`: concurrent prompts of a stream. A bounded number of them is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cp_common::output::Place;
use cp_common::stream::jobs::Jobs;
use cp_common::wire::Message;
use cp_common::{Result, signals};

use crate::engine::{Engine, Listener, Work};
use crate::wire_api::TextKind;

/// A prompt, or the error of preparing it, which is reported in order.
struct Task {
    number: u64,
    place: Place,
    work: Result<Work>,
}

/// A finished prompt.
pub(super) struct Completed {
    number: u64,
    /// The place in the input.
    pub place: Place,
    /// The message or the error.
    pub outcome: Result<Message>,
    /// Warnings about the prompt.
    pub warnings: Vec<String>,
    /// True if text was passed on before the end.
    pub shown: bool,
}

/// A piece of a streamed answer: the place of its prompt, the kind of text, and the text.
pub(super) type TextPiece = (Place, TextKind, String);

/// Text that arrived and was not printed yet, with the number of its prompt, and the event counter that wakes the
/// stream.
#[derive(Default)]
struct Inbox {
    pieces: Mutex<Vec<(u64, TextPiece)>>,
    /// Warnings that are printed at once.
    messages: Mutex<Vec<String>>,
    wake: OnceLock<OwnedFd>,
}

impl Inbox {
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            // A full counter wakes the stream too.
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The prompts in progress.
pub(super) struct Batch {
    jobs: Jobs<Task, Completed>,
    wake: OwnedFd,
    /// The number of the next prompt, and the numbers of unfinished prompts.
    next: u64,
    pending: BTreeSet<u64>,
    inbox: Arc<Inbox>,
    /// Text that is held back until its turn.
    held: BTreeMap<u64, Vec<TextPiece>>,
}

impl Batch {
    /// Starts a batch with this number of threads.
    pub(super) fn new(engine: &Arc<Engine>, threads: usize) -> Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let (engine, sender) = (Arc::clone(engine), Arc::clone(&inbox));
        let jobs = Jobs::new(threads, move |task| run_task(&engine, task, &sender))?;
        // Text wakes the stream like a finished prompt.
        let counter = jobs.wakes()?;
        inbox.wake.get_or_init(|| counter);
        let wake = jobs.wakes()?;
        Ok(Self { jobs, wake, next: 0, pending: BTreeSet::new(), inbox, held: BTreeMap::new() })
    }

    /// A file descriptor that is readable when text or a message may have arrived.
    pub(super) fn wakes(&self) -> Result<OwnedFd> {
        self.jobs.wakes()
    }

    /// True if another prompt can be added.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.has_room()
    }

    /// True if no prompt is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.pending() == 0
    }

    /// Queues a prompt.
    pub(super) fn give(&mut self, place: Place, work: Result<Work>) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number);
        self.jobs.give(Task { number, place, work })
    }

    /// The next finished prompt, if there is one, and the text to print before it.
    pub(super) fn ready(&mut self) -> (Option<Completed>, Vec<TextPiece>) {
        let answered = self.jobs.take();
        let pieces = self.take_due(answered.as_ref());
        (answered, pieces)
    }

    /// Takes the warnings that are printed at once.
    pub(super) fn messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until text or a message may have arrived. Fails if a signal arrives first.
    pub(super) fn wait(&self) -> Result<()> {
        signals::wait_readable(self.wake.as_fd(), None).map(|_| ())
    }

    /// Stops sending, and returns the prompts that finish within the limit, each with its text that was not printed.
    pub(super) fn remaining(&mut self, limit: Duration) -> Vec<(Vec<TextPiece>, Completed)> {
        self.jobs.take_back();
        let rest = self.jobs.drain(limit);
        rest.into_iter().map(|answered| (self.take_due(Some(&answered)), answered)).collect()
    }

    /// Takes the text that can be printed: of the prompt whose turn it is.
    fn take_due(&mut self, answered: Option<&Completed>) -> Vec<TextPiece> {
        let pieces = std::mem::take(&mut *self.inbox.pieces.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, piece) in pieces {
            self.held.entry(number).or_default().push(piece);
        }
        let turn = answered.map(|answered| answered.number);
        let shown = turn.or_else(|| self.pending.first().copied());
        let due = shown.and_then(|turn| self.held.remove(&turn)).unwrap_or_default();
        if let Some(turn) = turn {
            self.pending.remove(&turn);
        }
        due
    }
}

fn run_task(engine: &Engine, Task { number, place, work }: Task, inbox: &Inbox) -> Completed {
    let mut listener = Forwarder { number, place, inbox, warnings: Vec::new(), shown: false };
    let outcome = work.and_then(|mut work| engine.message(&mut work, &mut listener));
    Completed { number, place, outcome, warnings: listener.warnings, shown: listener.shown }
}

/// Forwards text to the printing thread, and keeps warnings until their turn.
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
