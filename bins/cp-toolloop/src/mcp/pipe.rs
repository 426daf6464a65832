//! The process of a server and its pipes: one JSON object a line, each way, and a little of what it complains about.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cp_common::stream::lines::{Lines, Next};
use cp_common::{Code, Error, Result, signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use serde_json::value::RawValue;

use super::launch::{Ground, Place};
use super::{LIFETIME, Spec};

/// How long a server has to leave after its standard input is closed, and again after it was asked to.
const PATIENCE: Duration = Duration::from_millis(500);
/// How much of its first complaints is kept, for the error that says it ended.
const COMPLAINT: usize = 2000;

/// A server's process.
pub(super) struct Pipe {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    /// The same descriptor again, to wait on while a line is half there.
    readable: OwnedFd,
    complaints: Complaints,
    /// When the sandbox will end it.
    ends: Option<Instant>,
    place: Option<Place>,
}

impl Pipe {
    /// Starts the server.
    pub(super) fn open(spec: &Spec, ground: &Ground) -> Result<Self> {
        let mut started = ground.start(spec)?;
        let none = |what: &str| Error::new(Code::Io, format!("the server {} has no {what}", spec.name));
        let stdin = started.child.stdin.take();
        let stdout = started.child.stdout.take().ok_or_else(|| none("output"))?;
        let complaints = Complaints::of(started.child.stderr.take().ok_or_else(|| none("error output"))?);
        let readable = stdout.as_fd().try_clone_to_owned().map_err(|e| Error::io("watching a server", e))?;
        let ends = started.is_sandboxed.then(|| Instant::now() + LIFETIME);
        let (child, place) = (started.child, started.place);
        Ok(Self { name: spec.name.clone(), child, stdin, lines: Lines::new(stdout), readable, complaints, ends, place })
    }

    /// Whether it is still there, and will be for so long.
    pub(super) fn lasts(&mut self, time: Duration) -> bool {
        matches!(self.child.try_wait(), Ok(None)) && self.ends.is_none_or(|ends| Instant::now() + time < ends)
    }

    /// It has answered: what was made for its start is not needed any more.
    pub(super) fn has_begun(&mut self) {
        self.place = None;
    }

    /// Sends one message.
    pub(super) fn send(&mut self, message: &Value) -> Result<()> {
        self.send_line(message.to_string().into_bytes())
    }

    /// Sends one message whose `params.arguments` are bytes that are kept as they are.
    pub(super) fn send_call(&mut self, mut message: Value, arguments: &RawValue) -> Result<()> {
        // Written into the text and not through a value: a long integer must not become a float.
        const HOLE: &str = "\u{1}arguments\u{1}";
        message["params"]["arguments"] = Value::from(HOLE);
        let text = message.to_string().replacen(&Value::from(HOLE).to_string(), arguments.get(), 1);
        self.send_line(text.into_bytes())
    }

    fn send_line(&mut self, mut line: Vec<u8>) -> Result<()> {
        line.push(b'\n');
        let Some(stdin) = &mut self.stdin else { return Err(self.gone()) };
        let sent = stdin.write_all(&line).and_then(|()| stdin.flush());
        sent.map_err(|_| self.gone())
    }

    /// The next message, waited for until then; `None` when that was not enough. Lines that are no JSON object are passed over:
    /// servers print banners.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Option<Box<RawValue>>> {
        loop {
            let mut late = false;
            // Before each read, and not only before the first: half a line must not outlast the time.
            let mut in_time = || {
                let left = until.saturating_duration_since(Instant::now());
                late = left.is_zero() || !signals::wait_readable(self.readable.as_fd(), Some(left))?;
                if late { Err(Error::new(Code::Timeout, "the server is late")) } else { Ok(()) }
            };
            let line = match self.lines.next(&mut in_time) {
                Err(_) if late => return Ok(None),
                Err(error) => return Err(error),
                Ok(Next::Line(line)) => self.lines.bytes(&line),
                Ok(Next::TooLong(_)) => continue,
                Ok(Next::End) => return Err(self.gone()),
            };
            if line.trim_ascii_start().starts_with(b"{")
                && let Ok(message) = serde_json::from_slice(line)
            {
                return Ok(Some(message));
            }
        }
    }

    /// That it ended, with what it said of that.
    fn gone(&mut self) -> Error {
        let said = self.complaints.first_words();
        let message = format!("the server {} ended", self.name);
        Error::new(Code::Io, if said.is_empty() { message } else { format!("{message}: {said}") })
    }

    fn leaves_within(&mut self, patience: Duration) -> bool {
        let asked = Instant::now();
        while asked.elapsed() < patience {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Drop for Pipe {
    /// Its input ends, then it is asked, then it is made to go.
    fn drop(&mut self) {
        self.stdin = None;
        if self.leaves_within(PATIENCE) {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if !self.leaves_within(PATIENCE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a server says on standard error: read to the end, the beginning kept.
struct Complaints {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Complaints {
    fn of(mut stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&kept);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                let room = COMPLAINT.saturating_sub(kept.len()).min(length);
                kept.extend_from_slice(&buffer[..room]);
            }
        });
        Self { kept, reader }
    }

    /// On one line, without what a terminal would obey. A server that just ended may have its words still in the pipe.
    fn first_words(&self) -> String {
        let asked = Instant::now();
        while !self.reader.is_finished() && asked.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
        lines.collect::<Vec<_>>().join("; ").replace(char::is_control, " ")
    }
}
