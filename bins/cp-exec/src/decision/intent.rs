//! Read-only intent: a command that a tool call can replace is refused in favour of that call, because the call
//! starts no process.

use cp_common::context::options::Origin;
use cp_common::{Code, Error, Result};

use crate::policy::{Intent, Policy};
use crate::refusal::refuse;
use crate::rules::Served;

/// Refuses a program's or a model's read-only command, and names the tool call that replaces it.
pub(super) fn check_intent(policy: &Policy, served: Option<&Served>, notices: &mut Vec<String>) -> Result<()> {
    let Some(served) = served.filter(|served| served.reads) else { return Ok(()) };
    // Another agent does not have these tools.
    let is_exempt = policy.actor.origin == Origin::Person || policy.actor.host.is_some();
    match policy.exec().intent {
        Intent::Off => Ok(()),
        Intent::Enforce if !is_exempt => Err(refuse(
            "intent",
            format!("read-only command: `{}` does the same without starting a process", served.by),
        )),
        Intent::Enforce | Intent::Warn => {
            notices.push(format!("`{}` would do the same without starting a process", served.by));
            Ok(())
        }
    }
}

/// Adds the tool call that replaces a refused command to the refusal.
pub(super) fn add_tool_call_hint(error: Error, policy: &Policy, served: Option<&Served>) -> Error {
    match served {
        Some(served) if error.code() == Code::Forbidden && !(served.reads && policy.exec().intent == Intent::Off) => {
            // Without a policy the first step is to create one.
            let hint = match error.hint_text() {
                Some(hint) if policy.loaded.file.is_none() => hint.to_owned(),
                Some(hint) => format!("{}; {hint}", served.hint),
                None => served.hint.clone(),
            };
            error.with("use", served.by.clone()).hint(hint)
        }
        _ => error,
    }
}
