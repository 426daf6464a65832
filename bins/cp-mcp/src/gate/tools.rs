//! The tools that a server has listed: which are offered, and the check of their arguments.

use std::cell::OnceCell;
use std::collections::HashSet;

use cp_common::output::printable_line;
use cp_common::wire::Approval;
use cp_common::{Code, Error, Result};
use cp_mcp_wire::{Annotations, LeftOut, Tool, is_tool_name};
use cp_redact::Redactor;
use cp_schema::Schema;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::content::{Members, escape_controls, redact};
use super::pins::Pin;

/// The most pages that are read.
const PAGES: usize = 100;
/// The most bytes of all pages.
const LONGEST: usize = 64 << 20;
/// The most faults of arguments that an error names.
const FAULTS: usize = 5;

/// The pages of a list that have arrived.
#[derive(Default)]
pub(super) struct Pages {
    /// The members next to the tools.
    members: Members,
    tools: Vec<Box<RawValue>>,
    count: usize,
    bytes: usize,
}

/// A complete list.
pub(super) struct Listing {
    members: Members,
    pub(super) tools: Vec<ListedTool>,
    /// The tools whose names are not valid, and the reason.
    pub(super) refused: Vec<(String, String)>,
}

/// A tool of the list.
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) annotations: Annotations,
    pub(super) pin: Pin,
    pub(super) availability: Availability,
    raw: Box<RawValue>,
    input_schema: Option<Box<RawValue>>,
    /// `None` if the schema cannot be compiled: then only the server checks arguments.
    compiled: OnceCell<Option<Schema>>,
}

/// The availability of a tool to the client.
pub(super) enum Availability {
    /// The client may call it.
    Offered,
    /// The policy does not list it.
    NotAllowed,
    /// It differs from its pin: the change, and the approval that it needs.
    Changed(String, Box<Approval>),
}

impl Pages {
    /// Adds a page, and returns the cursor of the next one.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Option<String>> {
        let invalid = |e| Error::new(Code::Server, format!("the server's list of tools is not valid: {e}"));
        let mut members: Members = serde_json::from_str(page.get()).map_err(invalid)?;
        let tools = members.remove("tools").map(|tools| serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()));
        let cursor = members.remove("nextCursor").and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        self.tools.extend(tools.transpose().map_err(invalid)?.unwrap_or_default());
        (self.count, self.bytes) = (self.count + 1, self.bytes + page.get().len());
        if self.count == 1 {
            self.members = members;
        }
        if cursor.is_some() && (self.count == PAGES || self.bytes > LONGEST) {
            return Err(Error::new(Code::Server, "the server's list of tools does not end"));
        }
        Ok(cursor)
    }

    /// The complete list. Of two tools with one name it has the first, because a client must not see one and call the other.
    pub(super) fn into_listing(self) -> Listing {
        let mut seen = HashSet::new();
        let tools = self.tools.into_iter().filter_map(ListedTool::of).filter(|tool| seen.insert(tool.name.clone()));
        let (tools, refused) = tools.partition(|tool: &ListedTool| is_tool_name(&tool.name));
        let reason = || "its name has characters other than letters, digits, `_`, `.` and `-`".to_owned();
        let refused = Vec::into_iter(refused).map(|tool| (printable_line(&tool.name), reason())).collect();
        Listing { members: self.members, tools, refused }
    }
}

impl Listing {
    /// The result for the client: the tools that it may call, on one page, and the reasons for which others are left out.
    pub(super) fn result(&self, redactor: &Redactor) -> Result<Box<RawValue>> {
        let offered = self.tools.iter().filter(|tool| matches!(tool.availability, Availability::Offered));
        let tools: Vec<Box<RawValue>> = offered.map(|tool| tool.shown(redactor)).collect();
        let encoded = |e: serde_json::Error| Error::new(Code::Unknown, e.to_string());
        let mut members = self.members.clone();
        members.insert("tools".to_owned(), to_raw_value(&tools).map_err(encoded)?);
        let changed = self.tools.iter().filter_map(|tool| match &tool.availability {
            Availability::Changed(why, approval) => {
                Some(LeftOut { name: tool.name.clone(), why: why.clone(), approval: Some(approval.id.clone()) })
            }
            Availability::Offered | Availability::NotAllowed => None,
        });
        let refused =
            self.refused.iter().map(|(name, why)| LeftOut { name: name.clone(), why: why.clone(), approval: None });
        let left_out: Vec<LeftOut> = changed.chain(refused).collect();
        let meta = members.get("_meta").and_then(|meta| serde_json::from_str::<Members>(meta.get()).ok());
        let mut meta = meta.unwrap_or_default();
        // The server must not write this member.
        let is_forged = meta.remove(LeftOut::META).is_some();
        if !left_out.is_empty() {
            meta.insert(LeftOut::META.to_owned(), to_raw_value(&left_out).map_err(encoded)?);
        }
        if is_forged || !left_out.is_empty() {
            members.insert("_meta".to_owned(), to_raw_value(&meta).map_err(encoded)?);
        }
        to_raw_value(&members).map_err(encoded)
    }
}

impl ListedTool {
    fn of(raw: Box<RawValue>) -> Option<Self> {
        let Tool { name, input_schema, annotations, .. } = serde_json::from_str(raw.get()).ok()?;
        let pin = Pin::of(&raw)?;
        let (availability, compiled) = (Availability::Offered, OnceCell::new());
        Some(Self { name, annotations, pin, availability, raw, input_schema, compiled })
    }

    /// The tool as the client sees it: its title and description without secrets and control characters.
    fn shown(&self, redactor: &Redactor) -> Box<RawValue> {
        let Ok(mut members) = serde_json::from_str::<Members>(self.raw.get()) else { return self.raw.clone() };
        let mut is_changed = false;
        for text in members.iter_mut().filter(|(name, _)| matches!(name.as_str(), "title" | "description")) {
            let (_, text) = text;
            let escaped = escape_controls(text);
            let redacted = redact(redactor, escaped.as_ref().unwrap_or(text));
            if let Some(changed) = redacted.or(escaped) {
                *text = changed;
                is_changed = true;
            }
        }
        let shown = is_changed.then(|| to_raw_value(&members).ok()).flatten();
        shown.unwrap_or_else(|| self.raw.clone())
    }

    /// Checks the arguments of a call. The error is for the model.
    pub(super) fn check(&self, arguments: &RawValue) -> Result<()> {
        let value: Value = serde_json::from_str(arguments.get()).map_err(|e| Error::validation(e.to_string()))?;
        let refused = |why: String| Error::validation(why).with("rule", "mcp.arguments");
        if !value.is_object() {
            return Err(refused(format!("the arguments of {} are not a JSON object", self.name)));
        }
        let compiled = self.compiled.get_or_init(|| {
            let schema = serde_json::from_str(self.input_schema.as_ref()?.get()).ok()?;
            Schema::compile_lenient(schema).ok().map(|(schema, _)| schema)
        });
        let faults = compiled.as_ref().map(|schema| schema.faults(&value, FAULTS)).unwrap_or_default();
        if faults.is_empty() {
            return Ok(());
        }
        let faults: Vec<String> =
            faults.iter().map(|fault| format!("{} {}", fault.pointer, fault.message).trim_start().to_owned()).collect();
        Err(refused(format!("the arguments of {} do not fit its schema: {}", self.name, faults.join("; "))))
    }
}
