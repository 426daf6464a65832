//! Hooks of other agents: decodes their JSON events, and encodes answers for them. This module decides nothing and
//! has no side effects.

mod decode;
#[cfg(test)]
mod tests;
mod tools;
mod words;

use std::path::PathBuf;

use cp_hosts::Host;
use serde_json::{Map, Value};

pub(crate) use self::decode::decode;
pub(crate) use self::tools::{ToolEffect, call_identity, command, effect_of};
pub(crate) use self::words::{Line, Rewriter, Verdict, original_of, report_text, response};

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
