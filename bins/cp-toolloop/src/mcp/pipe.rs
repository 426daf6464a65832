//! The process of a server and its pipes: one JSON object a line, each way.

use std::time::{Duration, Instant};

use cp_common::Result;
use cp_common::coprocess::Child;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Spec;
use super::launch::{Launcher, ScratchHome, not_fatal};
use super::policy::LIFETIME;

/// A server's process. Its failures are not fatal: they are answers for the model.
pub(super) struct Pipe {
    child: Child,
    /// When the sandbox will end it.
    ends: Option<Instant>,
    home: Option<ScratchHome>,
}

impl Pipe {
    /// Starts the server.
    pub(super) fn open(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let (child, home) = launcher.start(spec)?;
        let ends = home.as_ref().map(|_| Instant::now() + LIFETIME);
        Ok(Self { child, ends, home })
    }

    /// Whether it is still there, and will be for so long.
    pub(super) fn lasts(&mut self, time: Duration) -> bool {
        self.child.is_running() && self.ends.is_none_or(|ends| Instant::now() + time < ends)
    }

    /// It has answered: the home that was made for its start is not needed any more.
    pub(super) fn has_begun(&mut self) {
        self.home = None;
    }

    /// Sends one message.
    pub(super) fn send(&mut self, message: &Value) -> Result<()> {
        self.send_line(message.to_string())
    }

    /// Sends one message whose `params.arguments` are bytes that are kept as they are.
    pub(super) fn send_call(&mut self, mut message: Value, arguments: &RawValue) -> Result<()> {
        // Written into the text and not through a value: a long integer must not become a float.
        const HOLE: &str = "\u{1}arguments\u{1}";
        message["params"]["arguments"] = Value::from(HOLE);
        self.send_line(message.to_string().replacen(&Value::from(HOLE).to_string(), arguments.get(), 1))
    }

    fn send_line(&mut self, mut line: String) -> Result<()> {
        line.push('\n');
        // One that takes no more has ended, and perhaps said why.
        self.child.write(line.as_bytes()).map_err(|_| not_fatal(&self.child.gone()))
    }

    /// The next message, waited for until then; `None` when that was not enough. Lines that are not JSON objects are passed over:
    /// servers print banners.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Option<Box<RawValue>>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A partial line does not count, so none can outlast the time.
            if left.is_zero() || !self.child.wait_line(left).map_err(|e| not_fatal(&e))? {
                return Ok(None);
            }
            let Some(line) = self.child.next_line().map_err(|e| not_fatal(&e))? else {
                return Err(not_fatal(&self.child.gone()));
            };
            if line.trim_ascii_start().starts_with(b"{")
                && let Ok(message) = serde_json::from_slice(line)
            {
                return Ok(Some(message));
            }
        }
    }
}
