//! Who speaks: an agent's soul, its standing context and its model. `default` is built in, with nothing to say.

use std::path::PathBuf;

use cp_common::home::Home;
use cp_common::spelling::nearest;
use cp_common::{Error, Result};
use serde::Deserialize;

use crate::files;

/// The agent that needs no file.
const DEFAULT: &str = "default";

/// An agent, read.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    /// Its id.
    pub(crate) id: String,
    /// The model it wants.
    pub(crate) model: Option<String>,
    /// What it is.
    pub(crate) soul: Option<Text>,
    /// What it always knows, in the order of the files' names.
    pub(crate) context: Vec<Text>,
}

/// A text and the file it came from.
#[derive(Debug)]
pub(crate) struct Text {
    /// The file.
    pub(crate) file: PathBuf,
    /// What it says.
    pub(crate) text: String,
}

/// What `config/agents.json` says of an agent.
#[derive(Debug, Default, Deserialize)]
struct Registered {
    #[serde(default)]
    soul: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

type Registry = std::collections::BTreeMap<String, Registered>;

impl Agent {
    /// Reads an agent and all its files.
    pub(crate) fn load(id: &str, home: &Home) -> Result<Self> {
        let mut registry = registry(home)?;
        let is_name =
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let directory = home.path("agents").join(id);
        let entry = registry.remove(id);
        if !is_name || (entry.is_none() && id != DEFAULT && !directory.is_dir()) {
            return Err(unknown(id, &registry, home));
        }
        let Registered { soul, model } = entry.unwrap_or_default();
        let named = soul.is_some();
        let file = soul.map_or_else(|| directory.join("soul.md"), |soul| home.path(soul));
        // The built-in agent may have a soul; every other must.
        let soul = match files::text(&file) {
            Ok(text) => Some(Text { file, text }),
            Err(e) if e.code() == cp_common::Code::NotFound && id == DEFAULT && !named => None,
            Err(e) if e.code() == cp_common::Code::NotFound => {
                return Err(e.with("agent", id).hint("write what the agent is into it, or use the agent default"));
            }
            Err(e) => return Err(e.with("agent", id)),
        };
        let mut context = Vec::new();
        for file in files::markdown_in(&directory.join("context"))? {
            context.push(Text { text: files::text(&file)?, file });
        }
        Ok(Self { id: id.to_owned(), model, soul, context })
    }
}

fn registry(home: &Home) -> Result<Registry> {
    let file = home.agents_file();
    match std::fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
            Error::config(format!("not as it should be: {e}"))
                .in_file(&file)
                .hint(r#"write {"<id>":{"soul":"agents/<id>/soul.md","model":null}}"#)
        }),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(Registry::new())
        }
        Err(e) => Err(Error::config(format!("cannot read: {e}")).in_file(&file)),
    }
}

fn unknown(id: &str, registry: &Registry, home: &Home) -> Error {
    let known = registry.keys().map(String::as_str).chain([DEFAULT]);
    let error = Error::not_found(format!("no agent `{id}`")).with("agent", id);
    match nearest(id, known) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("name it in {}, or use default", home.agents_file().display())),
    }
}
