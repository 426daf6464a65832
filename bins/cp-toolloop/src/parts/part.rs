//! A coprocess of a run: the model, cp-exec for commands and files, or cp-mcp for the tools of servers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, find, unexpected};
use cp_common::wire::record::{Kind, Record, open_line};
use cp_common::wire::{Delta, Message, Prompt, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::Offers;
use serde_json::json;

use crate::state::conversation::Conversation;
use crate::state::plan::{Limits, Plan, is_ours, name_of};
use crate::state::step_log::StepLog;

/// cp-mcp stops its servers before it exits.
const OF_SERVERS: ChildOptions =
    ChildOptions { after_input: Duration::from_secs(3), after_term: Duration::from_secs(3), stderr: Stderr::Kept };

/// A coprocess, which its first use starts.
pub(crate) struct Part {
    program: String,
    words: Vec<OsString>,
    /// True if the program gets the context of this command, because it is one of the cp-tools.
    is_ours: bool,
    options: ChildOptions,
    child: Option<Child>,
    /// True if it was started before its run.
    is_early: bool,
}

impl Part {
    fn new(program: &str, words: Vec<OsString>) -> Self {
        let (program, options) = (program.to_owned(), ChildOptions::DEFAULT);
        Self { program, words, is_ours: true, options, child: None, is_early: false }
    }

    /// The model of a plan.
    fn of_model(plan: &Plan, limits: &Limits) -> Self {
        let (program, words) = plan.model.argv.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let words = words.iter().cloned().chain(plan.shared_budget(limits)).map(OsString::from).collect();
        Self { is_ours: plan.model.asking().is_some_and(is_ours), ..Self::new(program, words) }
    }

    /// cp-exec for the tools in these directories.
    pub(super) fn of_tools(directories: &[PathBuf], read_only: bool) -> Self {
        let mut words: Vec<OsString> = read_only.then(|| "--read-only".into()).into_iter().collect();
        // The script directory of a removed link may have been deleted since the run started.
        for directory in directories.iter().filter(|directory| directory.is_dir()) {
            words.extend(["--tools".into(), directory.into()]);
        }
        Self::new("cp-exec", words)
    }

    /// cp-mcp for these servers.
    pub(crate) fn of_servers(servers: &[String]) -> Self {
        let mut words: Vec<OsString> = vec!["call".into()];
        words.extend(servers.iter().map(|server| format!("--mcp={server}").into()));
        Self { options: OF_SERVERS, ..Self::new("cp-mcp", words) }
    }

    /// Starts the servers, and returns what they offer within a time limit.
    pub(crate) fn offers(&mut self, limit: Option<Duration>, context: &Context) -> Result<Offers> {
        self.start(Some("--list".into()), context)?;
        self.is_early = true;
        let offers = self.receive(limit, |name, record| match record.kind {
            Some(Kind::Item) => record.read(),
            _ => Err(unexpected(name, record)),
        })?;
        offers.ok_or_else(|| {
            Error::new(Code::Timeout, "the MCP servers did not list their tools before --deadline").fatal()
        })
    }

    /// Starts a call. A new cp-exec inherits the descriptor of the run's lock, which stays locked while its commands
    /// exist.
    pub(crate) fn call(&mut self, call: &ToolCall, steps: &StepLog, context: &Context) -> Result<()> {
        let is_early = std::mem::take(&mut self.is_early);
        let child = if self.child.is_none() && self.program == "cp-exec" {
            steps.shared(|lock| self.start(Some(format!("--lock={lock}").into()), context))?
        } else {
            self.start(None, context)?
        };
        if is_early {
            child.send("run", &json!({ "run": context.options.run, "ledger": context.options.ledger }))?;
        }
        child.send(Kind::ToolCall.name(), call)
    }

    /// Waits for the result of the call; `None` after the time limit. A refusal is an error that is not fatal.
    pub(crate) fn result(&mut self, limit: Option<Duration>) -> Result<Option<ToolResult>> {
        self.receive(limit, |name, record| match record.kind {
            Some(Kind::ToolResult) => record.read(),
            _ => Err(unexpected(name, record)),
        })
    }

    /// Stops the coprocess, and its tools.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.end_input();
        }
    }

    /// Ends the input of the coprocess, and waits until it exits.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.child.take().map_or(Ok(()), Child::finish)
    }

    /// The process, which is started with one more argument if there is none.
    fn start(&mut self, more: Option<OsString>, context: &Context) -> Result<&mut Child> {
        let none = match &mut self.child {
            Some(child) => return Ok(child),
            none => none,
        };
        let mut words: Vec<OsString> = self.words.iter().cloned().chain(more).collect();
        if self.is_ours {
            words.extend(["--closed", "--format", "json"].map(OsString::from));
            words.extend(context.handed_on());
        }
        Ok(none.insert(Child::start(name_of(&self.program), &cmd(find(&self.program)?, words), self.options)?))
    }

    /// Reads the next record; `None` after the time limit.
    fn receive<T>(
        &mut self,
        limit: Option<Duration>,
        take: impl FnOnce(&str, &Record<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let is_there = limit.map_or(Ok(true), |limit| child.wait_line(limit))?;
        is_there.then(|| child.receive(take)).transpose()
    }
}

/// The coprocess of a model: it reads prompts, and writes deltas and messages.
pub(crate) struct Model {
    pub(crate) part: Part,
    /// True if the program drives the loop itself.
    drives: bool,
    /// The deltas of the last answer.
    pub(crate) deltas: Vec<Delta>,
    prompt: PromptLine,
}

/// The record of a growing prompt. A turn is encoded once.
#[derive(Default)]
struct PromptLine {
    line: Vec<u8>,
    /// The number of turns in the line, and where they end.
    turns: usize,
    end: usize,
}

impl PromptLine {
    /// The record of a prompt that has the same turns as the last one, and perhaps more.
    fn line(&mut self, prompt: &mut Prompt) -> Result<&[u8]> {
        let turns = std::mem::take(&mut prompt.messages);
        let without = open_line(Kind::Prompt.name(), prompt);
        prompt.messages = turns;
        let without = without?;
        // In a text before it, the quotes would be escaped.
        let begin = memchr::memmem::find(&without, TURNS).map_or(0, |at| at + TURNS.len());
        if self.turns == 0 {
            self.line.extend_from_slice(&without[..begin]);
            self.end = begin;
        }
        self.line.truncate(self.end);
        for turn in prompt.messages.get(self.turns..).unwrap_or_default() {
            if self.turns > 0 {
                self.line.push(b',');
            }
            serde_json::to_writer(&mut self.line, turn)
                .map_err(|e| Error::new(Code::Unknown, format!("encoding a prompt: {e}")))?;
            self.turns += 1;
        }
        self.end = self.line.len();
        self.line.extend_from_slice(&without[begin..]);
        Ok(&self.line)
    }
}

/// What precedes the turns in the record of a prompt.
const TURNS: &[u8] = b"\"messages\":[";

impl Model {
    /// The model of a plan.
    pub(super) fn new(plan: &Plan, limits: &Limits) -> Self {
        Self {
            part: Part::of_model(plan, limits),
            drives: plan.model.drives,
            deltas: Vec::new(),
            prompt: PromptLine::default(),
        }
    }

    /// Asks for the next turn of a conversation; `None` after the time limit. A program that drives the loop itself
    /// gets only the new results.
    pub(crate) fn ask(
        &mut self,
        so_far: &mut Conversation,
        limit: Option<Duration>,
        context: &mut Context,
    ) -> Result<Option<Message>> {
        self.deltas.clear();
        let until = limit.map(|limit| Instant::now() + limit);
        let knows = self.drives && self.part.child.is_some();
        let child = self.part.start(None, context)?;
        if knows {
            so_far.returned.iter().try_for_each(|result| child.send(Kind::ToolResult.name(), result))?;
        } else if so_far.returned.is_empty() {
            child.write(self.prompt.line(&mut so_far.prompt)?)?;
        } else {
            // The results are on the ledger already.
            let history = std::mem::replace(&mut so_far.prompt.history, so_far.prompt.messages.len());
            let line = self.prompt.line(&mut so_far.prompt);
            so_far.prompt.history = history;
            child.write(line?)?;
        }
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let answer = self.part.receive(left, |name, record| match record.kind {
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
            match answer {
                Some(None) => {}
                Some(message) => return Ok(message),
                None => {
                    self.part.child = None;
                    return Ok(None);
                }
            }
        }
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

/// Prints a delta and flushes the output.
pub(crate) fn show(delta: &Delta, context: &mut Context) -> Result<()> {
    if context.is_text() {
        return Ok(());
    }
    context.out.record(Kind::Delta, delta)?;
    context.out.flush()
}

#[cfg(test)]
mod tests {
    use cp_common::wire::Turn;

    use super::*;

    #[test]
    fn line_of_a_growing_prompt_is_that_of_the_whole_prompt() {
        let mut prompt = Prompt::of_text("a \"messages\":[] b");
        prompt.system = Some("\"messages\":[{}]".to_owned());
        let mut line = PromptLine::default();
        for role in ["assistant", "user", "user"] {
            assert_eq!(line.line(&mut prompt).unwrap(), open_line("prompt", &prompt).unwrap());
            prompt.history = prompt.messages.len();
            assert_eq!(line.line(&mut prompt).unwrap(), open_line("prompt", &prompt).unwrap());
            prompt.messages.extend([Turn::text(role, "b"), Turn::text(role, "é\n")]);
        }
    }
}
