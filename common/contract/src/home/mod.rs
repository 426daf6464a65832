//! The home directory: its layout, its settings, its agents, and atomic writes of its files.

mod class;
pub mod config;
mod files;
pub mod sessions;

pub use self::class::{GOVERNED_ROOTS, PathClass, classify, classify_below, governed_roots, resolved, resolved_below};
pub use self::files::{create_whole, lock, locked, make_directory, write_whole};
pub use self::sessions::{HostNote, Session};

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::de::DeserializeOwned;

use crate::home::files::owner_hint;
use crate::spelling::nearest;
use crate::wire::{Error, Result};

/// The tiers of a home, which contain sessions and runs.
pub const TIERS: [&str; 3] = ["ho1", "ho2", "ho3"];

/// The home directory, in the layout of a control plane root. None of its files need to exist.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    origin: &'static str,
}

impl Home {
    /// Returns the requested home, else `CP_HOME`, else `cp` in the XDG data directory. Parent directories are never
    /// searched.
    pub fn find(asked: Option<&Path>) -> Result<Self> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (root, origin) = if let Some(asked) = asked {
            (asked.to_owned(), "flag")
        } else if let Some(root) = named("CP_HOME") {
            (root, "environment")
        } else if let Some(data) = named("XDG_DATA_HOME").filter(|data| data.is_absolute()) {
            (data.join("cp"), "default")
        } else if let Some(user) = named("HOME").filter(|user| user.is_absolute()) {
            (user.join(".local/share/cp"), "default")
        } else {
            return Err(
                Error::config("no home directory: HOME is not an absolute path").hint("give --home DIR or set CP_HOME")
            );
        };
        let root = std::path::absolute(&root).map_err(|e| Error::io(root.display(), e))?;
        // Another user could not use the home that root would make for them.
        if origin == "default"
            && geteuid().is_root()
            && !root.exists()
            && let Some(hint) = owner_hint(&root)
        {
            return Err(Error::config("the home would belong to root").in_file(&root).hint(hint).fatal());
        }
        Ok(Self { root, origin })
    }

    /// Returns the directory as an absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the source of the choice: flag, environment or default.
    pub fn origin(&self) -> &'static str {
        self.origin
    }

    /// Returns a path below the home.
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    /// `config/cp.toml`
    pub fn config_file(&self) -> PathBuf {
        self.path("config/cp.toml")
    }

    /// `config/policy.toml`
    pub fn policy_file(&self) -> PathBuf {
        self.path("config/policy.toml")
    }

    /// `config/agents.json`
    pub fn agents_file(&self) -> PathBuf {
        self.path("config/agents.json")
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
        self.path("state").join(name)
    }

    /// `keys/`
    pub fn keys(&self) -> PathBuf {
        self.path("keys")
    }

    /// Fails if a file to be written is pristine in this home, or in the tree that contains it. Every option that names
    /// an output file must call this.
    pub fn check_writable(&self, path: &Path) -> Result<()> {
        class::check_writable(&self.root, path)
    }

    /// Returns the class of `path`, relative to this home.
    pub fn classify(&self, path: &Path, governed_roots: &[String]) -> PathClass {
        classify(&self.root, path, governed_roots)
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
