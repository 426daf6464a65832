//! What a person has seen of a server's tools: kept with the first list, and again with each change that was accepted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::home::write_whole;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::canonical::hash_value;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

/// The members of a tool that a model or a client acts by.
const PARTS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// What a tool said of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pin {
    pub(super) hash: String,
    said: Map<String, Value>,
}

/// The tools of a server, by name.
pub(super) type Pins = BTreeMap<String, Pin>;

impl Pin {
    pub(super) fn of(tool: &RawValue) -> Option<Self> {
        let mut said: Map<String, Value> = serde_json::from_str(tool.get()).ok()?;
        said.retain(|name, value| PARTS.contains(&name.as_str()) && !value.is_null());
        Some(Self { hash: hash_value(&Value::Object(said.clone())), said })
    }

    /// How this differs from what it was: in words, and as lines that went and came.
    pub(super) fn difference(&self, before: Option<&Self>) -> (String, String) {
        let empty = Map::new();
        let said = before.map_or(&empty, |before| &before.said);
        let changed: Vec<&str> = PARTS.into_iter().filter(|part| said.get(*part) != self.said.get(*part)).collect();
        let lines: String = changed
            .iter()
            .map(|part| changed_lines(part, &text_of(said.get(*part)), &text_of(self.said.get(*part))))
            .collect();
        let what = if before.is_some() { format!("changed its {}", changed.join(", ")) } else { "is new".to_owned() };
        (what, lines)
    }
}

/// The removed and added lines of one member, in their order.
fn changed_lines(part: &str, old: &str, new: &str) -> String {
    let difference = TextDiff::from_lines(old, new);
    let changes = difference.iter_all_changes().filter_map(|change| {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => return None,
        };
        Some(format!("{sign}{part}: {}\n", change.value().trim_end_matches('\n')))
    });
    changes.collect()
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// What is kept of a server; none where nothing is.
pub(super) fn load(server: &str, context: &Context) -> Result<Option<Pins>> {
    let file = file(server, context);
    match std::fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            Error::new(Code::Integrity, format!("cannot be read: {e}"))
                .in_file(&file)
                .hint("remove it: the tools in the next list of the server are pinned again")
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the tools of a server", e).in_file(&file)),
    }
}

/// Keeps the tools of a server.
pub(super) fn keep(server: &str, pins: &Pins, context: &Context) -> Result<()> {
    let bytes = serde_json::to_vec(pins).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    write_whole(&file(server, context), &bytes)
}

fn file(server: &str, context: &Context) -> PathBuf {
    context.home.path("state/mcp").join(format!("{server}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(text: &str) -> Pin {
        Pin::of(&RawValue::from_string(text.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn difference_names_changed_lines_and_ignores_member_order() {
        let before =
            pin(r#"{"name":"a","description":"one\ntwo","inputSchema":{"type":"object","x":1},"_meta":{"t":1}}"#);
        let same = pin(r#"{"inputSchema":{"x":1,"type":"object"},"name":"a","description":"one\ntwo","title":null}"#);
        assert_eq!(before.hash, same.hash);
        let after = pin(r#"{"name":"a","description":"one\nthree","inputSchema":{"type":"object","x":1}}"#);
        let (what, lines) = after.difference(Some(&before));
        assert_eq!(
            (what.as_str(), lines.as_str()),
            ("changed its description", "-description: two\n+description: three\n")
        );
        assert_eq!(after.difference(None).0, "is new");
    }
    #[test]
    fn difference_of_reordered_or_repeated_lines_shows_them() {
        let with = |description: &str| pin(&serde_json::json!({"name": "a", "description": description}).to_string());
        let before = with("backup\nask\ndelete");
        let shown = |after: &str| with(after).difference(Some(&before)).1;
        assert_eq!(shown("ask\nbackup\ndelete"), "+description: ask\n-description: ask\n");
        assert_eq!(shown("backup\nask\ndelete\n"), "-description: delete\n+description: delete\n");
        let twice = with("x\nx\ny");
        assert_eq!(with("x\ny").difference(Some(&twice)).1, "-description: x\n");
    }
}
