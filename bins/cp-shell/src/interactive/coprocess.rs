//! A part that answers a turn, and that an interruption ends while the session goes on: a thread reads its answers, so that the wait
//! for them is one for an interruption as well. `cp_common::coprocess` looks the program up; its own waits end for good with the first SIGINT.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cp_common::coprocess;
use cp_common::output::to_stderr;
use cp_common::wire::record::SCHEMA_VERSION;
use cp_common::{Code, Error, Result};
use serde_json::value::RawValue;

use crate::interactive::interrupt;

/// How often the wait for an answer looks for an interruption.
const LOOK: Duration = Duration::from_millis(20);
/// How long a word to people is held back: an answer that says the same would be there by then.
const HOLD: Duration = Duration::from_millis(150);
/// How long a part has to leave when its input ends, and when it is asked to.
const LEAVE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// A part that runs.
#[derive(Debug)]
pub(crate) struct Coprocess {
    name: String,
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Vec<u8>>,
    /// What one of ours said to people, and when: that it tries again, or why it failed.
    told: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Coprocess {
    /// Starts one of our programs.
    pub(crate) fn start(name: &str, arguments: &[String]) -> Result<Self> {
        let mut started =
            Self::spawn(name, Command::new(coprocess::find(name)?).args(arguments).stderr(Stdio::piped()))?;
        if let Some(stderr) = started.child.stderr.take() {
            let told = Arc::clone(&started.told);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
                    if let Ok(mut told) = told.lock() {
                        told.push((Instant::now(), line));
                    }
                }
            })?;
        }
        Ok(started)
    }

    /// Starts a program that the person named. What it says to people they see.
    pub(crate) fn of_program(argv: &[String]) -> Result<Self> {
        let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        Self::spawn(program, Command::new(program).args(arguments))
    }

    fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io(format!("starting {name}"), e))?;
        let requests = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| Error::new(Code::Io, format!("starting {name}: no pipe")))?;
        // A terminal that takes words slowly must not make us hold all of them.
        let (sender, answers) = sync_channel(256);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { name: name.to_owned(), child, requests, answers, told: Arc::default() })
    }

    /// Sends a record.
    pub(crate) fn send(&mut self, kind: &str, data: &RawValue) -> Result<()> {
        // What it said of the last one has come with its answer.
        if let Ok(mut told) = self.told.lock() {
            told.clear();
        }
        let line = format!(
            "{{\"ok\":true,\"schema_version\":\"{SCHEMA_VERSION}\",\"type\":\"{kind}\",\"data\":{}}}\n",
            data.get()
        );
        self.write(line.as_bytes())
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self) -> Result<()> {
        let line = format!(
            "{{\"ok\":true,\"schema_version\":\"{SCHEMA_VERSION}\",\"type\":\"summary\",\"data\":{{}},\"meta\":{{\"duration_ms\":0}}}}\n"
        );
        let written = self.write(line.as_bytes());
        self.requests = None;
        written
    }

    fn write(&mut self, line: &[u8]) -> Result<()> {
        let Some(requests) = &mut self.requests else { return Err(self.gone()) };
        requests.write_all(line).map_err(|e| {
            if interrupt::seen() {
                return interrupt::error();
            }
            Error::new(Code::Io, format!("{} takes no more requests: {e}", self.name))
        })
    }

    /// The next line of its answers; none after the last.
    pub(crate) fn receive(&self) -> Result<Option<Vec<u8>>> {
        self.receive_within(Duration::MAX)
    }

    /// The next line of its answers, if it comes in time.
    pub(crate) fn receive_within(&self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let asked = Instant::now();
        loop {
            if interrupt::seen() {
                return Err(interrupt::error());
            }
            if asked.elapsed() > limit {
                let message = format!("{} did not answer within {} s", self.name, limit.as_secs());
                return Err(Error::new(Code::Timeout, message));
            }
            match self.answers.recv_timeout(LOOK) {
                Ok(mut line) => {
                    line.truncate(line.trim_ascii_end().len());
                    return Ok(Some(line));
                }
                Err(RecvTimeoutError::Timeout) => self.pass_on(),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Passes on what it says to people while it works. Why it failed comes with its answer, and is said once.
    fn pass_on(&self) {
        let Ok(mut told) = self.told.lock() else { return };
        let old = told.iter().take_while(|(at, _)| at.elapsed() > HOLD).count();
        for (_, line) in told.drain(..old) {
            // Where nobody reads it, nothing is lost that is not on the ledger.
            to_stderr(&format!("{line}\n"));
        }
    }

    /// Whether it has left.
    pub(crate) fn has_left(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn leaves_within(&mut self, limit: Duration) -> bool {
        let asked = Instant::now();
        while asked.elapsed() < limit {
            // What it still says is not wanted, and must not keep it.
            while self.answers.try_recv().is_ok() {}
            if self.has_left() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// What its silence means.
    pub(crate) fn gone(&self) -> Error {
        if interrupt::seen() {
            return interrupt::error();
        }
        Error::new(Code::Io, format!("{} ended before it answered", self.name))
    }
}

impl Drop for Coprocess {
    /// It does not outlive what it was started for: it sees the end, is asked to leave, and then made to.
    fn drop(&mut self) {
        let _ = self.close();
        let idle = !interrupt::seen() && self.leaves_within(LEAVE[0]);
        if idle {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if !self.leaves_within(LEAVE[1]) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
