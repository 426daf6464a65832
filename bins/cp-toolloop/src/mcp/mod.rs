//! Tools of MCP servers: started over stdio, called in either protocol, closed at the end.
//!
//! A server of the current era has no session: each request says which version it speaks. One of the era before needs a handshake first.
//! Which one it is, is found out by asking; see [`connection`]. Only tools are used: no prompts, resources, sampling.

mod connection;
mod content;
mod launch;
mod narrowed;
mod pipe;
mod policy;

use std::time::Duration;

use cp_common::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::connection::Connection;
use self::launch::Launcher;

/// The longest name of a tool that every provider takes.
const LONGEST_NAME: usize = 64;

/// A server, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// What it is called here.
    pub(crate) name: String,
    /// What starts it.
    pub(crate) argv: Vec<String>,
}

/// A tool of a server, as it describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Offer {
    /// Its name there.
    pub(crate) name: String,
    /// What it does.
    #[serde(default)]
    pub(crate) description: String,
    /// The schema of its arguments.
    #[serde(rename = "inputSchema")]
    pub(crate) input_schema: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) annotations: Annotations,
}

/// What a server says of the effects of a tool.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Annotations {
    /// It changes nothing.
    #[serde(default, rename = "readOnlyHint")]
    pub(crate) read_only_hint: bool,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The tool answered.
    Answer {
        /// For the model.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// It asks for something that only a person can answer.
    InputRequired(Value),
    /// It took too long.
    TimedOut,
}

/// The servers of a run. Each is started when it is first needed.
pub(crate) struct Servers {
    launcher: Launcher,
    running: Vec<(Spec, Connection)>,
}

/// Whether a server or tool can have this name: every provider takes it, and it cannot be taken for a path.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

impl Spec {
    /// Reads `NAME=COMMAND`, or `NAME` of a server whose command the policy has.
    pub(crate) fn parse(text: &str, context: &Context) -> Result<Self> {
        let (name, command) = text.split_once('=').map_or((text, None), |(name, command)| (name, Some(command)));
        if !is_name(name) {
            return Err(Error::usage(format!("--mcp {text}: the name must be 1 to 64 letters, digits, _ and -"))
                .hint("write --mcp NAME='/path/to/server arguments'"));
        }
        Ok(Self { name: name.to_owned(), argv: Launcher::of(context)?.argv(name, command)? })
    }
}

impl Servers {
    /// The servers of a context, none of them started.
    pub(crate) fn of(context: &Context) -> Result<Self> {
        Launcher::of(context).map(Self::with)
    }

    fn with(launcher: Launcher) -> Self {
        Self { launcher, running: Vec::new() }
    }

    /// The tools that a server offers.
    pub(crate) fn offers(&mut self, spec: &Spec) -> Result<Vec<Offer>> {
        self.connection(spec, Duration::ZERO)?.tools()
    }

    /// Calls a tool of a server, and waits at most so long. A server that has ended, or would before the call has, is started anew.
    pub(crate) fn call(&mut self, spec: &Spec, tool: &str, input: &RawValue, limit: Duration) -> Result<Outcome> {
        let called = self.connection(spec, limit)?.call(tool, input, limit);
        if called.is_err() {
            self.running.retain(|(running, _)| running != spec);
        }
        called
    }

    fn connection(&mut self, spec: &Spec, time: Duration) -> Result<&mut Connection> {
        self.running.retain_mut(|(running, connection)| running != spec || connection.lasts(time));
        let at = self.running.iter().position(|(running, _)| running == spec);
        let at = if let Some(at) = at {
            at
        } else {
            self.running.push((spec.clone(), Connection::open(spec, &self.launcher)?));
            self.running.len() - 1
        };
        Ok(&mut self.running[at].1)
    }
}

#[cfg(test)]
mod tests;
