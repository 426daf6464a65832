//! Programs that answer turns: ours, whose standard error is shown to the person while they work, and agents that are
//! programs.
//!
//! An agent receives `describe` once, which it answers with a record of the same type, then `process` for each turn, which
//! it answers with any number of `delta`, `tool_call` and `tool_result` and a final `message`. An `ok:false` record is a
//! failure.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::PipeReader;
use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, cmd, find, split};
use cp_common::output::to_stderr;
use cp_common::stream::lines::Lines;
use cp_common::wire::Message;
use cp_common::wire::record::Record;
use cp_common::{Code, Context, Error, Result, words};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::agent::{Agent, Agents, CAPABILITIES, Described, Observer, Turn, message};

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
        let is_known = |name: &String| CAPABILITIES.contains(&name.as_str());
        let described =
            described.and_then(|found: Described| match found.capabilities.iter().find(|it| !is_known(it)) {
                Some(unknown) => Err(Error::validation(format!("unknown capability `{unknown}`"))),
                None => Ok(found),
            });
        described.map_err(|e| {
            let known = CAPABILITIES.join(", ");
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

    fn process(&mut self, turn: &Turn, observer: &mut dyn Observer) -> Result<Vec<Message>> {
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
        let answered = sent.and_then(|()| message(&mut program, observer, |members| message_of(members, turn, name)));
        // A coprocess that was interrupted is stopped.
        self.program = Some(program).take_if(Coprocess::can_go_on);
        answered
    }
}

/// Completes the message with the members that a session needs: an agent may send just `{"content":…}`.
fn message_of(members: Map<String, Value>, turn: &Turn, name: &str) -> Result<Message> {
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
    for (member, value) in members {
        message[member] = value;
    }
    serde_json::from_value(message).map_err(|e| Error::validation(format!("the agent's message: {e}")))
}
