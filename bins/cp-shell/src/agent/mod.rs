//! Agents, which answer turns. The built-in agent composes the filters; any executable that reads and writes records
//! can be an agent.

mod composed;
mod external;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use cp_common::program::approval::Verdict;
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Approval, Message};
use cp_common::{Context, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::composed::Composed;
use self::external::{Coprocess, External};
use crate::plane::Plane;

/// The model, and the tools that it may use.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ModelOptions {
    /// The backend: a provider, an endpoint of config/cp.toml, llm, stub, or a program with a `/`
    #[arg(long, value_name = "BACKEND", help_heading = "Model")]
    pub(crate) backend: Option<String>,
    /// The model to ask
    #[arg(short = 'm', long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<String>,
    /// A directory of tools that the model may use (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub(crate) tools: Vec<PathBuf>,
    /// Let the model use the built-in tools
    #[arg(long, help_heading = "Model")]
    pub(crate) with_tools: bool,
}

impl ModelOptions {
    /// True if the model may use tools.
    pub(crate) fn uses_tools(&self) -> bool {
        self.with_tools || !self.tools.is_empty()
    }

    /// The flags that name the directories of tools.
    pub(crate) fn tool_flags(&self) -> impl Iterator<Item = OsString> {
        self.tools.iter().flat_map(|path| ["--tools".into(), OsString::from(path)])
    }

    /// The flags that choose the model.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> {
        let flags = [("--backend", &self.backend), ("--model", &self.model)];
        flags.into_iter().filter_map(|(name, value)| Some([name, value.as_deref()?])).flatten()
    }
}

/// A part of the context of a turn: recalled memory, a brief, or history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The source, such as `memory`.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Piece {
    /// True if others may have written the text, as for all parts but the working directory.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.name != "place"
    }
}

/// A turn to be answered.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The text of the person, with the texts of attached files.
    pub(crate) text: String,
    pub(crate) session: String,
    /// True if the conversation is not sent.
    pub(crate) isolated: bool,
    pub(crate) context: Vec<Piece>,
    /// The attached files that are not text.
    pub(crate) attached: Vec<PathBuf>,
}

/// Receives the events of a turn.
pub(crate) trait Observer {
    /// Receives a delta, a tool call or a tool result; other records are ignored. An error ends the turn.
    fn record(&mut self, record: &Record<'_>) -> Result<()>;

    /// Receives the id of the run of the tool loop.
    fn begins(&mut self, run: &str);

    /// Releases the terminal, because another program asks there.
    fn release_terminal(&mut self) -> Result<()>;

    /// Asks a person for approval. `None` if there is no terminal or no answer.
    fn answers(&mut self, approval: &Approval) -> Option<Verdict>;
}

/// What an agent is, as a program answers to `describe`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Some of [`CAPABILITIES`], which decide the available commands.
    #[serde(default)]
    pub(crate) capabilities: Vec<String>,
}

/// The capabilities that the standard defines.
pub(crate) const CAPABILITIES: [&str; 10] = [
    "MEMORY",
    "CONSENT",
    "SIGNALS",
    "TRUST",
    "COMMITMENTS",
    "FILESYSTEM",
    "EMERGENCY",
    "GOVERNANCE",
    "LEDGER",
    "PACKAGE_MGT",
];

impl Described {
    /// True if the agent has a capability, or one that implies it: GOVERNANCE includes LEDGER and `PACKAGE_MGT`.
    pub(crate) fn can(&self, capability: &str) -> bool {
        let has = |name: &str| self.capabilities.iter().any(|known| known == name);
        has(capability) || matches!(capability, "LEDGER" | "PACKAGE_MGT") && has("GOVERNANCE")
    }
}

/// An agent.
pub(crate) trait Agent {
    fn described(&self) -> &Described;

    /// Answers a turn with messages of the model, of which the last is the answer. All are recorded in the session.
    fn process(&mut self, turn: &Turn, observer: &mut dyn Observer) -> Result<Vec<Message>>;
}

/// Returns the agent with this name: an id in `config/agents.json`, `default`, or the path of a program.
pub(crate) fn named(id: &str, plane: &Plane, options: &ModelOptions, context: &Context) -> Result<Box<dyn Agent>> {
    let agents: Agents = context.home.agents()?;
    if let Some(agent) = External::of(id, &agents, context)? {
        return Ok(Box::new(agent));
    }
    let exists = id == "default" || agents.contains_key(id) || context.home.path("agents").join(id).is_dir();
    if !exists {
        return Err(context.home.unknown_agent(id, agents.keys()));
    }
    Ok(Box::new(Composed::new(id, governed_prompt(id, plane, &agents)?, options, context)))
}

/// The governed prompt that an agent must use if the tree has a registry of prompts: the configured one, or the one of
/// its soul.
fn governed_prompt(id: &str, plane: &Plane, agents: &Agents) -> Result<Option<String>> {
    let is_governed = plane.governs_prompts().map_err(|e| Error::config(e.message()))?;
    Ok(is_governed.then(|| soul_prompt(id, agents)))
}

/// The id of the governed prompt with the soul of an agent.
pub(crate) fn soul_prompt(id: &str, agents: &Agents) -> String {
    let configured = agents.get(id).and_then(|agent| agent.get("prompt")?.as_str().map(str::to_owned));
    configured.unwrap_or_else(|| format!("PRM-{}-SOUL-001", id.to_uppercase()))
}

/// Receives the answer of a program up to its message, which `complete` makes from the data of the record.
fn message<T: DeserializeOwned>(
    program: &mut Coprocess,
    observer: &mut dyn Observer,
    complete: impl Fn(T) -> Result<Message>,
) -> Result<Vec<Message>> {
    loop {
        let message = program.receive(None, |record| match record.kind {
            Some(Kind::Message) => complete(record.read()?).map(Some),
            _ => observer.record(record).map(|()| None),
        })?;
        if let Some(message) = message {
            return Ok(vec![message]);
        }
    }
}

/// The registered agents by id.
pub(crate) type Agents = BTreeMap<String, Map<String, Value>>;
