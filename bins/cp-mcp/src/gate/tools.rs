//! The tools that a server has listed: which are offered, and the pins, which are what a person has seen of them: kept
//! with the first list, and again with each change that was accepted.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use cp_common::home::{Home, write_whole};
use cp_common::output::printable_line;
use cp_common::wire::Approval;
use cp_common::{Code, Error, Result};
use cp_ledger::format::canonical::hash_value;
use cp_mcp_wire::{Annotations, Tool, is_tool_name};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::message::{Members, escape_controls, raw, redact};

/// The most pages that are read.
pub(super) const PAGES: usize = 100;
/// The most bytes of all pages.
pub(super) const LONGEST: usize = 64 << 20;

/// A list of tools.
#[derive(Default)]
pub(crate) struct Listing {
    /// The members next to the tools.
    members: Members,
    pub(super) tools: Vec<ListedTool>,
    /// The tools whose names are not valid, and the reason.
    pub(super) refused: Vec<(String, String)>,
    seen: HashSet<String>,
}

/// A tool of the list.
pub(crate) struct ListedTool {
    pub(super) name: String,
    pub(super) annotations: Annotations,
    pub(super) pin: Pin,
    /// If it differs from its pin: the change, and the approval by which it is offered.
    pub(super) change: Option<Change>,
    raw: Box<RawValue>,
}

pub(super) type Change = (String, Box<Approval>);

impl Listing {
    /// Adds a page, and returns the cursor of the next one. Of two tools with one name the first counts, because a
    /// client must not see one and call the other.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Option<String>> {
        let invalid = |e| Error::new(Code::Server, format!("the server's list of tools is not valid: {e}"));
        let mut members: Members = serde_json::from_str(page.get()).map_err(invalid)?;
        let tools = members.remove("tools").map(|tools| serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()));
        let cursor = members.remove("nextCursor").and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        for tool in tools.transpose().map_err(invalid)?.into_iter().flatten().filter_map(ListedTool::of) {
            if !self.seen.insert(tool.name.clone()) {
                continue;
            }
            if is_tool_name(&tool.name) {
                self.tools.push(tool);
            } else {
                let reason = "its name has characters other than letters, digits, `_`, `.` and `-`";
                self.refused.push((printable_line(&tool.name), reason.to_owned()));
            }
        }
        if self.members.is_empty() {
            self.members = members;
        }
        Ok(cursor)
    }

    /// The tools that the client may call, as it sees them.
    pub(crate) fn offered(&self, redactor: &Redactor) -> Vec<Box<RawValue>> {
        self.tools.iter().filter(|tool| tool.change.is_none()).map(|tool| tool.shown(redactor)).collect()
    }

    /// The result for the client: the tools that it may call, on one page.
    pub(super) fn result(&self, redactor: &Redactor) -> Result<Box<RawValue>> {
        let mut members = self.members.clone();
        members.insert("tools".to_owned(), raw(&self.offered(redactor))?);
        raw(&members)
    }

    /// The tools that are left out although the policy allows them: the name, the reason, and the approval that would
    /// offer it.
    pub(crate) fn left_out(&self) -> Vec<(String, String, Option<String>)> {
        let changed = self.tools.iter().filter_map(|tool| {
            let (why, approval) = tool.change.as_ref()?;
            Some((tool.name.clone(), why.clone(), Some(approval.id.clone())))
        });
        changed.chain(self.refused.iter().map(|(name, why)| (name.clone(), why.clone(), None))).collect()
    }
}

impl ListedTool {
    fn of(raw: Box<RawValue>) -> Option<Self> {
        let Tool { name, annotations, .. } = serde_json::from_str(raw.get()).ok()?;
        let pin = Pin::of(&raw)?;
        Some(Self { name, annotations, pin, change: None, raw })
    }

    /// The tool as the client sees it: its title and description without secrets and control characters.
    fn shown(&self, redactor: &Redactor) -> Box<RawValue> {
        let Ok(mut members) = serde_json::from_str::<Members>(self.raw.get()) else { return self.raw.clone() };
        for (_, text) in members.iter_mut().filter(|(name, _)| matches!(name.as_str(), "title" | "description")) {
            let escaped = escape_controls(text);
            let redacted = redact(redactor, escaped.as_ref().unwrap_or(text));
            redacted.or(escaped).into_iter().for_each(|changed| *text = changed);
        }
        raw(&members).unwrap_or_else(|_| self.raw.clone())
    }
}

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
        let (old, new) = (before.map(Self::lines).unwrap_or_default(), self.lines());
        let compared = TextDiff::from_lines(&old, &new);
        let changes = compared.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
        let lines =
            changes.fold(String::new(), |lines, change| lines + change.tag().to_string().as_str() + change.value());
        let Some(before) = before else { return ("is new".to_owned(), lines) };
        let parts = PARTS.into_iter().filter(|part| before.said.get(*part) != self.said.get(*part));
        (format!("changed its {}", parts.collect::<Vec<_>>().join(", ")), lines)
    }

    /// The lines of all members, each with the name of its member.
    fn lines(&self) -> String {
        let mut lines = String::new();
        for (part, value) in PARTS.into_iter().filter_map(|part| Some((part, self.said.get(part)?))) {
            let text = value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned);
            lines.extend(text.split('\n').map(|line| format!("{part}: {line}\n")));
        }
        lines
    }
}

/// What is kept of a server; none where nothing is.
pub(super) fn load_pins(server: &str, home: &Home) -> Result<Option<Pins>> {
    let file = pins_file(server, home);
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
pub(super) fn keep_pins(server: &str, pins: &Pins, home: &Home) -> Result<()> {
    let bytes = serde_json::to_vec(pins).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    write_whole(&pins_file(server, home), &bytes)
}

fn pins_file(server: &str, home: &Home) -> PathBuf {
    home.path("state/mcp").join(format!("{server}.json"))
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
        assert_eq!(shown("backup\nask\ndelete\n"), "+description: \n");
        let twice = with("x\nx\ny");
        assert_eq!(with("x\ny").difference(Some(&twice)).1, "-description: x\n");
    }
}
