//! Answers requests about the tree, in a session with its ledgers and signals, in the envelope of the control plane.

use std::ffi::OsString;
use std::time::Instant;

use cp_common::program::Class;
use cp_common::wire::record::Record;
use cp_common::{Code, Context, Error, Result, coprocess, json};
use cp_ledger::format::canonical::Form;
use serde::Serialize;
use serde_json::{Value, json};

use crate::interactive::commands::run::command_hint;
use crate::journal::{Evidence, Journal};
use crate::pipe::{Piece, Pipe};
use crate::plane::operations::Host;
use crate::plane::{Failure, Plane, Read, Request, fault, is_denial};
use crate::signals::Tracker;

/// The hint for input that is not a request.
pub(super) const EXAMPLE: &str = "write one JSON object, such as {\"operation\":\"pkg_list\"}";

/// The session in which operations run.
pub(super) struct Session {
    pub(super) journal: Journal,
    tracker: Tracker,
    /// The flags that pass the context on.
    flags: Vec<OsString>,
    /// The programs that the current request called.
    calls: Vec<Value>,
    /// The files that they wrote.
    writes: Vec<Read>,
}

impl Host for Session {
    fn signal_status(&mut self, plane: &Plane) -> Value {
        self.tracker.synced = self.journal.is_certain();
        self.tracker.signals(plane).status()
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        let (outcome, writes, receipt) = self.journal.watch(|| execute(self.flags.clone(), command))?;
        self.writes.extend(writes);
        self.calls.push(json!({"program": "cp-exec", "receipt": receipt}));
        let is_denied = outcome.as_ref().is_err_and(is_denial);
        self.tracker.called(is_denied);
        outcome
    }
}

impl Session {
    pub(super) fn new(plane: &Plane, journal: Journal, context: &Context) -> Result<Self> {
        // Reads for the tier are declared with the first turn.
        let tracker = Tracker::new(plane.tier().map_or_else(|| context.tier(None), Ok)?, journal.turn);
        Ok(Self { journal, tracker, flags: context.handed_on(), calls: Vec::new(), writes: Vec::new() })
    }
}

impl Pipe {
    /// Answers a request, and queues its record.
    pub(super) fn respond(&mut self, piece: Piece) -> Result<Response> {
        let started = Instant::now();
        let Self { plane, session, .. } = self;
        let Piece { text: bytes, error } = piece;
        let (form, text, outcome) = match error.map_or_else(|| parsed(&bytes), Err) {
            Ok((text, value)) => {
                (Form::Request, text, Request::from_value(&value).and_then(|request| request.run(plane, session)))
            }
            Err(error) => (Form::Cmd, bytes, Err(error)),
        };
        let Session { journal, tracker, calls, writes, .. } = session;
        tracker.turns += 1;
        tracker.begin(if calls.is_empty() { Class::Query } else { Class::Governed });
        if outcome.as_ref().is_err_and(is_denial) {
            tracker.denied();
        }
        tracker.end(outcome.is_ok());
        let outcome = outcome.map_err(Failure::from);
        let failed = outcome.as_ref().err().map(|failure| json!(failure));
        let command = String::from_utf8_lossy(&text);
        let files = [plane.take_reads(), std::mem::take(writes)];
        let ended = (outcome.is_ok(), outcome.as_ref().ok().or(failed.as_ref()).unwrap_or(&Value::Null));
        let evidence = journal.stage((form, &command), started, ended, files, &std::mem::take(calls))?;
        Ok(match outcome {
            Ok(result) => Response { status: "ok", result: Some(result), error: None, evidence },
            Err(failure) => Response { status: "error", result: None, error: Some(failure), evidence },
        })
    }
}

/// Returns the text of a request without insignificant blanks, and its value.
fn parsed(bytes: &[u8]) -> Result<(Vec<u8>, Value)> {
    let mut text = Vec::with_capacity(bytes.len());
    json::normalize(bytes, &mut text).map_err(|invalid| {
        let error = fault("INVALID_JSON", format!("the request is not valid JSON: {invalid}"));
        error.with("offset", invalid.offset).hint(EXAMPLE)
    })?;
    let value = serde_json::from_slice(&text).map_err(|e| fault("INVALID_JSON", e.to_string()))?;
    Ok((text, value))
}

/// Runs a command with cp-exec, if the tree and the policy allow it. A command that ran and failed is an error whose
/// details have the result. No shell is used, so a command with shell syntax is refused.
fn execute(flags: Vec<OsString>, command: &str) -> Result<Value> {
    if command.is_empty() {
        return Err(fault("MISSING_FIELD", "a command must follow `!`").with("field", "command"));
    }
    let request =
        json!({ "tool": "shell", "operation": "execute_command", "arguments": { "command": command } }).to_string();
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
    let record = Record::parse(&answer)?;
    let answered = if record.ok { record.read() } else { Err(coprocess::failure("cp-exec", &record)) };
    match answered {
        Err(error) if error.code() == Code::CommandFailed => Err(fault("HANDLER_ERROR", error.message())
            .with("error_code", error.code().row().name)
            .with("result", error.details())
            .hint(command_hint(error.details()["return_code"].as_i64().and_then(|status| status.try_into().ok())))),
        other => other,
    }
}

/// An answer: a result or an error, and the evidence.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Response {
    /// ok or error.
    #[cfg_attr(test, schemars(extend("enum" = ["ok", "error"])))]
    status: &'static str,
    /// The result of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Failure>,
    /// The files that were read and written, and the hashes of the input and the output.
    pub(super) evidence: Evidence,
}
