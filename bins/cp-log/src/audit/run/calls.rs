//! Messages, calls and results: a message is the response of the model, a call is one of the message, its result is that of its effect,
//! and the next request shows the result.

use cp_common::Result;
use cp_ledger::format::line::Hash;
use serde_json::Value;

use super::Run;
use crate::audit::check::{Check, at};
use crate::audit::claim::{Claims, Entry, Source};

/// A response of the model.
pub(super) struct Answer {
    text: String,
    data: serde_json::Map<String, Value>,
    is_redacted: bool,
}

/// A call of the last message.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a call")]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) is_redacted: bool,
    pub(super) is_answered: bool,
    /// The last entry that started it.
    started: Option<Source>,
    pub(super) is_denied: bool,
    /// True if an approval of this call was spent.
    pub(super) is_approved: bool,
    /// The result was changed by the after-tool program.
    is_sifted: bool,
    /// The newest command, or operation, of the call: its entry, and the hash of its standard output or of the bytes that it read.
    pub(super) effect: Option<Effect>,
    /// The run of its agent.
    pub(super) agent: Option<String>,
}

/// The end of an effect.
#[derive(Clone, Default)]
pub(super) struct Effect {
    pub(super) seq: u64,
    /// The exit status of a command, null if it has none; none for an operation.
    pub(super) status: Option<Value>,
    /// The hash and the number of the bytes that the result begins with.
    pub(super) output: Option<(String, u64)>,
}

/// A result that the next request has to show.
pub(super) struct Given {
    id: String,
    content: Value,
    is_error: Value,
    is_redacted: bool,
}

impl Run {
    pub(super) fn call_of(&mut self, id: Option<&str>) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| Some(call.id.as_str()) == id)
    }

    /// Judges a request: it shows the results of the calls, or the question of the run.
    pub(super) fn request(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        // A request after the message of its turn is for a summary.
        if self.answered == self.turn {
            return Ok(());
        }
        let mut check = Check::new(entry.is_redacted() || self.given.iter().any(|given| given.is_redacted));
        let turns = entry.content.as_array().map(Vec::as_slice).unwrap_or_default();
        if !self.was_compacted {
            let messages = self.messages + 2 * (self.turn - 1);
            check.same("messages", entry.number("messages"), Some(messages));
            check.same("tools", entry.number("tools"), Some(self.tools.len() as u64));
            check.same("role", turns.last().map(|turn| at(turn, &["role"]) == "user"), Some(true));
            let last = turns.last().map_or(&Value::Null, |turn| at(turn, &["content"]));
            if self.turn == 1 {
                check.text("the question", last, &self.question);
            } else {
                let blocks = last.as_array().map(Vec::as_slice).unwrap_or_default();
                let results: Vec<&Value> =
                    blocks.iter().filter(|block| at(block, &["type"]) == "tool_result").collect();
                check.same("the number of results", results.len(), self.given.len());
                for (block, given) in results.iter().zip(&self.given) {
                    check.same("the call", at(block, &["tool_use_id"]).as_str(), Some(given.id.as_str()));
                    check.text("the content", text_of(at(block, &["content"])), text_of(&given.content));
                    check.same("is_error", at(block, &["is_error"]), &given.is_error);
                }
            }
        }
        self.request = Some(Value::Object(entry.data.clone()));
        claims.record(entry.source(), "result", check.verdict())
    }

    /// Judges a response: it belongs to the request before it.
    pub(super) fn response(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        if self.answered == self.turn {
            return Ok(());
        }
        let (data, is_cached) = (entry.data.clone(), entry.data.get("cached") == Some(&Value::Bool(true)));
        let request = self.request.take();
        if data.contains_key("code") {
            return Ok(());
        }
        let text = text_of(&entry.content);
        self.answer = (!is_cached).then_some(Answer { text, data, is_redacted: entry.is_redacted() });
        if is_cached {
            self.records_requests = false;
            return Ok(());
        }
        let mut check = Check::of(entry);
        match request {
            Some(request) => {
                for name in ["backend", "endpoint", "model", "attempt", "request_hash"] {
                    check.same(name, entry.data.get(name), request.get(name));
                }
            }
            None => {
                check.that(false, || "the response has no request".to_owned());
            }
        }
        claims.record(entry.source(), "call", check.verdict())
    }

    /// Judges a message: it is the response of the model in this turn.
    pub(super) fn message(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let answer = self.answer.take();
        let mut check = Check::new(entry.is_redacted() || answer.as_ref().is_some_and(|answer| answer.is_redacted));
        check.that(self.answered < self.turn || self.budget.was_killed(), || {
            "the turn has a message already".to_owned()
        });
        let blocks = entry.content.as_array().map(Vec::as_slice).unwrap_or_default();
        let calls: Vec<&Value> = blocks.iter().filter(|block| at(block, &["type"]) == "tool_use").collect();
        check.same("tool_calls", entry.number("tool_calls"), Some(calls.len() as u64));
        if let Some(Answer { text, data, .. }) = &answer {
            check.text("the text", text_of(&entry.content), text.clone());
            if let Some(usage) = data.get("usage").filter(|usage| !usage.is_null()) {
                check.same("usage", entry.data.get("usage"), Some(usage));
            }
            check.same("stop_reason", entry.data.get("stop_reason"), data.get("stop_reason"));
            check.same("model", entry.data.get("model"), data.get("answered_by"));
            check.same("the number of calls", entry.data.get("tool_calls"), data.get("tool_calls"));
        } else if self.records_requests {
            check.that(false, || "no response of the model is recorded in this turn".to_owned());
        }
        check.that(self.request.is_none(), || "the request before it has no response".to_owned());
        let normalized = entry.data.get("normalized_calls").unwrap_or(&Value::Null);
        let call = |block: &&Value| {
            let id = at(block, &["id"]).as_str().unwrap_or_default().to_owned();
            // The call as the loop understood it.
            let block = normalized.get(&id).unwrap_or(block);
            Call {
                id,
                name: at(block, &["name"]).as_str().unwrap_or_default().to_owned(),
                input: at(block, &["input"]).clone(),
                is_redacted: entry.is_redacted(),
                ..Call::default()
            }
        };
        self.calls = calls.iter().map(call).collect();
        self.given.clear();
        (self.answered, self.was_compacted) = (self.turn, false);
        claims.record(entry.source(), "call", check.verdict())
    }

    /// Takes the arguments of a call that the before-tool program changed.
    pub(super) fn screened(&mut self, entry: &Entry<'_>) {
        let changed = entry.data.get("outcome").and_then(|outcome| outcome.get("changed")).cloned();
        let Some(call) = self.call_of(entry.text("id")) else { return };
        if let Some(input) = changed {
            (call.input, call.is_redacted) = (input, entry.is_redacted());
        }
    }

    pub(super) fn sifted(&mut self, entry: &Entry<'_>) {
        if let Some(call) = self.call_of(entry.text("id")) {
            call.is_sifted = true;
        }
    }

    /// Judges the start of a call: it is one of the message, with its tool and its arguments, and it is permitted.
    pub(super) fn call(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let mut check = Check::of(entry);
        let tool = self.tools.get(entry.text("name").unwrap_or_default()).cloned();
        check.that(tool.is_some(), || "the run has no such tool".to_owned());
        match self.call_of(entry.text("id")) {
            None => {
                check.that(false, || "the message has no such call".to_owned());
            }
            Some(call) => {
                let mut arguments = Check::new(entry.is_redacted() || call.is_redacted);
                arguments.same("the tool", entry.text("name"), Some(call.name.as_str()));
                arguments.text("the input", entry.data.get("input"), Some(&call.input));
                arguments.that(!call.is_answered, || "the call has a result already".to_owned());
                arguments.approved(!call.is_denied, || format!("{}: denied, but run", call.id));
                let needs = tool.is_some_and(|(approve, _)| approve) && !call.is_approved;
                arguments.approved(!needs, || format!("{}: the tool requires approval, and none was spent", call.id));
                call.started = Some(entry.source());
                check = arguments;
            }
        }
        claims.record(entry.source(), "call", check.verdict())
    }

    /// Judges the result of a call against the end of its effect.
    pub(super) fn result(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let (was_killed, was_resumed) = (self.budget.was_killed(), self.is_resumed);
        let operations = std::mem::take(&mut self.operations);
        let is_executable = |name: &str| self.tools.get(name).is_some_and(|(_, path)| path.is_some());
        let is_command = ["shell", "bash"].contains(&entry.text("name").unwrap_or_default())
            || is_executable(entry.text("name").unwrap_or_default());
        let mut check = Check::of(entry);
        if let Some(call) = self.call_of(entry.text("id")) {
            check.same("the tool", entry.text("name"), Some(call.name.as_str()));
            check.that(!call.is_answered || was_killed, || "the call has a result already".to_owned());
            call.judge_result(entry, (is_command, was_resumed), &operations, &mut check);
            call.is_answered = true;
        } else {
            check.that(false, || "the message has no such call".to_owned());
        }
        let given = Given {
            id: entry.text("id").unwrap_or_default().to_owned(),
            content: entry.content.clone(),
            is_error: entry.data.get("is_error").cloned().unwrap_or_default(),
            is_redacted: entry.is_redacted(),
        };
        self.given.retain(|before| before.id != given.id);
        self.given.push(given);
        // The next request has them in the order of the calls.
        let order = |id: &str| self.calls.iter().position(|call| call.id == id);
        self.given.sort_by_key(|given| order(&given.id));
        self.operations = operations;
        claims.record(entry.source(), "result", check.verdict())
    }

    /// The calls that were started and have no result.
    pub(super) fn unfinished(&self) -> Vec<(Source, String)> {
        let open = self.calls.iter().filter(|call| !call.is_answered);
        let why = |call: &Call| format!("the tool call {} has no result: it is unfinished", call.id);
        open.filter_map(|call| Some((call.started.clone()?, why(call)))).collect()
    }
}

impl Call {
    fn judge_result(
        &self,
        entry: &Entry<'_>,
        (is_command, was_resumed): (bool, bool),
        operations: &std::collections::HashMap<u64, Option<String>>,
        check: &mut Check,
    ) {
        let receipt = entry.data.get("receipt").filter(|receipt| !receipt.is_null());
        let status = entry.data.get("exit_code").cloned().unwrap_or_default();
        let is_error = entry.data.get("is_error") == Some(&Value::Bool(true));
        if self.started.is_none() {
            check.that(is_error && receipt.is_none(), || "the call has a result, and was not started".to_owned());
        }
        check.that(self.is_sifted || status.is_null() || is_error == (status != 0), || {
            format!("is_error is {is_error} with status {status}")
        });
        let Some(receipt) = receipt else {
            check.that(status.is_null(), || "it has a status, and names no command".to_owned());
            let is_run = is_command && self.started.is_some() && !is_error;
            check.that(!is_run, || "it succeeded, and names no command".to_owned());
            return;
        };
        if self.agent.is_some() || self.name == "agent" {
            return;
        }
        // A copy of a ledger, also in a bundle, has the same name and origin.
        let name = receipt["ledger"].as_str().and_then(|ledger| ledger.rsplit('/').next());
        let is_here = name == entry.ledger.file_name().and_then(|name| name.to_str());
        check.that(is_here, || "the effect of the call is on another ledger".to_owned());
        let seq = receipt["seq"].as_u64().unwrap_or_default();
        match &self.effect {
            Some(effect) if is_here && effect.seq == seq => {
                if let Some(claimed) = &effect.status {
                    check.same("exit_code", &status, claimed);
                } else {
                    check.that(status.is_null(), || "an operation has no status".to_owned());
                }
                if let Some((hash, bytes)) = &effect.output {
                    self.judge_output(entry, hash, *bytes, was_resumed, check);
                }
            }
            _ if !is_here => (),
            _ => {
                let own = self.started.as_ref().and_then(|started| started.seq) == Some(seq);
                let other = operations.get(&seq);
                let is_other = other.is_some_and(|call| call.as_ref().is_none_or(|call| *call == self.id));
                check.that(own && !is_command || is_other, || format!("line {seq} is not the end of this call"));
            }
        }
    }

    /// Compares the text of a result with the hash of the output.
    fn judge_output(&self, entry: &Entry<'_>, hash: &str, bytes: u64, was_resumed: bool, check: &mut Check) {
        let text = text_of(&entry.content);
        let is_cut = text.contains(" bytes are left out here, the whole is sha256:");
        if self.is_sifted || is_cut {
            return;
        }
        let is_error = entry.data.get("is_error") == Some(&Value::Bool(true));
        let head = usize::try_from(bytes).ok().and_then(|bytes| text.as_bytes().get(..bytes));
        let found = head.is_some_and(|head| Hash::of(head).to_string() == hash);
        // The output of a command that ended while the run was stopped is not kept.
        let ended_alone =
            format!(" while the run was stopped. It is not run again. Its output is not kept: {bytes} bytes");
        if was_resumed && text.starts_with("The command ended ") && text.contains(&ended_alone) {
            return;
        }
        // The result of a command that failed begins with its status or its error output.
        if found || is_error && !text.is_empty() {
            return;
        }
        if entry.is_redacted() || text.contains('\u{fffd}') {
            check.unknown("a secret was taken out of the output, or it is not text");
        } else {
            check.that(false, || "the content is not the output that the command had".to_owned());
        }
    }
}

/// The text of a content: a text, or its blocks of text.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter(|block| at(block, &["type"]) == "text");
            texts.filter_map(|block| block.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}
