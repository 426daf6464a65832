//! The registry of agents, `config/agents.json`.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde::de::DeserializeOwned;

use crate::home::Home;
use crate::spelling::nearest;
use crate::wire::{Error, Result};

/// The built-in agent, which needs no entry and no directory.
pub const DEFAULT_AGENT: &str = "default";

impl Home {
    /// Returns the registered agents, decoded as `T`; empty if the file does not exist.
    pub fn agents<T: DeserializeOwned>(&self) -> Result<BTreeMap<String, T>> {
        let file = self.agents_file();
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                Error::config(format!("not a valid registry of agents: {e}"))
                    .in_file(&file)
                    .hint(r#"write {"<id>":{"soul":"agents/<id>/soul.md","model":null}}"#)
            }),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(BTreeMap::new()),
            Err(e) => Err(Error::config(format!("cannot read: {e}")).in_file(&file)),
        }
    }

    /// Makes the error for an agent that is not among `known`, with the nearest known name.
    pub fn unknown_agent<'a>(&self, id: &str, known: impl Iterator<Item = &'a String>) -> Error {
        let error = Error::not_found(format!("no agent `{id}`")).with("agent", id);
        match nearest(id, known.map(String::as_str).chain([DEFAULT_AGENT])) {
            Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
            None => error.hint(format!(
                "write agents/{id}/soul.md in the home, or add it to {}; or use default",
                self.agents_file().display()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::wire::Code;

    #[test]
    fn unknown_agent_names_nearest_and_invalid_registry_fails() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path())).unwrap();
        assert!(home.agents::<IgnoredAny>().unwrap().is_empty());
        std::fs::create_dir_all(home.path("config")).unwrap();
        std::fs::write(home.agents_file(), r#"{"writer":{}}"#).unwrap();
        let agents = home.agents::<IgnoredAny>().unwrap();
        assert_eq!(home.unknown_agent("writter", agents.keys()).details()["nearest"], "writer");
        assert_eq!(home.unknown_agent("x", agents.keys()).code(), Code::NotFound);
        std::fs::write(home.agents_file(), "[]").unwrap();
        assert_eq!(home.agents::<IgnoredAny>().err().map(|e| e.code()), Some(Code::Config));
    }
}
