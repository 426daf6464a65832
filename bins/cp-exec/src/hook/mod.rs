//! Hooks of other agents: decodes their JSON events, and encodes answers for them. This module decides nothing and
//! has no side effects.

mod commands;
#[cfg(test)]
mod tests;
mod tools;
mod words;
mod wrapped;

use std::path::PathBuf;

use cp_common::{Error, Result, json};
use cp_hosts::Host;
use serde_json::{Map, Value};

pub(crate) use self::tools::{ToolEffect, call_identity, command, effect_of};
pub(crate) use self::words::{Line, Rewriter, Verdict, original_of, report_text, response};
pub(crate) use self::wrapped::WrappedLine;

/// An event of a host.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The host, recognized by the members.
    pub host: Host,
    pub moment: Moment,
    /// The host's id of the conversation.
    pub session: String,
    /// The host's id of the tool call, if it has one.
    pub call: Option<String>,
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
    /// The tool has run.
    After(Tool, Output),
    /// The conversation starts or is resumed.
    Start,
    End,
    /// An event without a tool call.
    Other,
}

/// A tool call: the tool's name and its input.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub name: String,
    pub input: Map<String, Value>,
    /// The hosts whose tables may have the tool: the host of the event, that of the command line, and Copilot, which
    /// runs the hooks of Claude Code as well.
    pub hosts: [Host; 3],
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub value: Value,
    pub failed: bool,
}

/// The way in which the user of a host can be asked about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptMode {
    /// The host asks immediately.
    Now,
    /// The host stops, and asks again when its session is resumed.
    Later,
    /// The host cannot ask.
    Never,
}

impl Event {
    /// The way in which the user can be asked. Only Claude Code treats an unanswered question as a denial, and only
    /// in modes in which it asks for itself. Without `attended`, the host is not asked.
    pub(crate) fn prompt_mode(&self, named: Host, attended: Option<bool>) -> PromptMode {
        let is_claude = self.host == Host::Claude && named == Host::Claude && self.call.is_some();
        match (attended.filter(|_| is_claude), self.mode.as_deref()) {
            (Some(false), _) => PromptMode::Later,
            (Some(true), Some("default" | "acceptEdits" | "plan")) => PromptMode::Now,
            (Some(true) | None, _) => PromptMode::Never,
        }
    }
}

impl Output {
    /// All texts of the value, one per line.
    pub(crate) fn texts(&self) -> String {
        let (mut texts, mut rest) = (Vec::new(), vec![&self.value]);
        while let Some(value) = rest.pop() {
            match value {
                Value::String(text) => texts.push(text.as_str()),
                Value::Array(values) => rest.extend(values),
                Value::Object(members) => rest.extend(members.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        texts.join("\n")
    }
}

type Members = Map<String, Value>;

/// Decodes the one object that a host sends. A duplicate member is an error, because parsers could differ. `asked` is
/// the host that the command line names; it decides if the members fit several hosts.
pub(crate) fn decode(bytes: &[u8], asked: Host) -> Result<Event> {
    let unclear = |why: String| Error::validation(format!("the host's question cannot be read: {why}"));
    json::check(bytes).map_err(|fault| unclear(fault.to_string()))?;
    let members: Members = serde_json::from_slice(bytes).map_err(|e| unclear(e.to_string()))?;
    let event = match (text(&members, "hook_event_name"), text(&members, "sessionId")) {
        (Some(name), _) => named(&members, &name, asked),
        (None, Some(session)) => copilot(&members, session, asked),
        (None, None) => opencode(&members, asked),
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
    let tool = || tool(text(members, "tool_name")?, members.get("tool_input")?, [host, asked]);
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
        // An event of a tool under a name that is not known could be the question before a call.
        _ if members.contains_key("tool_name") => return None,
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
fn copilot(members: &Members, session: String, asked: Host) -> Option<Event> {
    let moment = match (text(members, "toolName"), members.get("toolResult"), members.get("error")) {
        (Some(name), result, error) => {
            let tool = tool(name, members.get("toolArgs")?, [Host::Copilot, asked])?;
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
fn opencode(members: &Members, asked: Host) -> Option<Event> {
    let (input, output) = (members.get("input")?.as_object()?, members.get("output")?.as_object()?);
    let tool = |arguments: Option<&Value>| tool(text(input, "tool")?, arguments?, [Host::Opencode, asked]);
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

fn tool(name: String, input: &Value, [host, asked]: [Host; 2]) -> Option<Tool> {
    let third = if host == Host::Claude { Host::Copilot } else { asked };
    Some(Tool { name, input: object(input)?, hosts: [host, asked, third] })
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
