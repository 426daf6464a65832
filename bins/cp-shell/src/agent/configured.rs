//! `config/agents.json`: the agents of a home.

use std::io::ErrorKind;
use std::path::Path;

use cp_common::{Error, Result};
use serde_json::{Map, Value};

/// The agents by id, each an object. A file that is not there has none.
pub(crate) fn load(file: &Path) -> Result<Map<String, Value>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Map::new()),
        Err(e) => return Err(Error::config(format!("cannot be read: {e}")).in_file(file)),
    };
    let agents: Map<String, Value> = serde_json::from_str(&text).map_err(|e| {
        Error::config(e.to_string())
            .in_file(file)
            .hint("it holds one object: {\"<id>\":{\"soul\":\"agents/<id>/soul.md\",\"model\":null}}")
    })?;
    match agents.iter().find(|(_, agent)| !agent.is_object()) {
        Some((id, _)) => Err(Error::config(format!("the agent `{id}` is not an object")).in_file(file)),
        None => Ok(agents),
    }
}
