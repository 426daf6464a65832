//! A part: a coprocess that answers records with records.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::coprocess::child::{Child, Grace};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Code, Error, Result};

/// A coprocess that answers records with records.
pub struct Part(Child);

impl Part {
    /// Starts `argv`, whose first word is a path. It shares standard error with this process.
    pub fn start(argv: &[impl AsRef<OsStr>]) -> Result<Self> {
        let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        Child::start(Command::new(program).args(arguments), Grace::default()).map(Self)
    }

    /// Wraps a child process.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends an open record.
    pub fn send<T: Serialize + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        self.send_named(kind.name(), data)
    }

    /// Sends an open record of a private type.
    pub fn send_named<T: Serialize + ?Sized>(&mut self, kind: &str, data: &T) -> Result<()> {
        self.0.write(&record::open_line(kind, data)?)
    }

    /// Receives the next record and passes it to `take`. A record that reports a failure, and the end of its output,
    /// are errors.
    pub fn receive<T>(&mut self, take: impl FnOnce(&str, &Record<'_>) -> Result<T>) -> Result<T> {
        let name = self.0.name().to_owned();
        let Some(line) = self.0.next_line()? else { return Err(self.0.gone()) };
        let record = Record::parse(line).map_err(|e| {
            Error::new(Code::Io, format!("{name} answered with a line that is not a record: {}", e.message())).fatal()
        })?;
        if record.ok { take(&name, &record) } else { Err(failure(&name, &record)) }
    }

    /// Waits at most `limit` for a whole answer. Returns true if [`Part::receive`] will not block.
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.0.wait_line(limit)
    }

    /// Sends the closing record and closes the input, so that the part can distinguish the end from a broken pipe.
    /// Errors are ignored, because the part may have exited already.
    pub fn end_input(&mut self) {
        if let Ok(line) = record::closed_line(Kind::Summary.name(), &serde_json::Map::new()) {
            let _ = self.0.write(&line);
        }
        self.0.close_input();
    }

    /// Closes the input, reads the answers to the end, and waits for it to exit.
    pub fn finish(mut self) -> Result<()> {
        self.end_input();
        while self.0.next_line()?.is_some() {}
        self.0.wait().map(drop)
    }
}

/// Converts a failure that a part reports to an error with its code, message, hint and details, and the part's name. A
/// failure that closes the stream is fatal.
pub fn failure(part: &str, record: &Record<'_>) -> Error {
    let error = record.failure().with_absent("part", part);
    if record.closed { error.fatal() } else { error }
}

/// Makes the error for an unexpected record.
pub fn unexpected(part: &str, record: &Record<'_>) -> Error {
    let kind = record.kind_name.as_deref().unwrap_or("answer");
    let message = if record.closed && record.kind == Some(Kind::Summary) {
        format!("{part} closed its stream before it answered")
    } else {
        format!("{part} answered with a `{kind}` record")
    };
    Error::new(Code::Io, message).fatal()
}
