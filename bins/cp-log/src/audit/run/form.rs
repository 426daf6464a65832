//! The members that an entry of a run always has. An entry without one of them was not written by these programs.

use serde_json::Value;

use crate::audit::check::{Check, at};
use crate::audit::claim::Entry;

/// The events with the members of their data. A member behind a dot is one of the member before it.
const MEMBERS: [(&str, &str); 14] = [
    ("run_start", "model_command name base parent tools limits.max_iterations limits.tokens limits.usd messages"),
    ("run_resumed", "limits.max_iterations limits.tokens limits.usd limits.context_tokens limits.deadline uid"),
    ("run_paused", "code tally.usage.cost_usd"),
    ("run_end", "status tally.usage.cost_usd"),
    ("llm.request", "backend endpoint model attempt request_hash bytes stream messages tools"),
    (
        "llm.response",
        "backend endpoint model attempt request_hash status request_id response_hash duration_ms first_token_ms",
    ),
    ("message", "model stop_reason usage tool_calls"),
    ("tool_result", "id name is_error exit_code duration_ms receipt"),
    ("approval.asked", "approval.binds.program approval.binds.target approval.binds.policy approval.scopes"),
    ("exec.intent", INTENT),
    ("exec.step", "step by argv_as_asked cwd exe.path exe.sha256 decision rule reason approval"),
    ("exec.evidence", "intent declared_reads declared_writes external_calls"),
    ("exec.changes", "intent created changed removed files not_kept not_kept_paths"),
    ("exec.operation", "operation what"),
];

const INTENT: &str = "tool call line argv cwd exe.path exe.sha256 exe.cached exe.interpreter env stdin timeout_ms profile network \
                      argument_rules rule risk requires confirmed policy origin";

/// The members of the result of a command that ran.
const RESULT: &str = "return_code signal ended duration_ms stdout.bytes stdout.sha256 stderr.bytes stderr.sha256 result_hash \
                      enforcement.profile enforcement.network enforcement.missing";

/// Judges if an entry has its members.
pub(super) fn judge(entry: &Entry<'_>, check: &mut Check) {
    let members = MEMBERS.iter().find(|(event, _)| *event == entry.event).map(|(_, members)| *members);
    let members = members.or((entry.event == "exec.result" && entry.data.contains_key("steps")).then_some(RESULT));
    for path in members.into_iter().flat_map(str::split_whitespace) {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let names: Vec<&str> = parent.split('.').filter(|name| !name.is_empty()).collect();
        let holds = match names.split_first() {
            None => entry.data.contains_key(name),
            Some((first, rest)) => entry.data.get(*first).is_some_and(|value| at(value, rest).get(name).is_some()),
        };
        check.that(holds, || format!("it has no member `{path}`"));
    }
    for (name, text) in [("duration_ms", entry.data.get("duration_ms")), ("timeout_ms", entry.data.get("timeout_ms"))] {
        check.that(text.is_none_or(|value| value.is_null() || value.is_u64()), || format!("{name} is not a number"));
    }
    let cost = entry.data.get("tally").map_or(&Value::Null, |tally| at(tally, &["usage", "cost_usd"]));
    check.that(cost.is_null() || cost.is_number(), || "the cost is not a number".to_owned());
    let has_content = match entry.event.as_str() {
        "run_start" | "llm.request" | "message" | "tool_result" => true,
        "llm.response" => entry.data.contains_key("stop_reason"),
        _ => false,
    };
    check.that(!has_content || !entry.content.is_null(), || "it has no content".to_owned());
    let has_message = ["run_paused", "approval.asked", "approval.denied", "error"].contains(&entry.event.as_str());
    check.same("role", entry.role.as_deref(), role_of(entry));
    check.that(!has_message || entry.message.is_some(), || "it has no message".to_owned());
}

/// The role of an entry, which the response to a failed request does not have.
fn role_of(entry: &Entry<'_>) -> Option<&'static str> {
    match entry.event.as_str() {
        "run_start" => Some("user"),
        "tool_result" => Some("tool"),
        "message" => Some("assistant"),
        "llm.response" | "context_compacted" => ["stop_reason", "usage"]
            .iter()
            .any(|name| entry.data.contains_key(*name) && !entry.data.contains_key("code"))
            .then_some("assistant"),
        _ => None,
    }
}
