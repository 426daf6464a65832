//! Programs as backends: an executable that reads `prompt` records and answers each with a `message` record. Coding
//! agents and the `llm` program have an adaptor that does.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, cmd, find, grouped};
use cp_common::wire::record::{Kind, Record, open_line};
use cp_common::wire::{Delta, Message, ToolCall, Usage};
use cp_common::{Code, Error, Result};
use serde::de::IgnoredAny;

use super::{Backend, Exchange};
use crate::wire_api::{Answer, OnText, Request, TextKind, bad_answer, cut};

/// The time that a program has to exit after its input ended. A model may need some time to release its resources.
const OPTIONS: ChildOptions = ChildOptions {
    after_input: Duration::from_secs(1),
    after_term: Duration::from_millis(200),
    ..ChildOptions::DEFAULT
};

/// The program that runs an agent and converts its stream to records.
const AGENT: &str = "cp-agent";

/// An executable that answers records with records. It is started on first use and kept running, except an agent: each
/// of its answers has a process group of its own, so that programs that the agent leaves running are stopped after the
/// answer.
pub(super) struct ExternalBackend {
    /// The path as the user gave it, or the name of an agent.
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
    is_agent: bool,
    limit: Duration,
    idle: Mutex<Vec<Child>>,
}

impl Backend for ExternalBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn reports_cost(&self) -> bool {
        // Codex and Gemini CLI report tokens only, and opencode no cost of a model that it does not know.
        self.is_agent && self.name == "claude"
    }

    fn exchange(&self, request: &Request, _: &[u8], show: &mut OnText<'_>) -> Exchange {
        let outcome = self.answer(request, show);
        // A program reports the usage of a failed answer in the details of its error.
        let usage = outcome.as_ref().err().and_then(|error| error.details().get("usage").cloned());
        Exchange { usage: usage.and_then(|usage| serde_json::from_value(usage).ok()), ..Exchange::of(outcome) }
    }
}

impl ExternalBackend {
    /// The executable at a path, with a time limit for each answer.
    pub(super) fn at(name: &str, arguments: &[String], limit: Duration) -> Result<Self> {
        let path = find(name).map_err(Error::fatal)?;
        let arguments = arguments.to_vec();
        Ok(Self { name: name.to_owned(), path, arguments, is_agent: false, limit, idle: Mutex::default() })
    }

    /// The adaptor of an agent, with more arguments for the agent.
    pub(super) fn agent(name: &str, arguments: &[String], limit: Duration) -> Result<Self> {
        let arguments = [&[name.to_owned()], arguments].concat();
        Ok(Self { name: name.to_owned(), is_agent: true, ..Self::at(AGENT, &arguments, limit)? })
    }

    fn answer(&self, request: &Request, show: &mut OnText<'_>) -> Result<Answer> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut child = match kept {
            Some(child) => child,
            None => Child::start(&self.name, &grouped(&cmd(&self.path, &self.arguments)), OPTIONS)?,
        };
        let answer = exchange(&mut child, request, Instant::now() + self.limit, show)?;
        // A program that failed is not used again.
        if !self.is_agent {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
        Ok(answer)
    }
}

fn exchange(child: &mut Child, request: &Request, end: Instant, show: &mut OnText<'_>) -> Result<Answer> {
    // A program that has exited may have left a line, which says more than that it cannot be written to.
    if let Err(error) = child.write(&open_line(Kind::Prompt.name(), request)?)
        && error.code() == Code::Interrupted
    {
        return Err(error);
    }
    loop {
        if !child.wait_line(end.saturating_duration_since(Instant::now()))? {
            return Err(Error::new(Code::Timeout, "the program did not answer in time")
                .hint("raise --timeout to allow for longer answers"));
        }
        let Some(line) = child.next_line()? else { return Err(cut()) };
        let record = Record::parse(line).map_err(|e| {
            let is_partial = serde_json::from_slice::<IgnoredAny>(line).is_err_and(|e| e.is_eof());
            if is_partial { cut() } else { incomplete(e.message()) }
        })?;
        if !record.ok {
            return Err(record.failure());
        }
        match record.kind {
            Some(Kind::Delta) => {
                let Delta { text, thinking, .. } = record.read()?;
                thinking.map_or(Ok(()), |thinking| show(TextKind::Thinking, &thinking))?;
                if !text.is_empty() {
                    show(TextKind::Answer, &text)?;
                }
            }
            Some(Kind::Message) => return answer_of(record.read().map_err(|e| incomplete(e.message()))?),
            None => return Err(incomplete("its `type` is not one of cp-record(5)")),
            _ => {}
        }
    }
}

/// The error for a line that is not a complete message.
fn incomplete(why: &str) -> Error {
    bad_answer("invalid_json", &format!("the program's message is not complete: {why}"))
}

fn answer_of(message: Message) -> Result<Answer> {
    let calls = message.tool_calls.into_iter().map(|call| ToolCall { timeout: None, untrusted: Vec::new(), ..call });
    Answer {
        id: Some(message.id),
        model: Some(message.model),
        content: message.content,
        calls: calls.collect(),
        blocks: message.blocks,
        stop: message.stop_reason,
        usage: Some(message.usage).filter(|usage| *usage != Usage::default()),
    }
    .checked()
}
