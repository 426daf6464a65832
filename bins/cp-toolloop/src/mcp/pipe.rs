//! The process of a server and its two pipes: one JSON object a line, each way.

use std::io::Write as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::input::{Lines, Next};
use cp_common::{Code, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Spec;

/// How long a server has to leave after its standard input is closed, and again after it was asked to.
const PATIENCE: Duration = Duration::from_millis(500);
/// The variables that every server has.
const ENVIRONMENT: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A server's process.
pub(super) struct Pipe {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
}

impl Pipe {
    /// Starts the server, with as little of our environment as it can live with. What it says on standard error is its own affair.
    pub(super) fn open(spec: &Spec) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(format!("starting the server {}", spec.name), e);
        let (program, arguments) = spec.argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        let given = ENVIRONMENT.into_iter().chain(spec.env.iter().map(String::as_str));
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(given.filter_map(|name| Some((name, std::env::var_os(name)?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.ok_or_else(|| Error::new(Code::Io, format!("the server {} has no output", spec.name)))?;
        Ok(Self { name: spec.name.clone(), child, stdin, lines: Lines::new(stdout) })
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
        let gone = self.gone();
        let Some(stdin) = &mut self.stdin else { return Err(gone) };
        stdin.write_all(&line).and_then(|()| stdin.flush()).map_err(|_| gone)
    }

    /// The next message, waited for until then; `None` when that was not enough. Lines that are no JSON object are passed over:
    /// servers print banners.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Option<Box<RawValue>>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.lines.wait(left)? {
                return Ok(None);
            }
            let line = match self.lines.next(&mut || Ok(()))? {
                Next::Line(line) => self.lines.bytes(&line),
                Next::TooLong(_) => continue,
                Next::End => return Err(self.gone()),
            };
            if line.trim_ascii_start().starts_with(b"{")
                && let Ok(message) = serde_json::from_slice(line)
            {
                return Ok(Some(message));
            }
        }
    }

    fn gone(&self) -> Error {
        Error::new(Code::Io, format!("the server {} ended", self.name))
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
