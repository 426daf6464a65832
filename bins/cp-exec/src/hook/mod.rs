//! Hooks of other agents: what their JSON says, and an answer in their words. Nothing here decides or touches the world.

mod decode;
mod rewrite;
#[cfg(test)]
mod tests;
mod tools;
mod words;

use std::path::PathBuf;

use cp_hosts::Host;
use serde_json::{Map, Value};

pub(crate) use self::decode::decode;
pub(crate) use self::rewrite::{Line, Rewriting, candidate};
pub(crate) use self::tools::{ToolEffect, command, effect_of, told};
pub(crate) use self::words::{Verdict, reported, words};

/// What a host tells.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Who tells it, found by the members.
    pub host: Host,
    pub moment: Moment,
    /// The host's id of the conversation.
    pub session: String,
    /// The host's id of the tool call, if it has one.
    pub call: Option<String>,
    /// Where the conversation is.
    pub cwd: Option<PathBuf>,
    /// How far the host asks its person, in its own word.
    pub mode: Option<String>,
}

/// When in a conversation.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// A tool is about to run.
    Before(Tool),
    /// It has run.
    After(Tool, Output),
    /// The conversation starts or goes on.
    Start,
    End,
    /// Nothing runs by it.
    Other,
}

/// A tool with what it is called with.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub name: String,
    pub input: Map<String, Value>,
}

/// What came of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub value: Value,
    pub failed: bool,
}

/// How a host's person can be asked about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// By the host, at once.
    Now,
    /// The host stops, and asks again when it is resumed.
    Later,
    /// Not by the host.
    Never,
}

impl Event {
    /// How its person can be asked. Only Claude Code takes what is asked for a no where nobody answers, and it asks only where it asks
    /// for itself too; where it does not tell, nobody is asked.
    pub(crate) fn asks(&self, named: Host, attended: Option<bool>) -> Asks {
        let is_claude = self.host == Host::Claude && named == Host::Claude && self.call.is_some();
        match (attended.filter(|_| is_claude), self.mode.as_deref()) {
            (Some(false), _) => Asks::Later,
            (Some(true), Some("default" | "acceptEdits" | "plan")) => Asks::Now,
            (Some(true) | None, _) => Asks::Never,
        }
    }
}

impl Output {
    /// All texts in it, one a line.
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
