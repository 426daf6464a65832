//! Messages and members of refusals.

use std::path::Path;

use cp_common::wire::quoted;
use cp_common::{Code, Error};
use serde::Serialize;
use serde_json::Value;

/// A refusal by a rule with a name.
pub(crate) fn refuse(rule: &str, reason: impl Into<String>) -> Error {
    let reason = reason.into();
    Error::new(Code::Forbidden, reason.clone()).with("rule", rule).with("reason", reason)
}

/// The words before the command that allows what was refused.
pub(crate) const TO_ALLOW: &str = "to allow it: ";

/// The command with which a person allows a value for this project.
pub(crate) fn allow_line(kind: &str, value: &str) -> String {
    format!("cp-exec allow {kind} {}", quoted(value))
}

/// A refusal of an operation on a path. The caller adds the rule.
pub(crate) fn denied(operation: &str, path: &Path) -> Error {
    let message = format!("Capability denied: {operation} on {}", path.display());
    Error::new(Code::Forbidden, message.clone()).with("reason", message).with("path", path.display().to_string())
}

/// A refusal to follow a path through a link.
pub(crate) fn refuse_link(path: &str, link: &Path, why: &str) -> Error {
    refuse("link", format!("`{path}` goes through the link {}, {why}", link.display()))
        .with("path", path)
        .with("link", link.display().to_string())
        .hint("remove the link, or have the owner of the policy list the target directory by its own path")
}

/// An error with the members of an answer among its details.
pub(crate) fn with_members(error: Error, answer: &impl Serialize) -> Error {
    let Ok(Value::Object(members)) = serde_json::to_value(answer) else { return error };
    members.into_iter().fold(error, |error, (name, value)| error.with(&name, value))
}
