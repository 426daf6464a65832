//! Tools of MCP servers: started over stdio, asked in the words of either era, closed at the end.
//!
//! A server of the current era has no session: each request says which version it speaks. One of the era before wants a handshake first.
//! Which one it is, is found out by asking; see [`connection`]. Only tools are used: no prompts, resources, sampling.

mod connection;
mod pipe;

use std::time::Duration;

use cp_common::{Context, Error, Result, part};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tool::is_name;
use connection::Connection;

/// A server, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// What it is called here.
    pub(crate) name: String,
    /// What starts it.
    pub(crate) argv: Vec<String>,
    /// The variables of ours that it is given, by the policy's word.
    pub(crate) env: Vec<String>,
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
    /// It wants to know something from a person.
    InputRequired(Value),
    /// It took too long.
    TimedOut,
}

/// The servers of a run. Each is started when it is first needed.
#[derive(Default)]
pub(crate) struct Servers {
    running: Vec<(Spec, Connection)>,
}

impl Spec {
    /// Reads `NAME=COMMAND`.
    pub(crate) fn parse(text: &str, context: &Context) -> Result<Self> {
        let usage = |why: &str| {
            Error::usage(format!("--mcp {text}: {why}")).hint("write --mcp NAME='/path/to/server arguments'")
        };
        let (name, command) = text.split_once('=').ok_or_else(|| usage("there is no `=`"))?;
        if !is_name(name) {
            return Err(usage("the name must be 1 to 64 letters, digits, _ and -"));
        }
        Ok(Self { name: name.to_owned(), argv: part::command_line(command)?, env: allowed_environment(name, context)? })
    }
}

impl Servers {
    /// The tools that a server offers.
    pub(crate) fn offers(&mut self, spec: &Spec) -> Result<Vec<Offer>> {
        self.connection(spec)?.tools()
    }

    /// Calls a tool of a server, and waits at most so long. A server that has ended is started anew by the next call.
    pub(crate) fn call(&mut self, spec: &Spec, tool: &str, input: &RawValue, limit: Duration) -> Result<Outcome> {
        let called = self.connection(spec)?.call(tool, input, limit);
        if called.is_err() {
            self.running.retain(|(running, _)| running != spec);
        }
        called
    }

    fn connection(&mut self, spec: &Spec) -> Result<&mut Connection> {
        let at = self.running.iter().position(|(running, _)| running == spec);
        let at = if let Some(at) = at {
            at
        } else {
            self.running.push((spec.clone(), Connection::open(spec)?));
            self.running.len() - 1
        };
        Ok(&mut self.running[at].1)
    }
}

/// `[mcp.NAME] env` of the policy: the variables that a server may be given. A model's keys are never among them.
fn allowed_environment(name: &str, context: &Context) -> Result<Vec<String>> {
    let file = context.home.policy_file();
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(Vec::new()) };
    let table: toml::Table = toml::from_str(&text).map_err(|e| Error::config(e.message()).in_file(&file).fatal())?;
    let listed = table.get("mcp").and_then(|mcp| mcp.get(name)).and_then(|server| server.get("env"));
    let names = listed.and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str);
    Ok(names.filter(|name| !is_key_of_a_model(name)).map(str::to_owned).collect())
}

fn is_key_of_a_model(name: &str) -> bool {
    ["ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_API"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests;
