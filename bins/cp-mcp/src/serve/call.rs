//! One call, from its ledger entry to its answer. The client may approve a call if the policy leaves it to the agent. A
//! call that requires the owner is never approved here, because a client can answer without a person.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use cp_common::program::approval::{answered, description, grant, issue, redeem};
use cp_common::wire::{Approval, Code, Grant, How, Level, ToolCall};
use cp_common::{Error, Result, keys, signals};
use cp_ledger::format::approval::Said;
use cp_mcp_wire::result;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::protocol::{Client, FormAction, complete, form_action};
use super::shared::{Shared, Stop};
use super::tools::Action;
use crate::gate::raw;
use crate::stdio::{Event, locked};

/// A call of a client.
pub(super) struct Call {
    pub id: Box<RawValue>,
    pub name: String,
    /// The hash of its arguments, for the ledger.
    pub input_hash: String,
    /// The action, or the error in its arguments.
    pub action: Result<Action>,
    /// True if its answer is text, and not data.
    pub has_text: bool,
    pub consent: Option<Consent>,
    pub client: Client,
    /// The token for progress notifications.
    pub progress: Option<Value>,
    pub stop: Arc<Stop>,
}

/// Runs a call, and posts its response.
pub(super) fn work(call: Call, shared: &Shared) {
    let line = if call.stop.load(Relaxed) { None } else { response(&call, shared) };
    let _ = shared.post.send(Event::Ended(call.stop, line.unwrap_or_default()));
}

/// Runs a call; `None` if it was cancelled.
fn response(call: &Call, shared: &Shared) -> Option<String> {
    // A signal must not interrupt the cleanup of started processes.
    let _effect = signals::effect();
    let answer = recorded(call, shared).unwrap_or_else(|error| Some(Answer::of_error(error)));
    let value = answer?.into_value(call.has_text);
    Some(result(&call.id, &complete(value, call.client.is_modern(), false)))
}

/// Runs a call, and records the call and its result. The programs record their effects themselves, and sync them first.
fn recorded(call: &Call, shared: &Shared) -> Result<Option<Answer>> {
    let Call { name, client, input_hash, stop, .. } = call;
    let intent = json!({
        "call_id": call.id(),
        "tool": name,
        "input_hash": input_hash,
        "client": client.party,
        "protocol": client.version,
    });
    let started = shared.journal().start(&intent, name, Some(call.id()))?;
    let answer = done(call, shared).unwrap_or_else(|error| Some(Answer::of_error(error)));
    let mut answer = answer.filter(|_| !stop.load(Relaxed));
    let mut journal = shared.journal();
    let hash = answer.as_ref().map(|answer| keys::hash(answer.text.as_bytes()));
    let kept = answer.as_mut().map(|answer| answer.shorten(journal.path())).transpose()?.flatten();
    journal.end(Some(&started), answer.as_ref().is_none_or(|answer| answer.is_error), hash.as_deref(), kept)?;
    Ok(answer)
}

/// The answer of a call; `None` if it was cancelled.
fn done(call: &Call, shared: &Shared) -> Result<Option<Answer>> {
    let (began, stop) = (Instant::now(), &*call.stop);
    let mut told = None;
    let mut looked = || {
        let seconds = told.map_or(Some(0), |before| Some(began.elapsed().as_secs()).filter(|now| now > &before));
        if let (Some(token), Some(seconds)) = (&call.progress, seconds) {
            told = Some(seconds);
            call.tell(token, seconds, shared);
        }
    };
    looked();
    match call.action.as_ref().map_err(|error| Error::from_value(&error.to_value()))? {
        Action::Exec { tool, input } => {
            let made = call.made(tool, input)?;
            let (line, mut consent) = (made.input.get(), call.consent.clone());
            // Each start of a command line repeats its effects, so the approval is settled before it starts again.
            let kept = |_| locked(&shared.paused).get(line).map(Error::from_value);
            let mut paused = consent.as_ref().and_then(kept);
            loop {
                let error = match paused.take().map_or_else(|| shared.exec(&made, stop, &mut looked), Err) {
                    Err(error) if error.code() == Code::HumanRequired => error,
                    result => return Ok(result?.map(Answer::of_result)),
                };
                let kept = error.to_value();
                if let Some(answer) = settled(error, consent.take(), call, shared)? {
                    if tool == "bash" {
                        shared.keep_paused(line, kept);
                    }
                    return Ok(Some(answer));
                }
                locked(&shared.paused).remove(line);
            }
        }
        Action::Ask { program, words, input, all } => {
            let answer = if program == "cp-llm" { Answer::of_message } else { Answer::of_data };
            Ok(shared.ask(program, words, input, *all, stop, &mut looked)?.map(answer))
        }
    }
}

impl Call {
    /// Its id as a text.
    fn id(&self) -> String {
        serde_json::from_str(self.id.get()).unwrap_or_else(|_| self.id.get().to_owned())
    }

    /// The call for cp-exec.
    fn made(&self, tool: &str, input: &impl serde::Serialize) -> Result<ToolCall> {
        let (id, name, input) = (self.id(), tool.to_owned(), raw(input)?);
        Ok(ToolCall { id, name, input, timeout: None, untrusted: Vec::new() })
    }

    fn tell(&self, token: &Value, seconds: u64, shared: &Shared) {
        let message =
            if seconds == 0 { format!("{} begins", self.name) } else { format!("{} for {seconds} s", self.name) };
        let params = json!({ "progressToken": token, "progress": seconds, "message": message });
        shared.tell(None, "notifications/progress", &params);
    }
}

/// The name of the approval request.
const QUESTION: &str = "approve";

/// The answer of a client that was asked about an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// The token that it was given with the question.
    token: String,
    action: FormAction,
    /// Whether it answered a form, or repeats the call with the token.
    how: How,
}

impl Consent {
    /// The consent in the parameters of a call. The token of a preview is removed from the arguments.
    pub(super) fn of(params: &Map<String, Value>, arguments: &mut Map<String, Value>) -> Option<Self> {
        let word = params.get("inputResponses").and_then(|answers| form_action(answers.get(QUESTION)?));
        match (params.get("requestState").and_then(Value::as_str), word, arguments.remove("confirm")) {
            (Some(state), Some(action), _) => Some(Self { token: state.to_owned(), action, how: How::Approver }),
            (_, _, Some(Value::String(token))) => Some(Self { token, action: FormAction::Accept, how: How::Resume }),
            _ => None,
        }
    }
}

/// Settles the approval that a call waits for. `None`: it is granted, and the same call continues with it.
fn settled(paused: Error, consent: Option<Consent>, call: &Call, shared: &Shared) -> Result<Option<Answer>> {
    let client = &call.client;
    let Some(mut approval) = Approval::of(&paused).filter(|approval| approval.level == Level::Agent) else {
        return Err(paused);
    };
    let is_of_line = paused.details().contains_key("denied");
    if is_of_line {
        approval.shown.why.push_str("; the line ran without this program, and starts again from its beginning");
    }
    let Consent { token, action, how } = if let Some(consent) = consent {
        consent
    } else {
        let (token, _) = issue(&shared.home, &approval)?;
        if !client.asks {
            let done = if is_of_line { "This program was not started." } else { "Nothing was done." };
            return Ok(Some(Answer::preview(&description(&approval), done, &token, &approval)));
        }
        // A form without fields: accepting it approves the call.
        let message = format!("Allow it?\n{}", description(&approval));
        let mut form = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
        if client.is_modern() {
            form["mode"] = "form".into();
            let requests = json!({ QUESTION: { "method": "elicitation/create", "params": form } });
            return Ok(Some(Answer::asking(&requests, &token)));
        }
        let action = shared.ask_client(&token, "elicitation/create", &form, &call.stop)?;
        Consent { token, action, how: How::Approver }
    };
    redeem(&shared.home, &token, &approval)?;
    let who = &client.party.name;
    match action {
        FormAction::Accept => {
            let mut yes = Grant::by("host", who, how);
            yes.receipt = Some(shared.journal().approval(Said::Granted(&yes), &approval)?);
            grant(&shared.home, &approval, &yes).map(|()| None)
        }
        FormAction::Decline => {
            let why = "the person at the client declined it";
            shared.journal().approval(Said::Denied { by: who, why }, &approval)?;
            answered(&shared.home, &approval.id)?;
            Err(Error::new(Code::Forbidden, format!("not approved: {why}")).with("rule", "approval"))
        }
        FormAction::Cancel => Err(paused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(params: Value, arguments: Value) -> (Option<Consent>, Map<String, Value>) {
        let (Value::Object(params), Value::Object(mut arguments)) = (params, arguments) else { panic!() };
        (Consent::of(&params, &mut arguments), arguments)
    }

    #[test]
    fn consent_prefers_form_answer_and_removes_token() {
        let brings = |token: &str, action, how| Some(Consent { token: token.to_owned(), action, how });
        assert_eq!(of(json!({}), json!({"command": "x"})).0, None);
        let (consent, left) = of(json!({}), json!({"confirm": "ct_1", "command": "x"}));
        assert_eq!((consent, left.len()), (brings("ct_1", FormAction::Accept, How::Resume), 1));
        let answered = json!({"requestState": "ct_2", "inputResponses": {"approve": {"action": "decline"}}});
        assert_eq!(of(answered, json!({"confirm": "ct_1"})).0, brings("ct_2", FormAction::Decline, How::Approver));
        for half in [
            json!({"requestState": "ct_2"}),
            json!({"inputResponses": {"approve": {"action": "accept"}}}),
            json!({"requestState": "ct_2", "inputResponses": {"approve": {"action": "yes"}}}),
            json!({"requestState": "ct_2", "inputResponses": {"other": {"action": "accept"}}}),
            json!({"requestState": 1, "inputResponses": []}),
        ] {
            assert_eq!(of(half.clone(), json!({})).0, None, "{half}");
        }
    }
}
