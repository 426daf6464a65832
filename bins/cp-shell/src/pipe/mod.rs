//! Pipe mode: requests on standard input, and one answer on each line. A request is recorded in the ledgers before it
//! is answered.

pub(crate) mod responder;
mod split;

use std::time::Duration;

use cp_common::output::{Format, printable, to_stderr};
use cp_common::{Code, Context, Error, Result, signals};
use rustix::io::Errno;
use serde_json::Value;

use self::responder::{Responder, Response};
use self::split::{Piece, Splitter};
use crate::journal::{self, Journal};
use crate::plane::{Failure, Plane};

/// The maximum number of bytes of answers that wait for the next commit.
const WAITING: usize = 128 << 10;

/// Answers the requests on standard input about the tree, as `agent`.
pub(crate) fn run(agent: Option<&str>, context: &mut Context) -> Result<()> {
    // Every answer must be recorded, so signals only interrupt the waits.
    let _effect = signals::effect();
    let plane = Plane::of_context(context)?;
    let agent = context.agent(agent);
    let joined = journal::joined(context)?;
    let journal = Journal::open(joined.as_ref(), &agent, context)?;
    let mut pipe = Pipe {
        responder: Responder::new(plane, journal, context.tier()),
        answers: Vec::new(),
        asked: 0,
        failed: false,
    };
    let mut outcome = pipe.answer_all(context);
    if let Err(error) = &outcome
        && error.code() == Code::Interrupted
    {
        // Requests that were completed before the signal are answered.
        outcome = pipe.flush(context).and(outcome);
    }
    let ended = pipe.responder.end(context);
    outcome.and(ended)
}

struct Pipe {
    responder: Responder,
    /// Answers that wait until their turns are recorded.
    answers: Vec<u8>,
    asked: u64,
    failed: bool,
}

impl Pipe {
    fn answer_all(&mut self, context: &mut Context) -> Result<()> {
        let (mut splitter, mut pieces) = (Splitter::new(), Vec::new());
        let mut block = vec![0; 64 << 10];
        loop {
            let read = self.read(&mut block, context)?;
            if read == 0 {
                splitter.finish(&mut pieces);
            } else {
                splitter.feed(&block[..read], &mut pieces);
            }
            for piece in pieces.drain(..) {
                signals::check()?;
                self.asked += 1;
                let response = match piece {
                    Piece::Value(bytes) => self.responder.answer(&bytes, context)?,
                    Piece::Broken(broken) => self.responder.broken(&broken)?,
                };
                self.answer(&response, context)?;
            }
            if read == 0 {
                break;
            }
        }
        if self.asked == 0 {
            let response = self.responder.empty()?;
            self.answer(&response, context)?;
        }
        self.flush(context)?;
        context.out.ended_with(u8::from(self.failed));
        Ok(())
    }

    /// Reads available input. Answers are flushed before a wait.
    fn read(&mut self, block: &mut [u8], context: &mut Context) -> Result<usize> {
        let stdin = rustix::stdio::stdin();
        if !signals::wait_readable(stdin, Some(Duration::ZERO))? {
            self.flush(context)?;
            signals::wait_readable(stdin, None)?;
        }
        loop {
            match rustix::io::read(stdin, &mut *block) {
                Ok(read) => return Ok(read),
                Err(Errno::INTR) => signals::check()?,
                Err(Errno::AGAIN) => {
                    signals::wait_readable(stdin, None)?;
                }
                Err(e) => return Err(Error::io("reading standard input", std::io::Error::from(e))),
            }
        }
    }

    fn answer(&mut self, response: &Response, context: &mut Context) -> Result<()> {
        if let Some(error) = &response.error {
            self.failed = true;
            warn(self.asked.max(1), error, context.out.format());
        }
        let line = match (context.out.format(), &response.result) {
            (Format::Json, _) => serde_json::to_vec(response).ok(),
            (Format::Text, Some(result)) => Some(printable(&format!("{result:#}")).into_owned().into_bytes()),
            (Format::Raw, Some(result)) => Some(result.to_string().into_bytes()),
            (_, None) => None,
        };
        if let Some(line) = line {
            self.answers.extend(line);
            self.answers.push(b'\n');
        }
        if self.answers.len() >= WAITING { self.flush(context) } else { Ok(()) }
    }

    /// Records the answered requests, and writes the answers.
    fn flush(&mut self, context: &mut Context) -> Result<()> {
        self.responder.commit()?;
        context.out.raw(&self.answers)?;
        self.answers.clear();
        context.out.flush()
    }
}

/// Reports a failed request on standard error.
fn warn(request: u64, error: &Failure, format: Format) {
    let hint = error.details.get("hint").and_then(Value::as_str).filter(|_| format != Format::Json);
    let hint = hint.map(|hint| format!("  Hint: {hint}\n")).unwrap_or_default();
    let words = match format {
        Format::Json => format!("cp-shell: request {request}: {}: {}\n", error.code, error.message),
        Format::Text | Format::Raw => format!("✗ {}: {}\n{hint}", error.code, error.message),
    };
    to_stderr(&words);
}
