//! The tools of a server as it listed them last: which are offered, and what their arguments must be.

use std::cell::OnceCell;
use std::collections::HashSet;

use cp_common::wire::Approval;
use cp_common::{Code, Error, Result};
use cp_mcp_wire::{Annotations, Tool};
use cp_redact::Redactor;
use cp_schema::Schema;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::clean::{Members, without_secrets};
use super::pins::Pin;

/// How many pages of tools are read.
const PAGES: usize = 100;
/// The most bytes of them.
const LONGEST: usize = 64 << 20;
/// How many faults of arguments an answer names.
const FAULTS: usize = 5;

/// The pages of a list, as they come.
#[derive(Default)]
pub(super) struct Pages {
    /// What stands beside the tools.
    members: Members,
    tools: Vec<Box<RawValue>>,
    count: usize,
    bytes: usize,
}

/// A whole list.
pub(super) struct Listing {
    members: Members,
    pub(super) tools: Vec<Listed>,
}

/// A tool of the list.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) annotations: Annotations,
    pub(super) pin: Pin,
    pub(super) standing: Standing,
    raw: Box<RawValue>,
    input_schema: Option<Box<RawValue>>,
    /// None where it cannot be checked: then the server checks alone.
    compiled: OnceCell<Option<Schema>>,
}

/// Whether a tool may be called.
pub(super) enum Standing {
    /// It may.
    Offered,
    /// The policy does not list it.
    NotAllowed,
    /// It is not what was accepted; how, and what waits for the person.
    Changed(String, Box<Approval>),
}

impl Pages {
    /// Adds a page, and gives the cursor of the next.
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

    /// The whole. Of two tools with one name the first counts: a client must not be shown one and call the other.
    pub(super) fn whole(self) -> Listing {
        let mut seen = HashSet::new();
        let tools = self.tools.into_iter().filter_map(Listed::of);
        Listing { members: self.members, tools: tools.filter(|tool| seen.insert(tool.name.clone())).collect() }
    }
}

impl Listing {
    /// What the client is answered: the tools that it may call, on one page.
    pub(super) fn answer(&self, redactor: &Redactor) -> Result<Box<RawValue>> {
        let offered = self.tools.iter().filter(|tool| matches!(tool.standing, Standing::Offered));
        let tools: Vec<Box<RawValue>> = offered.map(|tool| tool.shown(redactor)).collect();
        let encoded = |e: serde_json::Error| Error::new(Code::Unknown, e.to_string());
        let mut members = self.members.clone();
        members.insert("tools".to_owned(), to_raw_value(&tools).map_err(encoded)?);
        to_raw_value(&members).map_err(encoded)
    }
}

impl Listed {
    fn of(raw: Box<RawValue>) -> Option<Self> {
        let Tool { name, input_schema, annotations, .. } = serde_json::from_str(raw.get()).ok()?;
        let pin = Pin::of(&raw)?;
        let (standing, compiled) = (Standing::Offered, OnceCell::new());
        Some(Self { name, annotations, pin, standing, raw, input_schema, compiled })
    }

    /// As the client sees it: a secret may stand in its description, and its schemas stay what they are.
    fn shown(&self, redactor: &Redactor) -> Box<RawValue> {
        let shown = || {
            let mut members: Members = serde_json::from_str(self.raw.get()).ok()?;
            let description = members.get_mut("description")?;
            *description = without_secrets(redactor, description)?;
            to_raw_value(&members).ok()
        };
        shown().unwrap_or_else(|| self.raw.clone())
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
