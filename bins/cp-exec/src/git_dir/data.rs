//! What git reads and writes, see `git.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data::parsed;

#[derive(Deserialize)]
pub(crate) struct GitData {
    pub hooks: Vec<String>,
    pub entries: Vec<String>,
    pub worktree: Vec<String>,
    pub info: Vec<String>,
    pub silent: Vec<String>,
    pub strategies: Vec<String>,
    pub settings: Settings,
    /// The values of each key.
    pub lfs: BTreeMap<String, Vec<String>>,
    /// The files of each directory.
    pub states: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
pub(crate) struct Settings {
    pub harmless: Vec<String>,
    pub initial: Vec<String>,
    pub owner: Vec<String>,
}

pub(crate) static GIT: LazyLock<GitData> = LazyLock::new(|| parsed(include_str!("git.toml")));

/// True if a list has a word.
pub(crate) fn has(list: &[String], word: impl AsRef<std::ffi::OsStr>) -> bool {
    list.iter().any(|known| known.as_str() == word.as_ref())
}
