//! The home: its places, its layout, its settings, its agents, and atomic writes of its files.

pub mod config;
mod files;

pub use self::files::{
    create_whole, expand, lock, lock_file, locked, make_directory, resolved, resolved_below, sweep, write_whole,
};

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::geteuid;
use serde::de::DeserializeOwned;

use crate::home::files::owner_hint;
use crate::wire::{Error, Result};

/// The names of the directories of configuration and state in a home that holds everything.
const CONFIG: &str = "config";
const STATE: &str = "state";

/// Returns a directory of the default home, as the XDG Base Directory Specification divides them: below the value of the
/// variable, or below `default` in the user's home directory. A relative value is ignored, as the specification requires.
fn default_place(variable: &str, default: &str) -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(default)));
    let Some(base) = base else {
        return Err(Error::config("no home directory: HOME is not an absolute path")
            .hint(format!("give --home DIR, or set CP_HOME or HOME; {variable} must be absolute, too")));
    };
    Ok(base.join("cp"))
}

/// The directories of a home that are hidden from commands.
const PRIVATE: [&str; 9] = ["config", "hosts", "keys", "ledger", "state", "planes", "memory", "agents", "tmp"];

/// The root of this process's home; none before its start, and for a process without a home.
pub static OF_PROCESS: OnceLock<PathBuf> = OnceLock::new();

/// The tiers of a home, which contain sessions and runs.
pub const TIERS: [&str; 3] = ["ho1", "ho2", "ho3"];

/// A home, in the layout of a control plane root: a directory of data, whose `config` and `state` may lie elsewhere.
/// None of its files need to exist.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    config: PathBuf,
    state: PathBuf,
    /// The source of the choice: flag, environment or default.
    pub(crate) origin: &'static str,
}

/// True if a name can be that of an agent, a template or a session's directory: ASCII letters, digits, `-` and `_`.
pub fn is_id(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl Home {
    /// Returns the requested home, else `CP_HOME`, else the default home. Parent directories are never searched.
    pub fn find(asked: Option<&Path>) -> Result<Self> {
        let named = || std::env::var_os("CP_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
        match (asked, named()) {
            (Some(asked), _) => Self::at(asked, "flag"),
            (None, Some(root)) => Self::at(&root, "environment"),
            (None, None) => {
                let home = Self::default_home()?;
                // Another user could not use the directories that root would make for them.
                if geteuid().is_root() {
                    for place in home.places().into_iter().filter(|place| !place.exists()) {
                        if let Some(hint) = owner_hint(place) {
                            let error = Error::config("the home would belong to root").in_file(place);
                            return Err(error.hint(hint).fatal());
                        }
                    }
                }
                Ok(home)
            }
        }
    }

    /// Returns the home in a directory, which holds all of it unless it is the directory of the default home.
    fn at(root: &Path, origin: &'static str) -> Result<Self> {
        let root = std::path::absolute(root).map_err(|e| Error::io(root.display(), e))?;
        let is_default =
            |data: &PathBuf| *data == root || data.file_name() == root.file_name() && resolved(data) == resolved(&root);
        match Self::default_home() {
            Ok(home) if is_default(&home.root) => Ok(Self { root, origin, ..home }),
            _ => Ok(Self { config: root.join(CONFIG), state: root.join(STATE), root, origin }),
        }
    }

    fn default_home() -> Result<Self> {
        let root = default_place("XDG_DATA_HOME", ".local/share")?;
        let config = default_place("XDG_CONFIG_HOME", ".config")?;
        Ok(Self { root, config, state: default_place("XDG_STATE_HOME", ".local/state")?, origin: "default" })
    }

    /// Returns the directory as an absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directories of data, configuration and state.
    pub fn places(&self) -> [&Path; 3] {
        [&self.root, &self.config, &self.state]
    }

    /// True if a directory contains one of the places.
    pub fn is_below(&self, directory: &Path) -> bool {
        self.places().iter().any(|place| place.starts_with(directory))
    }

    /// True if one of the places contains a path.
    pub fn contains(&self, path: &Path) -> bool {
        self.places().iter().any(|place| path.starts_with(place))
    }

    /// Returns the directories that are hidden from commands and servers, including those that do not exist.
    pub fn private(&self) -> impl Iterator<Item = PathBuf> {
        PRIVATE.into_iter().map(|name| self.path(name))
    }

    /// Returns the same home by paths without symbolic links.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let [root, config, state] = self.places().map(resolved);
        Self { root, config, state, ..self.clone() }
    }

    /// Returns a path of the home. The first word determines the place: `config`, `state`, or else data.
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        let below = below.as_ref();
        for (place, directory) in [(CONFIG, &self.config), (STATE, &self.state)] {
            if let Ok(rest) = below.strip_prefix(place) {
                // Joining nothing would add a slash.
                return directory.components().chain(rest.components()).collect();
            }
        }
        self.root.join(below)
    }

    /// `config/cp.toml`
    pub fn config_file(&self) -> PathBuf {
        self.config.join("cp.toml")
    }

    /// `config/policy.toml`
    pub fn policy_file(&self) -> PathBuf {
        self.config.join("policy.toml")
    }

    /// `config/agents.json`
    pub fn agents_file(&self) -> PathBuf {
        self.config.join("agents.json")
    }

    /// `ledger/<name>`
    pub fn ledger(&self, name: &str) -> PathBuf {
        self.path("ledger").join(name)
    }

    /// `planes/<tier>/sessions`
    pub fn sessions(&self, tier: &str) -> PathBuf {
        self.path("planes").join(tier).join("sessions")
    }

    /// `planes/<tier>/runs`
    pub fn runs(&self, tier: &str) -> PathBuf {
        self.path("planes").join(tier).join("runs")
    }

    /// `state/<name>`: tokens and request ids.
    pub fn state(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// `keys/`
    pub fn keys(&self) -> PathBuf {
        self.path("keys")
    }
}

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
        let file = self.agents_file();
        let otherwise =
            format!("write agents/{id}/soul.md in the home, or add it to {}; or use default", file.display());
        let error = Error::not_found(format!("no agent `{id}`")).with("agent", id);
        error.nearest(id, known.map(String::as_str).chain([DEFAULT_AGENT]), &otherwise)
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
