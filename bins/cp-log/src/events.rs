//! The events that programs write, as their table has them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The table. A test of the workspace holds it against what the programs write.
pub(crate) static EVENTS: LazyLock<BTreeMap<String, Event>> =
    LazyLock::new(|| serde_json::from_str(cp_ledger::EVENTS).unwrap_or_default());

/// An event.
#[derive(Deserialize)]
pub(crate) struct Event {
    /// The parts of its line for a person. In a part `{a|b}` is the first member of the data that the entry has, as a
    /// path; a part whose member is not there is left out.
    #[serde(default)]
    pub line: Vec<String>,
    pub pair: Option<Pair>,
}

/// What an event is the start or the end of.
#[derive(Deserialize)]
pub(crate) struct Pair {
    /// What it is, in words.
    pub of: String,
    /// True for the start.
    pub start: bool,
    /// The members that name it, as paths. Alternatives are separated by `|`.
    pub by: Vec<String>,
}
