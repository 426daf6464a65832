//! Answers requests about the tree, in a session with its ledgers and signals, in the envelope of the control plane.

use std::ffi::OsString;
use std::time::Instant;

use cp_common::program::Class;
use cp_common::wire::record::Record;
use cp_common::{Code, Context, Error, Result, coprocess, json};
use cp_ledger::format::claims::Form;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::journal::{Evidence, Journal, Turn};
use crate::pipe::{Broken, LONGEST};
use crate::plane::operations::Host;
use crate::plane::{Failure, Plane, Request, fault, is_denial};
use crate::signals::Tracker;

/// The hint for input that is not a request.
const EXAMPLE: &str = "write one JSON object, such as {\"operation\":\"pkg_list\"}";

/// Answers the requests of a session.
pub(super) struct Responder {
    plane: Plane,
    session: Session,
}

/// The session in which operations run.
struct Session {
    journal: Journal,
    tracker: Tracker,
    /// The flags that pass the context on.
    flags: Vec<OsString>,
    /// The programs that the current request called.
    calls: Vec<Value>,
}

impl Host for Session {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.tracker.synced = self.journal.is_certain();
        self.tracker.signals(plane).status()
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        let outcome = execute(self.flags.clone(), command);
        let receipt = outcome.as_ref().ok().and_then(|result| result.get("receipt")).cloned();
        self.calls.push(json!({"program": "cp-exec", "receipt": receipt}));
        let is_denied = outcome.as_ref().is_err_and(is_denial);
        self.tracker.called(is_denied);
        outcome
    }
}

impl Responder {
    pub(super) fn new(plane: Plane, journal: Journal, context: &Context) -> Self {
        // Reads for the tier are declared with the first turn.
        let tracker = Tracker::new(plane.tier().unwrap_or_else(|| context.tier()), journal.turns());
        Self { plane, session: Session { journal, tracker, flags: context.handed_on(), calls: Vec::new() } }
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Result<Response> {
        let started = Instant::now();
        let mut text = Vec::with_capacity(bytes.len());
        if let Err(invalid) = json::normalize(bytes, &mut text) {
            let error = fault("INVALID_JSON", format!("the request is not valid JSON: {invalid}"))
                .with("offset", invalid.offset)
                .hint(EXAMPLE);
            return self.refuse(bytes, error, started);
        }
        let value: Value = match serde_json::from_slice(&text) {
            Ok(value) => value,
            Err(e) => return self.refuse(bytes, fault("INVALID_JSON", e.to_string()), started),
        };
        let Self { plane, session } = self;
        let outcome = Request::from_value(&value)
            .and_then(|request| request.run(plane, session).map(|result| (request.class(), result)));
        let class = match &outcome {
            Ok((class, _)) => *class,
            Err(_) if session.calls.is_empty() => Class::Query,
            Err(_) => Class::Governed,
        };
        let command = String::from_utf8_lossy(&text);
        self.conclude(Form::Request, &command, started, class, outcome.map(|(_, result)| result))
    }

    /// Answers input that is not valid JSON.
    pub(super) fn broken(&mut self, broken: &Broken) -> Result<Response> {
        let error = if broken.text.len() > LONGEST {
            fault("INVALID_REQUEST", format!("line {}: the request is {}", broken.line, broken.reason))
        } else {
            fault("INVALID_JSON", format!("line {}: {}", broken.line, broken.reason)).hint(EXAMPLE)
        };
        self.refuse(&broken.text, error.with("line", broken.line), Instant::now())
    }

    /// Answers empty input.
    pub(super) fn empty(&mut self) -> Result<Response> {
        let error = fault("EMPTY_INPUT", "no request was given").hint(EXAMPLE);
        self.refuse(b"", error, Instant::now())
    }

    /// Records the answered requests.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.session.journal.commit()
    }

    /// Ends the session.
    pub(super) fn end(self, context: &Context) -> Result<()> {
        self.session.journal.end(context)
    }

    fn refuse(&mut self, bytes: &[u8], error: Error, started: Instant) -> Result<Response> {
        self.conclude(Form::Cmd, &String::from_utf8_lossy(bytes), started, Class::Query, Err(error))
    }

    /// Builds the answer and queues its record.
    fn conclude(
        &mut self,
        form: Form,
        command: &str,
        started: Instant,
        class: Class,
        outcome: Result<Value>,
    ) -> Result<Response> {
        let Session { journal, tracker, calls, .. } = &mut self.session;
        tracker.turns += 1;
        tracker.begin(class);
        if outcome.as_ref().is_err_and(is_denial) {
            tracker.denied();
        }
        tracker.end(outcome.is_ok());
        let outcome = outcome.map_err(Failure::from);
        let output = outcome.as_ref().map_or_else(|failure| json!(failure), Value::clone);
        let evidence = Evidence::new(form, command, started, &output, self.plane.take_reads());
        let succeeded = outcome.is_ok();
        journal.stage(Turn { command, form, succeeded, evidence: &evidence, calls: std::mem::take(calls) })?;
        let status = if succeeded { Status::Ok } else { Status::Error };
        let (result, error) = outcome.map_or_else(|failure| (None, Some(failure)), |result| (Some(result), None));
        Ok(Response { status, result, error, evidence })
    }
}

/// Runs a command with cp-exec, if the tree and the policy allow it. A command that ran and failed is an error whose
/// details have the result. No shell is used, so a command with shell syntax is refused.
fn execute(flags: Vec<OsString>, command: &str) -> Result<Value> {
    if command.is_empty() {
        return Err(fault("MISSING_FIELD", "a command must follow `!`").with("field", "command"));
    }
    let request = json!({ "tool": "shell", "arguments": { "command": command } }).to_string();
    let mut first = None;
    let ended = coprocess::ask_each::<Value>("cp-exec", &[""; 0], request.as_bytes(), flags, &mut |line| {
        first = first.take().or_else(|| line.map(<[u8]>::to_vec));
        Ok(())
    });
    // A program without an answer before its last line did not read the request.
    let Some(answer) = first else {
        let nothing = || Error::new(Code::Io, "cp-exec did not answer");
        return Err(ended.err().unwrap_or_else(nothing));
    };
    match answer_of(&answer) {
        Err(error) if error.code() == Code::CommandFailed => Err(fault("HANDLER_ERROR", error.message())
            .with("error_code", error.code().row().name)
            .with("result", error.details())),
        other => other,
    }
}

/// Parses the result of a command.
fn answer_of(line: &[u8]) -> Result<Value> {
    let record = Record::parse(line)?;
    if !record.ok {
        return Err(record.failure().with_absent("part", "cp-exec"));
    }
    let data: &str = record.data.map_or("null", RawValue::get);
    serde_json::from_str(data).map_err(|e| Error::new(Code::Io, format!("cp-exec did not answer with a record: {e}")))
}

/// An answer: a result or an error, and the evidence.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Response {
    /// ok or error.
    pub(super) status: Status,
    /// The result of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Failure>,
    /// The files that were read and written, and the hashes of the input and the output.
    pub(super) evidence: Evidence,
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Status {
    /// The answer has a result.
    Ok,
    /// The answer has an error.
    Error,
}
