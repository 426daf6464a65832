//! The places of the default home: data, configuration and state, as the XDG Base Directory Specification divides them.

use std::path::PathBuf;

use crate::wire::{Error, Result};

/// A place of the default home.
pub(super) struct Place {
    /// The name in a home that holds everything; empty for data.
    pub(super) name: &'static str,
    variable: &'static str,
    /// The value of the variable if it is not set, below the user's home directory.
    default: &'static str,
}

pub(super) const DATA: Place = Place { name: "", variable: "XDG_DATA_HOME", default: ".local/share" };
pub(super) const CONFIG: Place = Place { name: "config", variable: "XDG_CONFIG_HOME", default: ".config" };
pub(super) const STATE: Place = Place { name: "state", variable: "XDG_STATE_HOME", default: ".local/state" };

impl Place {
    /// Returns the directory. A relative value of the variable is ignored, as the specification requires.
    pub(super) fn directory(&self) -> Result<PathBuf> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute(self.variable).or_else(|| Some(absolute("HOME")?.join(self.default)));
        let Some(base) = base else {
            return Err(Error::config("no home directory: HOME is not an absolute path")
                .hint(format!("give --home DIR, or set CP_HOME or HOME; {} must be absolute, too", self.variable)));
        };
        Ok(base.join("cp"))
    }
}
