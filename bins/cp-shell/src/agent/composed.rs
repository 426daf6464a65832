//! The agent that is built in: it composes a prompt with `cp-compose` and has it answered by `cp-llm`, or by `cp-toolloop` where the
//! person named tools.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::rc::Rc;

use cp_common::coprocess;
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Delta, Message, ToolCall, ToolResult};
use cp_common::words::split;
use cp_common::{Code, Context, Error, Result};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Capability, Event, Piece, Reply, Sink, Turn};
use crate::interactive::coprocess::Coprocess;
use crate::interactive::desk::Desk;
use crate::interactive::interrupt;
use crate::interactive::render::harmless;
use crate::session::Args;

/// The agent.
pub(crate) struct Composed {
    id: String,
    /// What every part is told: home, base, who asks.
    flags: Vec<String>,
    /// How the model is asked.
    model: Vec<String>,
    tools: Vec<String>,
    /// The governed prompt that must begin the system text.
    prompt: Option<String>,
    /// Where the context of a turn lies for as long as it is composed.
    scratch: std::path::PathBuf,
    /// Where a person is asked.
    desk: Rc<Desk>,
    /// Kept from turn to turn, with its connection.
    llm: Option<Coprocess>,
}

impl Composed {
    /// The agent of this name.
    pub(crate) fn new(id: &str, prompt: Option<String>, desk: &Rc<Desk>, args: &Args, context: &Context) -> Self {
        let mut model: Vec<String> = Vec::new();
        for (name, value) in [("--backend", &args.backend), ("--model", &args.model)] {
            model.extend(value.iter().flat_map(|value| [name.to_owned(), value.clone()]));
        }
        let tools = args.tools.iter().flat_map(|place| ["--tools".to_owned(), place.display().to_string()]);
        let mut flags = context.handed_on();
        flags.extend(["--format", "json"].map(str::to_owned));
        Self {
            id: id.to_owned(),
            flags,
            model,
            tools: tools.collect(),
            prompt,
            scratch: context.home.path("tmp"),
            desk: Rc::clone(desk),
            llm: None,
        }
    }

    fn flags(&self, turn: &Turn<'_>) -> Vec<String> {
        let mut flags = self.flags.clone();
        if !flags.iter().any(|flag| flag == "--session") {
            flags.extend(["--session".to_owned(), turn.session.to_owned()]);
        }
        flags
    }

    /// The prompt of a turn.
    fn compose(&self, turn: &Turn<'_>) -> Result<Box<RawValue>> {
        let mut arguments = self.flags(turn);
        let mode = if turn.isolated { "isolated" } else { "persistent" };
        arguments.extend(["--agent", &self.id, "--mode", mode].map(str::to_owned));
        if let Some(prompt) = &self.prompt {
            arguments.extend(["--prompt".to_owned(), prompt.clone()]);
        }
        let context = Scratch::new(&self.scratch, turn.context)?;
        if let Some(context) = &context {
            arguments.extend(["--context".to_owned(), context.path.clone()]);
        }
        arguments.extend(["--input", "text", "-"].map(str::to_owned));
        let failed = |e: std::io::Error| Error::io("running cp-compose", e);
        let mut child = Command::new(coprocess::find("cp-compose")?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that has left already says why on its output.
            let _ = stdin.write_all(turn.text.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if interrupt::seen() {
            return Err(interrupt::error());
        }
        let line = output.stdout.trim_ascii_end();
        let record = Record::parse(line).map_err(|_| Error::new(Code::Io, "cp-compose gave no prompt"))?;
        let data = if record.ok { record.data } else { return Err(failure(&record, "cp-compose")) };
        data.map(ToOwned::to_owned).ok_or_else(|| Error::new(Code::Io, "cp-compose gave no prompt"))
    }

    /// Asks the model.
    fn ask(&mut self, turn: &Turn<'_>, prompt: &RawValue, sink: &mut Sink<'_>) -> Result<Reply> {
        if self.llm.as_mut().is_some_and(Coprocess::has_left) {
            self.llm = None;
        }
        let mut llm = if let Some(llm) = self.llm.take() {
            llm
        } else {
            let mut arguments = self.flags(turn);
            arguments.extend(self.model.iter().cloned());
            arguments.push("--stream".to_owned());
            Coprocess::start("cp-llm", &arguments)?
        };
        llm.send("prompt", prompt)?;
        loop {
            let line = llm.receive()?.ok_or_else(|| llm.gone())?;
            let record = Record::parse(&line)?;
            if !record.ok {
                let error = failure(&record, "cp-llm");
                if !record.closed {
                    self.llm = Some(llm);
                }
                return Err(error);
            }
            match record.kind {
                Some(Kind::Delta) => sink(Event::Delta(&of::<Delta>(&record)?.text))?,
                Some(Kind::Message) => {
                    let messages = vec![of::<Message>(&record)?];
                    if !record.closed {
                        self.llm = Some(llm);
                    }
                    return Ok(Reply { messages });
                }
                _ => {}
            }
        }
    }

    /// Lets the model use tools until it is done. A call that needs a person's word is asked about here and now.
    fn run(&self, turn: &Turn<'_>, prompt: &RawValue, sink: &mut Sink<'_>) -> Result<Reply> {
        let mut arguments = self.flags(turn);
        arguments.extend(self.model.iter().chain(&self.tools).cloned());
        arguments.push("--stream".to_owned());
        let mut toolloop = Coprocess::start("cp-toolloop", &arguments)?;
        toolloop.send("prompt", prompt)?;
        toolloop.close()?;
        let mut reply = Reply::default();
        while let Err(stop) = followed(&toolloop, &mut reply, sink) {
            let arguments = self.decided(turn, stop)?;
            drop(toolloop);
            toolloop = Coprocess::start("cp-toolloop", &arguments)?;
        }
        if reply.messages.is_empty() { Err(toolloop.gone()) } else { Ok(reply) }
    }

    /// What goes on with a run that stopped for a person's word, after that word. What else it stopped for is an error.
    fn decided(&self, turn: &Turn<'_>, stop: Error) -> Result<Vec<String>> {
        let details = stop.details();
        let line = |name: &str| details.get(name).and_then(Value::as_str);
        let (true, Some("approve_tool_call"), Some(yes), Some(no)) =
            (self.desk.is_terminal(), line("action"), line("resume"), line("otherwise"))
        else {
            return Err(stop);
        };
        let call = &details["call"];
        let asked = format!("{} {}", call["name"].as_str().unwrap_or_default(), call["input"]);
        let agreed = self.desk.agrees(&format!("\nAllow {}? [y/N] ", harmless(&asked).replace('\n', " ")));
        if interrupt::seen() {
            return Err(interrupt::error());
        }
        // The line is runnable as it stands: the program, the home, and what to do.
        let line = split(if agreed { yes } else { no }).map_err(Error::from)?.argv;
        let mut flags = self.flags(turn);
        if line.iter().any(|word| word == "--home")
            && let Some(at) = flags.iter().position(|flag| flag == "--home")
        {
            flags.drain(at..at + 2);
        }
        Ok(line.into_iter().skip(1).chain(flags).collect())
    }
}

/// Passes what comes of a run on, and keeps its messages. A run that goes on shows the last ones again.
fn followed(toolloop: &Coprocess, reply: &mut Reply, sink: &mut Sink<'_>) -> Result<()> {
    while let Some(line) = toolloop.receive()? {
        let record = Record::parse(&line)?;
        if !record.ok {
            return Err(failure(&record, "cp-toolloop"));
        }
        match record.kind {
            Some(Kind::Delta) => sink(Event::Delta(&of::<Delta>(&record)?.text))?,
            Some(Kind::ToolCall) => sink(Event::ToolCall(&of::<ToolCall>(&record)?))?,
            Some(Kind::ToolResult) => sink(Event::ToolResult(&of::<ToolResult>(&record)?))?,
            Some(Kind::Message) => {
                let message: Message = of(&record)?;
                if !reply.messages.iter().any(|known| !known.id.is_empty() && known.id == message.id) {
                    reply.messages.push(message);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl Agent for Composed {
    fn name(&self) -> &str {
        if self.id == "default" { "cp_default" } else { &self.id }
    }

    fn version(&self) -> &str {
        cp_common::program::VERSION
    }

    fn capabilities(&self) -> &[Capability] {
        &Capability::ALL
    }

    fn process(&mut self, turn: &Turn<'_>, sink: &mut Sink<'_>) -> Result<Reply> {
        let prompt = self.compose(turn)?;
        if self.tools.is_empty() { self.ask(turn, &prompt, sink) } else { self.run(turn, &prompt, sink) }
    }

    fn signals(&mut self) -> Result<Map<String, Value>> {
        Ok(Map::new())
    }

    fn state(&mut self) -> Result<Value> {
        Ok(json!({"id": self.id, "prompt_id": self.prompt, "model": self.model, "connected": self.llm.is_some()}))
    }
}

fn of<T: DeserializeOwned>(record: &Record<'_>) -> Result<T> {
    let data = record.data.ok_or_else(|| Error::validation("the record has no `data`"))?;
    cp_common::wire::record::read(data)
}

/// The error that a part told of.
fn failure(record: &Record<'_>, program: &str) -> Error {
    let told: Value = record.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default();
    let message = told["message"].as_str().unwrap_or("it failed");
    let mut error = Error::new(record.code(), message).with("part", program);
    for (name, value) in told["details"].as_object().into_iter().flatten() {
        error = match value.as_str().filter(|_| name == "hint") {
            Some(hint) => error.hint(hint),
            None => error.with(name, value.clone()),
        };
    }
    error
}

/// A file that is there while a prompt is composed.
struct Scratch {
    path: String,
}

impl Scratch {
    fn new(directory: &std::path::Path, pieces: &[Piece]) -> Result<Option<Self>> {
        if pieces.is_empty() {
            return Ok(None);
        }
        let told = |piece: &Piece| {
            format!(
                "[{}]
{}
",
                piece.name,
                piece.text.trim_end()
            )
        };
        let text = pieces.iter().map(told).collect::<Vec<_>>().join(
            "
",
        );
        let file = directory.join(format!("context-{}.md", std::process::id()));
        let scratch = Self { path: file.display().to_string() };
        cp_common::home::write_whole(&file, text.as_bytes())?;
        Ok(Some(scratch))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
