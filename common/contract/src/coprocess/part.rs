//! A part: a program that runs beside this one and answers records with records.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::coprocess::child::{Child, Grace};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Code, Error, Result};

/// A program that answers records with records.
pub struct Part(Child);

impl Part {
    /// Starts `argv`, whose first word is a path. Its standard error is ours.
    pub fn start(argv: &[impl AsRef<OsStr>]) -> Result<Self> {
        let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        Child::start(Command::new(program).args(arguments), Grace::default()).map(Self)
    }

    /// The part that a child process is.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends one open record.
    pub fn send<T: Serialize + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        self.send_named(kind.name(), data)
    }

    /// Sends one open record of a type that only the two of us know.
    pub fn send_named<T: Serialize + ?Sized>(&mut self, kind: &str, data: &T) -> Result<()> {
        self.0.write(&record::open_line(kind, data)?)
    }

    /// The next record of its answers, given to `take`. One that reports a failure is a failure of ours; so is an end.
    pub fn receive<T>(&mut self, take: impl FnOnce(&str, &Record<'_>) -> Result<T>) -> Result<T> {
        let name = self.0.name().to_owned();
        let Some(line) = self.0.next_line()? else { return Err(self.0.gone()) };
        let record = Record::parse(line).map_err(|e| {
            Error::new(Code::Io, format!("{name} answered with a line that is not a record: {}", e.message())).fatal()
        })?;
        if record.ok { take(&name, &record) } else { Err(failure(&name, &record)) }
    }

    /// Waits for a whole answer, at most so long. True when [`Part::receive`] will not wait.
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.0.wait_line(limit)
    }

    /// Says that no more will be sent, which tells the end from a break. A part that has left already needs no word.
    pub fn end_input(&mut self) {
        if let Ok(line) = record::closed_line(Kind::Summary.name(), &serde_json::Map::new()) {
            let _ = self.0.write(&line);
        }
        self.0.close_input();
    }

    /// Says that no more will be sent, reads its answers to the end, and waits for it to leave.
    pub fn finish(mut self) -> Result<()> {
        self.end_input();
        while self.0.next_line()?.is_some() {}
        self.0.wait().map(drop)
    }
}

/// The failure that a record of a part reports, as ours: with its code, message, hint and details, and the part's name. One that
/// closes its stream is the part's own, and ends us too.
pub fn failure(part: &str, record: &Record<'_>) -> Error {
    let error = record.failure().with_absent("part", part);
    if record.closed { error.fatal() } else { error }
}

/// The error for an unexpected record.
pub fn unexpected(part: &str, record: &Record<'_>) -> Error {
    let kind = record.kind_name.as_deref().unwrap_or("answer");
    let message = if record.closed && record.kind == Some(Kind::Summary) {
        format!("{part} closed its stream before it answered")
    } else {
        format!("{part} answered with a `{kind}` record")
    };
    Error::new(Code::Io, message).fatal()
}
