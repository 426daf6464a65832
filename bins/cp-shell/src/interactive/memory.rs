//! Memories, stored and searched by `cp-session` in the `memory` directory of the home.

use std::path::PathBuf;

use cp_common::{Context, Result};
use serde_json::Value;

use crate::ask;

/// A memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The kind.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// The time when it was stored.
    pub(crate) at: String,
}

/// The kinds with stored memories.
pub(crate) fn kinds(context: &Context) -> Vec<String> {
    let listing = std::fs::read_dir(context.home.path("memory")).into_iter().flatten().flatten();
    let names = listing.filter_map(|entry| entry.file_name().into_string().ok());
    let mut kinds: Vec<String> = names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect();
    kinds.sort_unstable();
    kinds
}

/// The file of a kind.
pub(crate) fn file_of(kind: &str, context: &Context) -> PathBuf {
    context.home.path("memory").join(format!("{kind}.jsonl"))
}

/// Returns the newest memories that have one of these words, or the newest of all.
pub(crate) fn recall(kind: &str, words: &str, limit: usize, context: &Context) -> Result<Vec<Remembered>> {
    if !file_of(kind, context).is_file() {
        return Ok(Vec::new());
    }
    let limit = limit.max(1).to_string();
    let mut argv = vec!["recall", "--kind", kind, "--limit", &limit];
    let query = operand(words);
    if !query.trim().is_empty() {
        argv.push(&query);
    }
    let found = ask(context, "cp-session", &argv)?;
    let member = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let items = found["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|item| Remembered { kind: kind.to_owned(), text: member(item, "text"), at: member(item, "ts") })
        .collect())
}

/// Stores a text.
pub(crate) fn remember(kind: &str, text: &str, context: &Context) -> Result<()> {
    ask(context, "cp-session", &["remember", "--kind", kind, &operand(text)]).map(|_| ())
}

/// Protects a text from being parsed as an option or `-`.
fn operand(text: &str) -> String {
    if text.starts_with('-') { format!(" {text}") } else { text.to_owned() }
}
