//! Approval of calls. The client may approve a call if the policy leaves it to the agent. A call that requires the owner is never approved
//! here, because a client can answer without a person.

use cp_common::program::approval::{answered, bound, description, grant};
use cp_common::program::confirm::{issue, redeem};
use cp_common::wire::{Approval, Grant, How, Level, Scope};
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::executor::Stop;
use super::protocol::{Client, FormAction, form_action};
use super::shared::Shared;

/// The name of the approval request.
const QUESTION: &str = "approve";

/// The consent that a call brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    Nothing,
    /// The answer to a form, and the token of the form.
    Answer(String, FormAction),
    /// The token of a preview.
    Token(String),
}

impl Consent {
    /// The consent in the parameters of a call. The token of a preview is removed from the arguments.
    pub(super) fn of(params: &Map<String, Value>, arguments: &mut Map<String, Value>) -> Self {
        let word = params.get("inputResponses").and_then(|answers| form_action(answers.get(QUESTION)?));
        match (params.get("requestState").and_then(Value::as_str), word, arguments.remove("confirm")) {
            (Some(state), Some(word), _) => Self::Answer(state.to_owned(), word),
            (_, _, Some(Value::String(token))) => Self::Token(token),
            _ => Self::Nothing,
        }
    }
}

/// Settles the approval that a call waits for. `None`: it is granted, and the same call continues with it.
pub(super) fn settled(
    paused: Error,
    consent: &Consent,
    client: &Client,
    shared: &Shared,
    stop: &Stop,
) -> Result<Option<Answer>> {
    let Some(mut approval) = Approval::of(&paused).filter(|approval| approval.level == Level::Agent) else {
        return Err(paused);
    };
    let is_of_line = paused.details().contains_key("denied");
    if is_of_line {
        approval.shown.why.push_str("; the line ran without this program, and starts again from its beginning");
    }
    let word = match consent {
        Consent::Answer(token, word) => {
            redeem(&shared.home, token, &bound(&approval)?)?;
            *word
        }
        Consent::Token(token) => {
            redeem(&shared.home, token, &bound(&approval)?)?;
            granted(&approval, "agent", How::Resume, shared)?;
            return Ok(None);
        }
        Consent::Nothing if !client.asks => {
            let (token, _) = issue(&shared.home, &bound(&approval)?)?;
            let done = if is_of_line { "This program was not started." } else { "Nothing was done." };
            return Ok(Some(Answer::preview(&description(&approval), done, &token, &approval)));
        }
        Consent::Nothing if client.is_modern() => {
            let (token, _) = issue(&shared.home, &bound(&approval)?)?;
            let mut params = form(&approval);
            params["mode"] = "form".into();
            let requests = json!({ QUESTION: { "method": "elicitation/create", "params": params } });
            return Ok(Some(Answer::asking(requests, token)));
        }
        Consent::Nothing => shared.ask("elicitation/create", &form(&approval), stop)?.unwrap_or(FormAction::Cancel),
    };
    let who = &client.party.name;
    match word {
        FormAction::Accept => granted(&approval, who, How::Approver, shared).map(|()| None),
        FormAction::Decline => {
            let why = "the person at the client declined it";
            shared.journal().approval(Said::Denied { by: who, why }, &approval)?;
            answered(&shared.home, &approval.id)?;
            Err(Error::new(Code::Forbidden, format!("not approved: {why}")).with("rule", "approval"))
        }
        FormAction::Cancel => Err(paused),
    }
}

/// A form without fields: accepting it approves the call.
fn form(approval: &Approval) -> Value {
    let message = format!("Allow it?\n{}", description(approval));
    json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } })
}

/// Records a grant in the ledger, for the next start of this call.
fn granted(approval: &Approval, by: &str, how: How, shared: &Shared) -> Result<()> {
    let mut yes = Grant { by: by.to_owned(), how, scope: Scope::Once, receipt: None };
    yes.receipt = Some(shared.journal().approval(Said::Granted(&yes), approval)?);
    grant(&shared.home, approval, &yes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(params: Value, arguments: Value) -> (Consent, Map<String, Value>) {
        let (Value::Object(params), Value::Object(mut arguments)) = (params, arguments) else { panic!() };
        (Consent::of(&params, &mut arguments), arguments)
    }

    #[test]
    fn consent_prefers_form_answer_and_removes_token() {
        assert_eq!(of(json!({}), json!({"command": "x"})).0, Consent::Nothing);
        let (consent, left) = of(json!({}), json!({"confirm": "ct_1", "command": "x"}));
        assert_eq!((consent, left.len()), (Consent::Token("ct_1".to_owned()), 1));
        let answered = json!({"requestState": "ct_2", "inputResponses": {"approve": {"action": "decline"}}});
        assert_eq!(of(answered, json!({"confirm": "ct_1"})).0, Consent::Answer("ct_2".to_owned(), FormAction::Decline));
        for half in [
            json!({"requestState": "ct_2"}),
            json!({"inputResponses": {"approve": {"action": "accept"}}}),
            json!({"requestState": "ct_2", "inputResponses": {"approve": {"action": "yes"}}}),
            json!({"requestState": "ct_2", "inputResponses": {"other": {"action": "accept"}}}),
            json!({"requestState": 1, "inputResponses": []}),
        ] {
            assert_eq!(of(half.clone(), json!({})).0, Consent::Nothing, "{half}");
        }
    }
}
