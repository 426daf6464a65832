//! `--jobs`: prompts are read ahead and asked in parallel, while the stream that the rest of the program sees stays one item after
//! the other. A thread reads standard input, gives each prompt to a worker, and passes the line on through a pipe that has become
//! standard input. When the line arrives as an item, its answer is taken from here. So order, counts, failures and the closing line
//! are those of a stream without jobs, and at most a window of lines is in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cp_common::input::LINE_LIMIT;
use cp_common::options::InputKind;
use cp_common::record::{Kind, Record};
use cp_common::wire::Message;
use cp_common::{Error, Result, signals};
use serde_json::value::RawValue;

use crate::call::{Listener, Work};
use crate::work::Asker;

/// How many lines are read ahead for each worker: some must wait their turn to be printed while others are asked.
const WINDOW: usize = 4;
/// How long an interrupted program waits for its workers to put on the ledger what became of their requests.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A prompt that is being asked.
struct Slot {
    /// The bytes of the prompt.
    data: String,
    /// The place of its line.
    index: u64,
    answer: Mutex<Option<Answered>>,
}

/// What came of a prompt.
pub(crate) struct Answered {
    /// The message or the failure; no message where an earlier run has printed it.
    pub outcome: Result<Option<Message>>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// The place of its line.
    pub index: u64,
}

/// What the threads share.
struct Board {
    /// Prompts that no worker has taken yet.
    open: Mutex<VecDeque<(Arc<Slot>, Work)>>,
    /// Prompts that were read.
    slots: Mutex<Slots>,
    /// Something changed.
    changed: Condvar,
    /// A prompt is open.
    opened: Condvar,
    busy: AtomicUsize,
    /// No more is to be asked.
    closed: AtomicBool,
}

/// Prompts in the order of the input.
#[derive(Default)]
struct Slots {
    /// Those whose line has not come through the pipe.
    due: VecDeque<Arc<Slot>>,
    /// Those whose answer was not taken.
    held: VecDeque<Arc<Slot>>,
}

/// The reading ahead.
pub(crate) struct Ahead {
    board: Arc<Board>,
    unordered: bool,
}

impl Ahead {
    /// Starts to read ahead, if standard input is a stream of prompts.
    pub(crate) fn start(
        asker: &Arc<Asker>,
        jobs: usize,
        unordered: bool,
        kind: Option<InputKind>,
    ) -> Result<Option<Self>> {
        if kind == Some(InputKind::Text) || std::io::stdin().is_terminal() {
            return Ok(None);
        }
        let io = |e: rustix::io::Errno| Error::io("preparing standard input", e).fatal();
        let input = File::from(rustix::io::dup(rustix::stdio::stdin()).map_err(io)?);
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io)?;
        rustix::stdio::dup2_stdin(&reader).map_err(io)?;
        let board = Arc::new(Board {
            open: Mutex::default(),
            slots: Mutex::default(),
            changed: Condvar::new(),
            opened: Condvar::new(),
            busy: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        for _ in 0..jobs {
            let (asker, board) = (Arc::clone(asker), Arc::clone(&board));
            std::thread::spawn(move || work_off(&asker, &board));
        }
        let (asker, shared) = (Arc::clone(asker), Arc::clone(&board));
        std::thread::spawn(move || {
            let mut scout = Scout { asker, board: shared, kind, lines: 0, window: jobs * WINDOW };
            // A reader that has gone, or an input that cannot be read: either way the stream behind the pipe ends and says so.
            let _ = scout.run(input, File::from(writer));
        });
        Ok(Some(Self { board, unordered }))
    }

    /// The answer to the prompt with these bytes, or, unordered, to any. Nothing when nobody has asked it. `idle` runs before a wait.
    pub(crate) fn take(&self, data: &str, mut idle: impl FnMut() -> Result<()>) -> Result<Option<Answered>> {
        let mut slots = lock(&self.board.slots);
        let due = slots.due.pop_front_if(|slot| slot.data == data);
        let Some(own) = due else { return Ok(None) };
        let mut waited = false;
        loop {
            let is_next = |slot: &Arc<Slot>| self.unordered || Arc::ptr_eq(slot, &own);
            let found = slots.held.iter().position(|slot| is_next(slot) && lock(&slot.answer).is_some());
            if let Some(slot) = found.and_then(|at| slots.held.remove(at)) {
                self.board.changed.notify_all();
                return Ok(lock(&slot.answer).take());
            }
            if std::mem::replace(&mut waited, true) {
                signals::check()?;
                slots = wait(&self.board.changed, slots);
            } else {
                // What is certain is shown before the wait.
                drop(slots);
                idle()?;
                slots = lock(&self.board.slots);
            }
        }
    }

    /// Starts nothing more, and gives the messages that are there and were not taken: they are paid for. With `patience` it waits for
    /// those that are under way; without, and after a signal, the workers have only a moment, for what they put on the ledger.
    pub(crate) fn close(&self, patience: bool) -> Vec<Answered> {
        self.board.closed.store(true, Ordering::Relaxed);
        lock(&self.board.open).clear();
        let asked = Instant::now();
        let in_time = || (patience && !signals::interrupted()) || asked.elapsed() < LAST_WORDS;
        while self.board.busy.load(Ordering::Relaxed) > 0 && in_time() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let held = std::mem::take(&mut lock(&self.board.slots).held);
        let answered = held.iter().filter_map(|slot| lock(&slot.answer).take());
        answered.filter(|answered| matches!(answered.outcome, Ok(Some(_)))).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0
}

/// A worker: asks one prompt after the other.
fn work_off(asker: &Asker, board: &Board) {
    loop {
        let mut open = lock(&board.open);
        let (slot, mut work) = loop {
            if let Some(next) = open.pop_front() {
                break next;
            }
            open = wait(&board.opened, open);
        };
        // Before the lock is given back, so that whoever closes the board sees that this one was begun.
        board.busy.fetch_add(1, Ordering::Relaxed);
        drop(open);
        if signals::interrupted() || board.closed.load(Ordering::Relaxed) {
            board.busy.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut listener = Silent(Vec::new());
        let outcome = asker.engine.message(&mut work, &mut listener).map(Some);
        *lock(&slot.answer) = Some(Answered { outcome, warnings: listener.0, index: slot.index });
        board.busy.fetch_sub(1, Ordering::Relaxed);
        // Under the lock that the one who waits holds, so that no wake-up falls between its look and its sleep.
        drop(lock(&board.slots));
        board.changed.notify_all();
    }
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

/// Reads ahead.
struct Scout {
    asker: Arc<Asker>,
    board: Arc<Board>,
    kind: Option<InputKind>,
    lines: u64,
    window: usize,
}

impl Scout {
    fn run(&mut self, input: File, mut pipe: File) -> std::io::Result<()> {
        let mut input = BufReader::with_capacity(64 << 10, input);
        let mut line = Vec::new();
        loop {
            line.clear();
            let whole = read_line(&mut input, &mut line, &mut pipe)?;
            if line.is_empty() && whole {
                return Ok(());
            }
            // Every line that is not blank has a place, whatever it is: so the stream behind the pipe counts.
            if !line.trim_ascii().is_empty() || !whole {
                if whole {
                    self.dispatch(&line);
                }
                self.lines += 1;
            }
            pipe.write_all(&line)?;
        }
    }

    /// Gives the line to a worker, if it is a prompt.
    fn dispatch(&mut self, line: &[u8]) {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").filter(|_| self.lines == 0).unwrap_or(line).trim_ascii();
        let kind = *self
            .kind
            .get_or_insert_with(|| if Record::looks_like_one(line) { InputKind::Records } else { InputKind::Text });
        let data = match kind {
            InputKind::Text => None,
            InputKind::Rows => {
                cp_common::json::check(line).ok().and_then(|()| serde_json::from_slice::<&RawValue>(line).ok())
            }
            InputKind::Records => {
                Record::parse(line).ok().filter(|r| r.ok && r.kind == Some(Kind::Prompt)).and_then(|r| r.data)
            }
        };
        // What is no good prompt is left to the stream, which says why.
        let Some((data, work)) = data.and_then(|data| Some((data, self.asker.work_of(data).ok()?))) else { return };
        let known = self.asker.done.as_ref().map_or(Ok(false), |done| done.has(self.lines, work.prompt.input()));
        let answer = match known {
            Ok(false) => None,
            other => Some(Answered { outcome: other.map(|_| None), warnings: Vec::new(), index: self.lines }),
        };
        let settled = answer.is_some();
        let slot = Arc::new(Slot { data: data.get().to_owned(), index: self.lines, answer: Mutex::new(answer) });
        let mut slots = lock(&self.board.slots);
        while slots.held.len() >= self.window {
            slots = wait(&self.board.changed, slots);
        }
        slots.due.push_back(Arc::clone(&slot));
        slots.held.push_back(Arc::clone(&slot));
        drop(slots);
        if settled {
            self.board.changed.notify_all();
            return;
        }
        lock(&self.board.open).push_back((slot, work));
        self.board.opened.notify_one();
    }
}

/// Reads a line with its end. One that is too long goes straight into the pipe, piece by piece; false then.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, pipe: &mut impl Write) -> std::io::Result<bool> {
    let mut whole = true;
    loop {
        let bytes = match input.fill_buf() {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let end = memchr::memchr(b'\n', bytes).map(|at| at + 1);
        let length = end.unwrap_or(bytes.len());
        line.extend_from_slice(&bytes[..length]);
        input.consume(length);
        if end.is_some() || length == 0 {
            return Ok(whole);
        }
        if line.len() > LINE_LIMIT {
            whole = false;
            pipe.write_all(line)?;
            line.clear();
        }
    }
}
