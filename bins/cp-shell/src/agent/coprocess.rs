//! A coprocess that answers turns. The standard error of our own programs is shown to the person while they work.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::PipeReader;
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, cmd, find, split};
use cp_common::output::to_stderr;
use cp_common::stream::lines::Lines;
use cp_common::wire::record::Record;
use cp_common::{Code, Error, Result};
use serde::Serialize;

/// The interval at which standard error is read while waiting for an answer.
const LOOK: Duration = Duration::from_millis(20);
/// The delay before a line of standard error is shown, in which an answer with the same message would arrive.
const HOLD: Duration = Duration::from_millis(150);
/// The time that a program has to exit.
const OPTIONS: ChildOptions = ChildOptions { after_term: Duration::from_secs(1), ..ChildOptions::DEFAULT };

/// A coprocess that exchanges records.
pub(super) struct Coprocess {
    part: Child,
    errors: Option<StandardError>,
    /// True if all records of the last turn were read: false while a turn is answered, and after an interrupted turn.
    in_step: bool,
}

impl Coprocess {
    /// Starts one of our programs.
    pub(super) fn start(name: &str, arguments: &[OsString]) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        // The command is dropped at the end of the statement, and with it our end of the pipe.
        let part = Child::start(name, &cmd(find(name)?, arguments).stderr_file(writer), OPTIONS)?;
        let errors = StandardError { lines: Lines::new(reader), held: VecDeque::new() };
        Ok(Self { part, errors: Some(errors), in_step: true })
    }

    /// Starts a program that the person named. It inherits standard error.
    pub(super) fn of_program(argv: &[String]) -> Result<Self> {
        let (program, arguments) = split(argv)?;
        let part = Child::start(program, &cmd(program, arguments), OPTIONS)?;
        Ok(Self { part, errors: None, in_step: true })
    }

    /// Sends a record.
    pub(super) fn send<T: Serialize + ?Sized>(&mut self, kind: &str, data: &T) -> Result<()> {
        self.in_step = false;
        if let Some(errors) = &mut self.errors {
            errors.forget()?;
        }
        self.part.send(kind, data)
    }

    /// Ends its input.
    pub(super) fn close(&mut self) {
        self.part.end_input();
    }

    /// Receives the next record, within a time limit if there is one. A record that reports a failure is an error.
    pub(super) fn receive<T>(
        &mut self,
        limit: Option<Duration>,
        take: impl FnOnce(&Record<'_>) -> Result<T>,
    ) -> Result<T> {
        let asked = Instant::now();
        self.in_step = false;
        while !self.part.wait_line(LOOK)? {
            if let Some(errors) = &mut self.errors {
                errors.pass_on()?;
            }
            if let Some(limit) = limit.filter(|limit| asked.elapsed() > *limit) {
                let message = format!("{} did not answer within {} s", self.part.name(), limit.as_secs());
                return Err(Error::new(Code::Timeout, message));
            }
        }
        let mut closed = None;
        let received = self.part.receive(|_, record| {
            closed = Some(record.closed);
            take(record)
        });
        self.in_step = match (&received, closed) {
            (Ok(_), closed) => closed == Some(false),
            // The program reported a failure and its stream is still open.
            (Err(error), None) => !error.is_fatal() && error.code() != Code::Interrupted,
            (Err(_), Some(_)) => false,
        };
        received
    }

    /// True if another turn can be sent: the program runs, its stream is open, and no record is unread.
    pub(super) fn can_go_on(&mut self) -> bool {
        self.in_step && self.part.is_running()
    }
}

impl Drop for Coprocess {
    /// Sends the closing line, which marks an orderly end. The process is stopped when it is dropped.
    fn drop(&mut self) {
        self.close();
    }
}

/// The standard error of a program. Each line is delayed, because the reason of a failure also arrives with the answer
/// and must be shown once.
struct StandardError {
    lines: Lines<PipeReader>,
    held: VecDeque<(Instant, String)>,
}

impl StandardError {
    /// Shows the lines whose delay is over.
    fn pass_on(&mut self) -> Result<()> {
        self.read()?;
        while let Some((_, line)) = self.held.pop_front_if(|(since, _)| since.elapsed() > HOLD) {
            // A failure to write is ignored, because the ledger has the error.
            to_stderr(&format!("{line}\n"));
        }
        Ok(())
    }

    /// Discards the lines about the last turn, which arrived with its answer.
    fn forget(&mut self) -> Result<()> {
        self.read()?;
        self.held.clear();
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        while self.lines.wait_line(Duration::ZERO)?
            && let Some(line) = self.lines.next(&mut || Ok(()))?
        {
            self.held.push_back((Instant::now(), String::from_utf8_lossy(self.lines.bytes(&line)?).into_owned()));
        }
        Ok(())
    }
}
