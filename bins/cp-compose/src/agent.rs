//! The agent, with its soul, context files and model; and governed prompts. The agent `default` is built in, with an
//! empty system text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::home::{DEFAULT_AGENT, Home, is_id};
use cp_common::{Code, Result};
use cp_policy::prompts::Prompts;
use cp_policy::template;
use serde::Deserialize;

use crate::sources;

/// An agent and its texts.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    pub(crate) id: String,
    /// The model, if configured.
    pub(crate) model: Option<String>,
    /// The beginning of the system text.
    pub(crate) soul: Option<Text>,
    /// The rest of the system text, in the order of the file names.
    pub(crate) context: Vec<Text>,
}

/// A text and its file.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

/// The entry of an agent in `config/agents.json`.
#[derive(Debug, Default, Deserialize)]
struct Registered {
    #[serde(default)]
    soul: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

impl Agent {
    /// Reads an agent and all its files.
    pub(crate) fn load(id: &str, home: &Home) -> Result<Self> {
        let mut registry = home.agents::<Registered>()?;
        let directory = home.path("agents").join(id);
        let entry = registry.remove(id);
        if !is_id(id) || (entry.is_none() && id != DEFAULT_AGENT && !directory.is_dir()) {
            return Err(home.unknown_agent(id, registry.keys()));
        }
        let Registered { soul, model } = entry.unwrap_or_default();
        let named = soul.is_some();
        let file = soul.map_or_else(|| directory.join("soul.md"), |soul| home.path(soul));
        // Only the built-in agent may have no soul.
        let soul = match sources::text(&file) {
            Ok(text) => Some(Text { file, text }),
            Err(e) if e.code() == Code::NotFound && id == DEFAULT_AGENT && !named => None,
            Err(e) if e.code() == Code::NotFound => {
                return Err(e
                    .with("agent", id)
                    .hint("write the system text of the agent to this file, or use the agent default"));
            }
            Err(e) => return Err(e.with("agent", id)),
        };
        let mut context = Vec::new();
        for file in sources::markdown_in(&directory.join("context"))? {
            context.push(Text { text: sources::text(&file)?, file });
        }
        Ok(Self { id: id.to_owned(), model, soul, context })
    }
}

/// A governed prompt.
#[derive(Debug)]
pub(crate) struct Governed {
    pub(crate) id: String,
    pub(crate) file: String,
    /// The text with its variables filled in.
    pub(crate) text: String,
    /// The text as it is registered.
    pub(crate) registered: String,
}

impl Governed {
    /// Reads a registered prompt and fills in its `{variables}`.
    pub(crate) fn load(id: &str, variables: &BTreeMap<String, String>, prompts: &Prompts) -> Result<Self> {
        let registered = prompts.text(id)?;
        let file = prompts.file(id);
        let text = template::fill(&registered, variables).map_err(|e| e.in_file(&file))?;
        Ok(Self { id: id.to_owned(), file: file.display().to_string(), text, registered })
    }
}
