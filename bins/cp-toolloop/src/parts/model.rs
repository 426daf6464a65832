//! The model as a coprocess: it reads prompts, and writes deltas and messages.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, cmd, split, unexpected};
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message, Prompt, ToolCall};
use cp_common::{Context, Result};

use crate::state::conversation::Conversation;
use crate::state::plan::{ModelCommand, is_ours};

/// The coprocess of a model.
pub(crate) struct Model {
    command: ModelCommand,
    /// The options that share a budget.
    budget: Vec<String>,
    part: Option<Child>,
    /// The deltas of the last answer.
    pub(crate) deltas: Vec<Delta>,
}

impl Model {
    /// The model of a command, which the first request starts.
    pub(crate) fn new(command: ModelCommand, budget: Vec<String>) -> Self {
        Self { command, budget, part: None, deltas: Vec::new() }
    }

    /// Asks for the next turn of a conversation; `None` after the time limit. A program that drives the loop itself
    /// gets only the new results.
    pub(crate) fn ask(
        &mut self,
        so_far: &Conversation,
        limit: Option<Duration>,
        context: &mut Context,
    ) -> Result<Option<Message>> {
        self.deltas.clear();
        let until = limit.map(|limit| Instant::now() + limit);
        let knows = self.command.drives && self.part.is_some();
        let part = match &mut self.part {
            Some(part) => part,
            none => none.insert(start(&self.command, &self.budget, context)?),
        };
        if knows {
            so_far.returned.iter().try_for_each(|result| part.send(Kind::ToolResult.name(), result))?;
        } else if so_far.returned.is_empty() {
            part.send(Kind::Prompt.name(), &so_far.prompt)?;
        } else {
            // The results are on the ledger already.
            let history = so_far.prompt.messages.len();
            part.send(Kind::Prompt.name(), &Prompt { history, ..so_far.prompt.clone() })?;
        }
        loop {
            if let Some(until) = until
                && !part.wait_line(until.saturating_duration_since(Instant::now()))?
            {
                self.part = None;
                return Ok(None);
            }
            let answer = part.receive(|name, record| match record.kind {
                Some(Kind::Message) => record.read::<Message>().map(Some),
                Some(Kind::ToolCall) => record.read::<ToolCall>().map(|call| Some(message_of(call, name))),
                Some(Kind::Delta) => {
                    let delta = record.read()?;
                    show(&delta, context)?;
                    self.deltas.push(delta);
                    Ok(None)
                }
                _ => Err(unexpected(name, record)),
            })?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    /// Stops an idle model.
    pub(crate) fn stop(&mut self) {
        if let Some(mut part) = self.part.take() {
            part.end_input();
        }
    }

    /// Ends its input, and waits until it exits.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.part.take().map_or(Ok(()), Child::finish)
    }
}

/// A message for a call that a program sends without a message.
fn message_of(call: ToolCall, backend: &str) -> Message {
    Message {
        id: call.id.clone(),
        role: "assistant".to_owned(),
        tool_calls: vec![call],
        backend: backend.to_owned(),
        stop_reason: "tool_use".to_owned(),
        ..Message::default()
    }
}

/// Starts the coprocess. One of the cp-tools gets the context of this command.
fn start(command: &ModelCommand, budget: &[String], context: &Context) -> Result<Child> {
    let (program, words) = split(&command.argv)?;
    let mut words: Vec<OsString> = words.iter().chain(budget).map(OsString::from).collect();
    if command.asking().is_some_and(is_ours) {
        words.push("--closed".into());
        words.extend(context.handed_on());
    }
    let name = program.rsplit('/').next().unwrap_or(program);
    Child::start(name, &cmd(program, words), ChildOptions::DEFAULT)
}

/// Prints a delta and flushes the output.
pub(crate) fn show(delta: &Delta, context: &mut Context) -> Result<()> {
    if context.is_text() {
        return Ok(());
    }
    context.out.record(Kind::Delta, delta)?;
    context.out.flush()
}
