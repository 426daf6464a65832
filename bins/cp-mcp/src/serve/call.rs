//! One call, from its ledger entry to its answer. The client may approve a call if the policy leaves it to the agent. A
//! call that requires the owner is never approved here, because a client can answer without a person.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use cp_common::program::approval::{answered, description, grant, pause, waiting};
use cp_common::program::grant::{Bound, inspect, issue, redeem};
use cp_common::wire::{Approval, Code, Grant, How, Level, ToolCall};
use cp_common::{Error, Result, keys, signals};
use cp_ledger::format::approval::Said;
use cp_mcp_wire::{Meta, request, result};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::protocol::{FormAction, complete, form_action};
use super::shared::{Shared, Stop};
use super::tools::Action;
use crate::gate::raw;
use crate::stdio::{Post, post};

/// A call of a client.
pub(super) struct Call {
    pub id: Box<RawValue>,
    pub name: String,
    /// The hash of its arguments, for the ledger.
    pub input_hash: String,
    /// The action, or the error in its arguments.
    pub action: Result<Action>,
    pub consent: Option<Consent>,
    pub client: Meta,
    /// The token for progress notifications.
    pub progress: Option<Value>,
    pub stop: Arc<Stop>,
    /// The pipe of the lines for the client.
    pub post: Arc<Post>,
}

/// Runs a call, and posts its response; a blank line if it was cancelled.
pub(super) fn work(call: Call, shared: &Shared) {
    // A signal must not interrupt the cleanup of started processes.
    let _effect = signals::effect();
    let answer = if call.stop.load(Relaxed) { Ok(None) } else { recorded(&call, shared) };
    let answer = answer.unwrap_or_else(|error| Some(Answer::of_error(error)));
    let Call { id, client, stop, post: pipe, .. } = call;
    let line = answer.map(|answer| result(&id, &complete(answer.into_value(), client.is_modern(), false)));
    // The line wakes the main thread, for which the call has ended by then.
    drop(stop);
    post(&line.unwrap_or_else(|| "\n".to_owned()), &pipe);
}

/// Runs a call, and records the call and its result; `None` if it was cancelled. The programs record their effects
/// themselves, and sync them first.
fn recorded(call: &Call, shared: &Shared) -> Result<Option<Answer>> {
    let Call { name, client, input_hash, stop, .. } = call;
    let entry = shared.journal().entry("mcp.call").data(&json!({ "call_id": call.id(), "tool": name }));
    let entry = entry.data(&json!({ "input_hash": input_hash, "client": client.client, "protocol": client.version }));
    let started = shared.journal().start(entry, name, Some(call.id()))?;
    let answer = done(call, shared).unwrap_or_else(Answer::of_error);
    let mut answer = (!stop.load(Relaxed)).then_some(answer);
    let mut journal = shared.journal();
    let hash = answer.as_ref().map(|answer| keys::hash(answer.text.as_bytes()));
    let kept = answer.as_mut().map(|answer| answer.shorten(journal.path())).transpose()?.flatten();
    journal.end(Some(&started), answer.as_ref().is_none_or(|answer| answer.is_error), hash.as_deref(), kept)?;
    Ok(answer)
}

/// The answer of a call.
fn done(call: &Call, shared: &Shared) -> Result<Answer> {
    let (began, mut next) = (Instant::now(), 0);
    // Tells the client the progress each second. Fails if the call was cancelled.
    let mut look = || {
        let seconds = began.elapsed().as_secs();
        if let Some(token) = call.progress.as_ref().filter(|_| seconds >= next) {
            next = seconds + 1;
            let progress = json!({ "progressToken": token, "progress": seconds });
            post(&request(None, "notifications/progress", Some(&progress)), &call.post);
        }
        if call.stop.load(Relaxed) { Err(Error::new(Code::Interrupted, "cancelled")) } else { Ok(()) }
    };
    look()?;
    let (tool, input) = match call.action.as_ref().map_err(|error| Error::from_value(&error.to_value()))? {
        Action::Exec { tool, input } => (tool, input),
        Action::Ask { program, words, input, all } => {
            let answer = if program == "cp-llm" { Answer::of_message } else { Answer::of_data };
            return shared.ask(program, words, input, *all, &mut look).map(answer);
        }
    };
    let made = ToolCall { id: call.id(), name: tool.clone(), input: raw(input)?, timeout: None, untrusted: Vec::new() };
    // Each start of a command line repeats its effects, so an approval is settled before it starts again.
    if let Some(Consent { token, action, how }) = &call.consent {
        let is_redeemed =
            |approval: &Approval| bound(&made, approval).and_then(|bound| redeem(&shared.home, token, &bound)).is_ok();
        let missing = || Error::new(Code::Conflict, "no approval of this call waits for the confirm token");
        let found = inspect(&shared.home, token)
            .and_then(|()| waiting(&shared.home).into_iter().find(is_redeemed).ok_or_else(missing));
        let approval = found.map_err(|error| error.hint("make the call again without the token"))?;
        settle(&approval, *action, *how, call, shared)?;
    }
    loop {
        let error = match shared.exec(&made, &mut look) {
            Err(error) if error.code() == Code::HumanRequired => error,
            outcome => return outcome.map(Answer::of_result),
        };
        let Some(mut approval) = Approval::of(&error).filter(|approval| approval.level == Level::Agent) else {
            return Err(error);
        };
        let is_of_line = error.details().contains_key("denied");
        if is_of_line {
            approval.shown.why.push_str("; the line ran without this program, and starts again from its beginning");
        }
        let (token, _) = issue(&shared.home, &bound(&made, &approval)?)?;
        if !call.client.has_forms() {
            let done = if is_of_line { "This program was not started." } else { "Nothing was done." };
            return Ok(Answer::preview(&description(&approval), done, &token, &approval));
        }
        // A form without fields: accepting it approves the call.
        let message = format!("Allow it?\n{}", description(&approval));
        let mut form = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
        if call.client.is_modern() {
            form["mode"] = "form".into();
            let requests = json!({ QUESTION: { "method": "elicitation/create", "params": form } });
            let asks = json!({ "resultType": "input_required", "inputRequests": requests, "requestState": token });
            return Ok(Answer { asks: Some(asks), ..Answer::default() });
        }
        let action = shared.ask_client(&token, &form, &call.post, &mut look)?;
        redeem(&shared.home, &token, &bound(&made, &approval)?)?;
        settle(&approval, action, How::Approver, call, shared)?;
    }
}

/// What a token approves: one approval of one call.
fn bound(call: &ToolCall, approval: &Approval) -> Result<Bound> {
    Bound::new(&call.input, &approval.id)
}

/// Records the decision of a client about an approval. The error is that of a call that is not approved.
fn settle(approval: &Approval, action: FormAction, how: How, call: &Call, shared: &Shared) -> Result<()> {
    let who = &call.client.client.name;
    match action {
        FormAction::Accept => {
            let mut yes = Grant::by("host", who, how);
            yes.receipt = Some(shared.journal().approval(Said::Granted(&yes), approval)?);
            grant(&shared.home, approval, &yes)
        }
        FormAction::Decline => {
            let why = "the person at the client declined it";
            shared.journal().approval(Said::Denied { by: who, why }, approval)?;
            answered(&shared.home, &approval.id)?;
            Err(Error::new(Code::Forbidden, format!("not approved: {why}")).with("rule", "approval"))
        }
        FormAction::Cancel => Err(pause(&shared.home, approval)?),
    }
}

impl Call {
    /// Its id as a text.
    fn id(&self) -> String {
        serde_json::from_str(self.id.get()).unwrap_or_else(|_| self.id.get().to_owned())
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
