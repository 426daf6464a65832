//! Hooks of other agents: decodes their JSON events, and encodes answers for them. This module decides nothing and
//! has no side effects.

mod lines;
#[cfg(test)]
mod tests;
mod tools;

use std::path::PathBuf;

use cp_common::{Error, Result, json::check};
use serde_json::{Map, Value, json};

pub(crate) use self::lines::{WrappedLine, rewritten};
pub(crate) use self::tools::{ToolEffect, command, effect_of};
use crate::hosts::Host;
use crate::policy::HostCall;

/// An event of a host.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub host: Host,
    pub moment: Moment,
    /// The host's ids of the conversation and of the tool call, which is empty for another event.
    pub call: HostCall,
    /// The working directory of the conversation.
    pub cwd: Option<PathBuf>,
    /// The permission mode of the host, in its own word.
    pub mode: Option<String>,
}

/// The kind of event.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// A tool is about to run.
    Before(Tool),
    /// The tool has run, with this output, which is an error if the flag is set.
    After(Tool, Value, bool),
    /// An event without a tool call.
    Other,
}

/// A tool call: the tool's name and its input.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub name: String,
    pub input: Map<String, Value>,
    /// The host of the event.
    pub host: Host,
}

impl Event {
    /// True if the host can ask its user. Only Claude Code treats an unanswered question as a denial, and only in modes
    /// in which it asks for itself.
    pub(crate) fn may_ask(&self) -> bool {
        self.host == Host::Claude && matches!(self.mode.as_deref(), Some("default" | "acceptEdits" | "plan"))
    }
}

type Members = Map<String, Value>;

/// Decodes the one object that a host sends. A duplicate member is an error, because parsers could differ.
pub(crate) fn decode(bytes: &[u8], host: Host) -> Result<Event> {
    let unclear = |why: String| Error::validation(format!("the host's question cannot be read: {why}"));
    check(bytes).map_err(|fault| unclear(fault.to_string()))?;
    let members: Members = serde_json::from_slice(bytes).map_err(|e| unclear(e.to_string()))?;
    let event = decoded(&members, host).ok_or_else(|| unclear(format!("{} does not write it so", host.name())))?;
    // The call is written as HOST/SESSION/CALL.
    if event.call.session.contains(|c: char| c == '/' || c.is_control()) {
        return Err(unclear("the id of its session has a slash or a control character in it".to_owned()));
    }
    Ok(event)
}

fn decoded(members: &Members, host: Host) -> Option<Event> {
    let tool = || {
        Some(Tool { name: text(members, "tool_name")?, input: members.get("tool_input")?.as_object()?.clone(), host })
    };
    let after = |member: &str, failed| {
        let output = members.get(member).cloned().unwrap_or_default();
        let failed =
            failed || output["is_error"] == true || output["interrupted"] == true || !output["error"].is_null();
        Some(Moment::After(tool()?, output, failed))
    };
    let moment = match text(members, "hook_event_name")?.as_str() {
        "PreToolUse" => Moment::Before(tool()?),
        "PostToolUse" => after("tool_response", false)?,
        "PostToolUseFailure" => after("error", true)?,
        // An event of a tool under a name that is not known could be the question before a call.
        _ if members.contains_key("tool_name") => return None,
        _ => Moment::Other,
    };
    let is_of_tool = matches!(moment, Moment::Before(_) | Moment::After(..));
    let call = text(members, "tool_use_id").or_else(|| Some(String::new()).filter(|_| !is_of_tool))?;
    Some(Event {
        host,
        moment,
        call: HostCall { host: host.name().to_owned(), session: text(members, "session_id")?, call },
        cwd: text(members, "cwd").map(PathBuf::from),
        mode: text(members, "permission_mode"),
    })
}

fn text(members: &Members, name: &str) -> Option<String> {
    members.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The decision about a tool call.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The host applies its own rules.
    Pass,
    /// The tool runs with this input.
    Rewrite(Map<String, Value>),
    /// The tool runs with this input if the user agrees.
    Ask(Map<String, Value>, String),
    /// The tool does not run.
    Deny(String),
}

/// The name of the decision on the ledger, and the line that the host reads from standard output; empty if it expects
/// none. For a denial the exit status is also 2, with a message on standard error, which all hosts accept as a denial.
pub(crate) fn response(verdict: &Verdict) -> (&'static str, String) {
    let (name, decision, why, input) = match verdict {
        Verdict::Pass => return ("pass", String::new()),
        Verdict::Rewrite(input) => ("rewrite", "allow", "cp-exec runs it in its sandbox", Some(input)),
        Verdict::Ask(input, why) => ("ask", "ask", why.as_str(), Some(input)),
        Verdict::Deny(why) => ("deny", "deny", why.as_str(), None),
    };
    let mut words = json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": why,
    });
    if let Some(input) = input {
        words["updatedInput"] = Value::Object(input.clone());
    }
    (name, format!("{}\n", json!({ "hookSpecificOutput": words })))
}
