//! The model, as a part: a prompt goes in, deltas and a message come out, turn after turn over one process.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use cp_common::coprocess::{Part, unexpected};
use cp_common::wire::record::Kind;
use cp_common::wire::{Content, Delta, Message, Prompt, ToolCall, ToolResult, Usage};
use cp_common::{Context, Result};

use crate::state::plan::{ModelCommand, is_ours};

/// A model that can be asked.
pub(crate) struct Model {
    command: ModelCommand,
    /// The options that share a budget.
    budget: Vec<String>,
    part: Option<Part>,
    deltas: Vec<Delta>,
    /// Whether what is asked is for nobody but the run.
    aside: bool,
}

impl Model {
    /// The model behind a command. It is started when first asked.
    pub(crate) fn new(command: ModelCommand, budget: Vec<String>) -> Self {
        Self { command, budget, part: None, deltas: Vec::new(), aside: false }
    }

    /// Asks for the next turn of a conversation, and waits at most so long: `None` when that was not enough. A program that drives the
    /// loop itself is sent only the results that it does not know.
    pub(crate) fn ask(
        &mut self,
        prompt: &Prompt,
        results: &[ToolResult],
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
            results.iter().try_for_each(|result| part.send(Kind::ToolResult, result))?;
        } else {
            part.send(Kind::Prompt, prompt)?;
        }
        loop {
            if let Some(until) = until
                && !part.wait(until.saturating_duration_since(Instant::now()))?
            {
                self.part = None;
                return Ok(None);
            }
            let answer = part.receive(|name, record| match record.kind {
                Some(Kind::Message) => record.read::<Message>().map(Some),
                Some(Kind::ToolCall) => record.read::<ToolCall>().map(|call| Some(message_of(call, name))),
                Some(Kind::Delta) => {
                    let delta = record.read()?;
                    if !self.aside {
                        show(&delta, context)?;
                        self.deltas.push(delta);
                    }
                    Ok(None)
                }
                _ => Err(unexpected(name, record)),
            })?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    /// Asks beside the conversation: what comes before the answer is whole is not shown.
    pub(crate) fn ask_aside(
        &mut self,
        prompt: &Prompt,
        limit: Option<Duration>,
        context: &mut Context,
    ) -> Result<Option<Message>> {
        self.aside = true;
        let answer = self.ask(prompt, &[], limit, context);
        self.aside = false;
        answer
    }

    /// What came of the last answer before it was whole.
    pub(crate) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Stops it, while it is not asked anything.
    pub(crate) fn stop(&mut self) {
        if let Some(mut part) = self.part.take() {
            part.end_input();
        }
    }

    /// Lets it leave in its own time.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.part.take().map_or(Ok(()), Part::finish)
    }
}

/// The message that stands for a call which a program sends alone.
fn message_of(call: ToolCall, backend: &str) -> Message {
    Message {
        id: call.id.clone(),
        role: "assistant".to_owned(),
        content: Content::Text(String::new()),
        tool_calls: vec![call],
        blocks: Vec::new(),
        input: Vec::new(),
        model: String::new(),
        backend: backend.to_owned(),
        endpoint: String::new(),
        stop_reason: "tool_use".to_owned(),
        usage: Usage::default(),
        cached: false,
        session_id: None,
        agent: None,
        row: None,
        parsed: None,
        extracted: None,
        receipt: None,
        request_hash: None,
        untrusted: Vec::new(),
    }
}

/// Starts the part. A program of ours that asks the model is given this context; another gets its own arguments and no more.
fn start(command: &ModelCommand, budget: &[String], context: &Context) -> Result<Part> {
    let mut argv: Vec<OsString> = command.argv.iter().chain(budget).map(OsString::from).collect();
    if command.asking().is_some_and(is_ours) {
        argv.push("--closed".into());
        argv.extend(context.handed_on());
    }
    Part::start(&argv)
}

/// Prints a part of an answer at once.
pub(crate) fn show(delta: &Delta, context: &mut Context) -> Result<()> {
    if context.is_text() {
        return Ok(());
    }
    context.out.record(Kind::Delta, delta)?;
    context.out.flush()
}
