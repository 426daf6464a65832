//! Agents that are programs: a coprocess that reads records and writes records.
//!
//! It receives `describe` once, which it answers with a record of the same type, then `process` for each turn, which it
//! answers with any number of `delta`, `tool_call` and `tool_result` and a final `message`. An `ok:false` record is a
//! failure.

use std::path::Path;
use std::time::Duration;

use cp_common::wire::Message;
use cp_common::wire::record::Record;
use cp_common::{Context, Error, Result, words};
use serde_json::{Map, Value, json};

use crate::agent::coprocess::Coprocess;
use crate::agent::{Agent, Agents, Capability, Described, Observer, Turn, message};

/// The time limit for `describe`.
const SHORT: Duration = Duration::from_secs(10);

/// An agent that is a program.
pub(crate) struct External {
    argv: Vec<String>,
    described: Described,
    /// `None` while it answers.
    program: Option<Coprocess>,
}

impl External {
    /// Returns the agent with this name if it is a program: a path, or an id whose entry in `config/agents.json` has a
    /// `command`.
    pub(crate) fn of(id: &str, agents: &Agents, context: &Context) -> Result<Option<Self>> {
        let argv = match agents.get(id).and_then(|agent| agent.get("command")) {
            Some(Value::String(command)) => command_of(command, &context.home.agents_file(), context.home.root())?,
            Some(_) => {
                return Err(Error::config(format!("the `command` of the agent `{id}` is not a string"))
                    .in_file(&context.home.agents_file()));
            }
            None if id.contains('/') => vec![id.to_owned()],
            None => return Ok(None),
        };
        let (program, described) = start(&argv)?;
        Ok(Some(Self { argv, described, program: Some(program) }))
    }

    /// Returns the coprocess, and starts it again if it has exited or was interrupted.
    fn program(&mut self) -> Result<Coprocess> {
        if let Some(program) = self.program.take_if(Coprocess::can_go_on) {
            return Ok(program);
        }
        let (program, described) = start(&self.argv)?;
        self.described = described;
        Ok(program)
    }
}

/// Splits a configured command. A relative program is below the home.
fn command_of(command: &str, file: &Path, home: &Path) -> Result<Vec<String>> {
    let mut argv =
        words::split(command).map_err(|refusal| Error::config(format!("`{command}`: {refusal}")).in_file(file))?.argv;
    match argv.first_mut() {
        Some(program) if program.contains('/') => *program = home.join(&program).display().to_string(),
        _ => {
            return Err(Error::config(format!("`{command}` does not name a program by its path"))
                .in_file(file)
                .hint("write it with a `/`; a relative path is below the home"));
        }
    }
    Ok(argv)
}

/// Starts the program and asks what it is.
fn start(argv: &[String]) -> Result<(Coprocess, Described)> {
    let mut program = Coprocess::of_program(argv)?;
    program.send("describe", &json!({}))?;
    let described = program.receive(Some(SHORT), |record| {
        let is_meant = record.kind_name.as_deref() == Some("describe");
        let described = if is_meant { record.read() } else { Err(Error::validation("another record")) };
        described.map_err(|e| {
            let known: Vec<&str> = Capability::ALL.iter().map(|capability| capability.name()).collect();
            let known = known.join(", ");
            Error::validation(format!("{} did not answer `describe` as an agent: {}", argv[0], e.message()))
                .hint(format!("it must answer {{name, version, capabilities}}; the capabilities are {known}"))
        })
    })?;
    Ok((program, described))
}

impl Agent for External {
    fn described(&self) -> &Described {
        &self.described
    }

    fn process(&mut self, turn: &Turn<'_>, observer: &mut dyn Observer) -> Result<Vec<Message>> {
        if !turn.attached.is_empty() {
            return Err(Error::usage("this agent accepts text only, and the attached file is not text")
                .hint("send the turn without the file"));
        }
        let mut program = self.program()?;
        let context = turn.context.iter().map(|piece| json!({"name": piece.name, "text": piece.text}));
        let context: Vec<Value> = context.collect();
        let Turn { text, session, isolated, .. } = turn;
        let asked = json!({"text": text, "session_id": session, "isolated": isolated, "context": context});
        let name = &self.described.name;
        let sent = program.send("process", &asked);
        let answered = sent.and_then(|()| message(&mut program, observer, |record| message_of(record, turn, name)));
        // A coprocess that was interrupted is stopped.
        self.program = Some(program).take_if(Coprocess::can_go_on);
        answered
    }
}

/// Completes the message with the members that a session needs: an agent may send just `{"content":…}`.
fn message_of(record: &Record<'_>, turn: &Turn<'_>, name: &str) -> Result<Message> {
    let mut message = json!({
        "id": "",
        "role": "assistant",
        "input": [{"role": "user", "content": turn.text}],
        "model": name,
        "backend": "agent",
        "stop_reason": "end_turn",
        "usage": {},
        "session_id": turn.session,
        "_untrusted": ["/content"],
    });
    let members: Map<String, Value> = record.read()?;
    for (member, value) in members {
        message[member] = value;
    }
    serde_json::from_value(message).map_err(|e| Error::validation(format!("the agent's message: {e}")))
}
