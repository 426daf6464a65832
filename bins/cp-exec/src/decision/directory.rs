//! The directory that the steps of a plan are in, and where `cd` leads from there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};

use super::paths::cwd_allowed;
use crate::policy::Policy;

/// A directory by the path that led to it, as a shell keeps it, and by that without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub logical: PathBuf,
    pub real: PathBuf,
}

impl Directory {
    /// The directory in which a plan begins, which has no links.
    pub(crate) fn first(real: PathBuf) -> Self {
        Self { logical: real.clone(), real }
    }

    /// Where `cd` leads, if commands may run there. It need not be there yet.
    pub(crate) fn entered(&self, policy: &Policy, word: &str) -> Result<Self> {
        if word.is_empty() || word.contains('\0') {
            return Err(Error::validation("`cd` needs the name of a directory").with("rule", "cwd"));
        }
        let logical = followed(&self.logical, Path::new(word)).unwrap_or_else(|| self.real.join(word));
        let real = resolved(&logical);
        cwd_allowed(policy, &real)?;
        Ok(Self { logical, real })
    }

    /// Why it cannot be entered now, as a shell says it.
    pub(crate) fn objection(&self) -> Option<&'static str> {
        match fs::metadata(&self.real) {
            Ok(meta) if meta.is_dir() && rustix::fs::access(&self.real, rustix::fs::Access::EXEC_OK).is_ok() => None,
            Ok(meta) if !meta.is_dir() => Some("Not a directory"),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some("No such file or directory"),
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => Some("Not a directory"),
            Ok(_) | Err(_) => Some("Permission denied"),
        }
    }
}

/// A path from another with each `..` taken back by its name, as a shell does it where everything on the way is there.
fn followed(from: &Path, word: &Path) -> Option<PathBuf> {
    let mut path = if word.is_absolute() { PathBuf::new() } else { from.to_owned() };
    for part in word.components() {
        match part {
            Component::ParentDir if !path.is_dir() => return None,
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    Some(path)
}
