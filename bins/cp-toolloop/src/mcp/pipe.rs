//! The process of a server, and the two threads at its pipes: a server that reads nothing, or writes without end, keeps nobody waiting
//! beyond the time that a call has.

use std::collections::HashMap;
use std::io::{BufWriter, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use cp_common::coprocess::Child;
use cp_common::stream::lines::{Lines, Next};
use cp_common::{Code, Error, Result, signals};
use cp_mcp_wire::{Failure, METHOD_NOT_FOUND, Message, failure, parse, result};
use cp_servers::{LIFETIME, Launcher, ScratchHome, Spec, not_fatal};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How many messages may wait until a server reads them.
const QUEUE: usize = 256;
/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// A server's process. Its failures are not fatal: they are answers for the model.
pub(super) struct Pipe {
    /// Before the child: its input ends when this is dropped, and the child is given time after that.
    outbox: Arc<Outbox>,
    inbox: Arc<Inbox>,
    child: Child,
    /// When the sandbox will end it.
    ends: Option<Instant>,
    home: Option<ScratchHome>,
}

/// What is sent, by a thread that may have to wait.
struct Outbox {
    lines: SyncSender<String>,
    /// How many lines are not written yet.
    unread: Arc<AtomicUsize>,
}

/// What was received, by a thread that keeps only what is waited for.
#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// The requests without an answer that was fetched.
    awaited: HashMap<u64, Option<Arrived>>,
    ended: bool,
}

/// An answer, and when it came.
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) outcome: Result<Box<RawValue>, Failure>,
}

impl Pipe {
    /// Starts the server.
    pub(super) fn open(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let (mut child, home) = launcher.start(spec)?;
        let ends = home.as_ref().map(|_| Instant::now() + LIFETIME);
        let (input, output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
        let (lines, queue) = sync_channel(QUEUE);
        let outbox = Arc::new(Outbox { lines, unread: Arc::default() });
        let inbox = Arc::<Inbox>::default();
        let (unread, into, replies) = (Arc::clone(&outbox.unread), Arc::clone(&inbox), Arc::downgrade(&outbox));
        let started = Builder::new().name("mcp-write".to_owned()).spawn(move || write(input, &queue, &unread));
        let started = started
            .and_then(|_| Builder::new().name("mcp-read".to_owned()).spawn(move || read(output, &into, &replies)));
        started.map_err(|e| Error::io("starting a thread", e))?;
        Ok(Self { outbox, inbox, child, ends, home })
    }

    /// Whether it is still there, and will be for so long.
    pub(super) fn lasts(&mut self, time: Duration) -> bool {
        self.child.is_running() && self.ends.is_none_or(|ends| Instant::now() + time < ends)
    }

    /// It has answered: the home that was made for its start is not needed any more.
    pub(super) fn has_begun(&mut self) {
        self.home = None;
    }

    /// Sends one message, which it may read when it likes. An answer to `id` is kept from now on.
    pub(super) fn send(&mut self, id: Option<u64>, line: serde_json::Result<String>) -> Result<()> {
        let line = line.map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        if let Some(id) = id {
            self.inbox.state().awaited.insert(id, None);
        }
        if self.outbox.send(line) { Ok(()) } else { Err(not_fatal(&self.child.gone())) }
    }

    /// The answer to a request, waited for until then; `None` when that was not enough.
    pub(super) fn answer(&mut self, id: u64, until: Instant) -> Result<Option<Arrived>> {
        let mut state = self.inbox.state();
        loop {
            signals::check()?;
            if let Some(Some(_)) = state.awaited.get(&id) {
                // One that came too late while something else was waited for is late too.
                return Ok(state.awaited.remove(&id).flatten().filter(|arrived| arrived.at <= until));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.awaited.remove(&id);
                return Ok(None);
            }
            if state.ended {
                drop(state);
                return Err(not_fatal(&self.child.gone()));
            }
            let waited = self.inbox.news.wait_timeout(state, left.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether it is being asked something.
    pub(super) fn is_busy(&self) -> bool {
        !self.inbox.state().awaited.is_empty()
    }

    /// Whether something that was sent is not read yet.
    pub(super) fn has_unread(&self) -> bool {
        self.outbox.unread.load(Ordering::Relaxed) > 0
    }

    /// What it wrote last on standard error.
    pub(super) fn error_text(&self) -> String {
        self.child.error_text()
    }
}

impl Outbox {
    /// Whether the line is on its way, or at least waits.
    fn send(&self, line: String) -> bool {
        self.unread.fetch_add(1, Ordering::Relaxed);
        self.lines.try_send(line).is_ok()
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(mut input: BufWriter<ChildStdin>, queue: &Receiver<String>, unread: &AtomicUsize) {
    while let Ok(line) = queue.recv() {
        if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
            return;
        }
        unread.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads to the end. Notifications, late answers and what is not a message pass by; a question of the server is answered.
fn read(mut output: Lines<ChildStdout>, inbox: &Inbox, replies: &Weak<Outbox>) {
    while let Ok(Next::Line(line)) = output.next(&mut || Ok(())) {
        match parse(output.bytes(&line)) {
            Some(Message::Answer { id, outcome }) => {
                let at = Instant::now();
                let mut state = inbox.state();
                if let Some(place) = id.get().parse().ok().and_then(|id: u64| state.awaited.get_mut(&id)) {
                    *place = Some(Arrived { at, outcome: outcome.map(ToOwned::to_owned) });
                    inbox.news.notify_all();
                }
            }
            Some(Message::Request { id, method, .. }) => {
                if let (Some(outbox), Ok(line)) = (replies.upgrade(), reply_to(&method, id)) {
                    outbox.send(line);
                }
            }
            Some(Message::Notification { .. }) | None => {}
        }
    }
    inbox.state().ended = true;
    inbox.news.notify_all();
}

/// The answer to a request of the server: only `ping` is supported.
fn reply_to(method: &str, id: &RawValue) -> serde_json::Result<String> {
    if method == "ping" {
        return result(id, &json!({}));
    }
    failure(id, &Failure { code: METHOD_NOT_FOUND, message: "not supported".to_owned(), data: Value::Null })
}
