//! What the record of a run has of a server: what was started, and what that said it is.

use std::collections::BTreeMap;
use std::path::Path;

use cp_ledger::format::line::Hash;
use cp_mcp_wire::Greeting;
use cp_servers::{Sandbox, Spec, Table, is_door};
use serde::Serialize;

/// The largest file beside the program whose hash is taken, in bytes: a script, and not what it works on.
const SCRIPT: u64 = 16 << 20;

/// A server that was started.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Started {
    /// What it is called here.
    pub(crate) name: String,
    /// What started it, with the names of variables and not their values.
    pub(crate) command: Vec<String>,
    /// The hashes of the program and of the scripts among its arguments, by their paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, String>,
    /// The variables that it was given, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// tool, or none where it runs outside the sandbox.
    pub(crate) sandbox: &'static str,
    /// What it calls itself.
    pub(crate) server_name: String,
    /// Which version of itself it says it is.
    pub(crate) server_version: String,
    /// The version of the protocol that it is spoken to in.
    pub(crate) protocol: String,
}

impl Started {
    pub(super) fn of(spec: &Spec, table: &Table, greeting: &Greeting) -> Self {
        let env = table.env.iter().chain(spec.env.keys()).cloned().collect();
        let sandbox = match table.sandbox {
            Sandbox::Tool if !is_door(spec) => "tool",
            Sandbox::Tool | Sandbox::None => "none",
        };
        Self {
            name: spec.name.clone(),
            command: spec.argv.clone(),
            files: BTreeMap::new(),
            env,
            sandbox,
            server_name: greeting.server_info.name.clone(),
            server_version: greeting.server_info.version.clone(),
            protocol: greeting.protocol_version.clone(),
        }
    }

    /// With the hashes of its files, which take their time.
    pub(super) fn hashed(self) -> Self {
        let files = self.command.iter().enumerate().filter_map(|(at, word)| hashed(at == 0, word)).collect();
        Self { files, ..self }
    }
}

/// The hash of the file that a word names.
fn hashed(is_program: bool, word: &str) -> Option<(String, String)> {
    let path = Path::new(word);
    let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if !is_program && meta.len() > SCRIPT {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some((word.to_owned(), Hash::of(&bytes).to_string()))
}
