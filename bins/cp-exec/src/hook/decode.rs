//! Decodes the JSON of a host. Unknown members are ignored, because hosts add members with new versions.

use std::path::PathBuf;

use cp_common::{Error, Result, json};
use serde_json::{Map, Value};

use super::{Event, Host, Moment, Output, Tool};

type Members = Map<String, Value>;

/// Decodes the one object that a host sends. A duplicate member is an error, because parsers could differ. `asked` is
/// the host that the command line names; it decides if the members fit several hosts.
pub(crate) fn decode(bytes: &[u8], asked: Host) -> Result<Event> {
    let unclear = |why: String| Error::validation(format!("the host's question cannot be read: {why}"));
    json::check(bytes).map_err(|fault| unclear(fault.to_string()))?;
    let members: Members = serde_json::from_slice(bytes).map_err(|e| unclear(e.to_string()))?;
    let event = match (text(&members, "hook_event_name"), text(&members, "sessionId")) {
        (Some(name), _) => named(&members, &name, asked),
        (None, Some(session)) => copilot(&members, session),
        (None, None) => opencode(&members),
    };
    event.ok_or_else(|| unclear("no host that is known writes it so".to_owned()))
}

/// Decodes an event of Claude Code, Codex, Gemini CLI, or Copilot with the event names of Claude Code.
fn named(members: &Members, name: &str, asked: Host) -> Option<Event> {
    let host = match (name, asked) {
        ("BeforeTool" | "AfterTool", _) => Host::Gemini,
        (_, Host::Codex) => Host::Codex,
        _ if members.contains_key("turn_id") => Host::Codex,
        // Events of Copilot's own tools have other names.
        (name, Host::Gemini) if !name.contains("ToolUse") => Host::Gemini,
        (_, Host::Claude | Host::Gemini | Host::Copilot | Host::Opencode) => Host::Claude,
    };
    let tool = || Some(Tool { name: text(members, "tool_name")?, input: object(members.get("tool_input")?)? });
    let output = |member: &str, failed| {
        let value = members.get(member).cloned().unwrap_or_default();
        let failed = failed || value["is_error"] == true || value["interrupted"] == true || !value["error"].is_null();
        Output { value, failed }
    };
    let moment = match name {
        "PreToolUse" | "BeforeTool" => Moment::Before(tool()?),
        "PostToolUse" | "AfterTool" => Moment::After(tool()?, output("tool_response", false)),
        "PostToolUseFailure" => Moment::After(tool()?, output("error", true)),
        "SessionStart" => Moment::Start,
        "SessionEnd" => Moment::End,
        _ => Moment::Other,
    };
    Some(Event {
        host,
        moment,
        session: text(members, "session_id")?,
        call: text(members, "tool_use_id"),
        cwd: text(members, "cwd").map(PathBuf::from),
        mode: text(members, "permission_mode"),
    })
}

/// Decodes an event of Copilot with its own member names. The members determine the kind of event.
fn copilot(members: &Members, session: String) -> Option<Event> {
    let moment = match (text(members, "toolName"), members.get("toolResult"), members.get("error")) {
        (Some(name), result, error) => {
            let tool = Tool { name, input: object(members.get("toolArgs")?)? };
            match (result, error) {
                (None, None) => Moment::Before(tool),
                (Some(value), _) => {
                    let failed = value["resultType"] != "success";
                    Moment::After(tool, Output { value: value.clone(), failed })
                }
                (None, Some(value)) => Moment::After(tool, Output { value: value.clone(), failed: true }),
            }
        }
        (None, ..) if members.contains_key("source") => Moment::Start,
        (None, ..) if members.contains_key("reason") => Moment::End,
        (None, ..) => Moment::Other,
    };
    let cwd = text(members, "cwd").map(PathBuf::from);
    Some(Event { host: Host::Copilot, moment, session, call: None, cwd, mode: None })
}

/// Decodes a call of the plugin in opencode: its two arguments, and the working directory.
fn opencode(members: &Members) -> Option<Event> {
    let (input, output) = (members.get("input")?.as_object()?, members.get("output")?.as_object()?);
    let tool = |arguments: Option<&Value>| Some(Tool { name: text(input, "tool")?, input: object(arguments?)? });
    let moment = if let Some(arguments) = output.get("args") {
        Moment::Before(tool(Some(arguments))?)
    } else {
        let value = output.get("output").cloned().unwrap_or_default();
        let failed = output.get("metadata").is_some_and(|found| found["exit"].as_i64().unwrap_or(0) != 0);
        Moment::After(tool(input.get("args"))?, Output { value, failed })
    };
    Some(Event {
        host: Host::Opencode,
        moment,
        session: text(input, "sessionID")?,
        call: text(input, "callID"),
        cwd: text(members, "cwd").map(PathBuf::from),
        mode: None,
    })
}

/// An object, or the text of one, which older versions send.
fn object(value: &Value) -> Option<Members> {
    match value {
        Value::Object(members) => Some(members.clone()),
        Value::String(text) => json::check(text.as_bytes()).ok().and_then(|()| serde_json::from_str(text).ok()),
        _ => None,
    }
}

fn text(members: &Members, name: &str) -> Option<String> {
    members.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
