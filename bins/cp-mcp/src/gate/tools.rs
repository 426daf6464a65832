//! The tools that a server has listed: which are offered, and the pins: the hash of what a person has seen of each tool,
//! kept with the first list, and again with each change that was approved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::home::{Home, write_whole};
use cp_common::{Code, Error, Result};
use cp_ledger::format::canonical::hash_value;
use cp_mcp_wire::{Annotations, Tool};
use cp_redact::Redactor;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

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
    /// The tools that are left out although the policy allows them, and the reasons.
    pub(crate) left_out: Vec<(String, String)>,
}

/// A tool of the list.
pub(crate) struct ListedTool {
    pub(super) name: String,
    pub(super) annotations: Annotations,
    /// Its members that count, and their hash.
    pub(super) said: Value,
    pub(super) hash: String,
    /// True if it is as it was pinned. Others are not offered.
    pub(super) is_pinned: bool,
    raw: Box<RawValue>,
}

impl Listing {
    /// Adds a page, and returns the cursor of the next one.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Option<String>> {
        let invalid = |e| Error::new(Code::Server, format!("the server's list of tools is not valid: {e}"));
        let mut members: Members = serde_json::from_str(page.get()).map_err(invalid)?;
        let tools = members.remove("tools").map(|tools| serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()));
        let cursor = members.remove("nextCursor").and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        self.tools.extend(tools.transpose().map_err(invalid)?.into_iter().flatten().filter_map(ListedTool::of));
        if self.members.is_empty() {
            self.members = members;
        }
        Ok(cursor)
    }

    /// The tools that the client may call, as it sees them.
    pub(crate) fn offered(&self, redactor: &Redactor) -> Vec<Box<RawValue>> {
        self.tools.iter().filter(|tool| tool.is_pinned).map(|tool| tool.shown(redactor)).collect()
    }

    /// The result for the client: the tools that it may call, on one page.
    pub(super) fn result(&self, redactor: &Redactor) -> Result<Box<RawValue>> {
        let mut members = self.members.clone();
        members.insert("tools".to_owned(), raw(&self.offered(redactor))?);
        raw(&members)
    }
}

/// The members of a tool that a model or a client acts by.
const PARTS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

impl ListedTool {
    fn of(raw: Box<RawValue>) -> Option<Self> {
        let Tool { name, annotations, .. } = serde_json::from_str(raw.get()).ok()?;
        let mut said: Map<String, Value> = serde_json::from_str(raw.get()).ok()?;
        said.retain(|name, value| PARTS.contains(&name.as_str()) && !value.is_null());
        let said = Value::Object(said);
        Some(Self { name, annotations, hash: hash_value(&said), said, is_pinned: false, raw })
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

/// The hashes of the tools of a server, by name.
pub(super) type Pins = BTreeMap<String, String>;

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
    write_whole(&pins_file(server, home), raw(pins)?.get().as_bytes())
}

fn pins_file(server: &str, home: &Home) -> PathBuf {
    home.path("state/mcp").join(format!("{server}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_ignores_member_order_and_members_that_nobody_acts_by() {
        let hash = |text: &str| ListedTool::of(RawValue::from_string(text.to_owned()).unwrap()).unwrap().hash;
        let before = hash(r#"{"name":"a","description":"one","inputSchema":{"type":"object","x":1},"_meta":{"t":1}}"#);
        let same = hash(r#"{"inputSchema":{"x":1,"type":"object"},"name":"a","description":"one","title":null}"#);
        let other = hash(r#"{"inputSchema":{"x":2,"type":"object"},"name":"a","description":"one"}"#);
        assert!(before == same && before != other);
    }
}
