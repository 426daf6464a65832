//! What git reads and writes, see `git.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data::parsed;

#[derive(Deserialize)]
pub(crate) struct GitData {
    pub hooks: Vec<String>,
    /// The entries of a repository, and of directories in it.
    pub entries: BTreeMap<String, Vec<String>>,
    pub worktree: Vec<String>,
    pub strategies: Vec<String>,
    pub judged: Vec<String>,
    pub parts: BTreeMap<String, Placeholder>,
    pub parts_of_worktree: BTreeMap<String, Placeholder>,
    pub outside: Outside,
    pub settings: Settings,
    /// The values of each key.
    pub lfs: BTreeMap<String, Vec<String>>,
    /// The files of each directory.
    pub states: BTreeMap<String, Vec<String>>,
}

/// What a run sees where a part is absent.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Placeholder {
    Nothing,
    File,
    Directory,
}

#[derive(Deserialize)]
pub(crate) struct Outside {
    pub settings: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub(crate) struct Settings {
    pub harmless: BTreeMap<String, String>,
    pub initial: Vec<String>,
    pub owner: Vec<String>,
}

pub(crate) static GIT: LazyLock<GitData> = LazyLock::new(|| parsed(include_str!("git.toml")));

/// True if a list has a word.
pub(crate) fn has(list: &[String], word: impl AsRef<std::ffi::OsStr>) -> bool {
    list.iter().any(|known| known.as_str() == word.as_ref())
}
