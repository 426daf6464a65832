//! What goes on the ledger: a call before it is sent, its result, what was refused, and what a server said that it offers.

use std::collections::BTreeMap;

use cp_common::wire::{Approval, Receipt};
use cp_common::{Context, Error, Result};
use cp_ledger::format::approval::Said;
use cp_ledger::{Entry, Ledger, effect_ledger};
use cp_mcp_wire::Party;
use cp_redact::Redactor;
use serde_json::Value;
use serde_json::value::RawValue;

/// The writer of the gate's entries.
pub(super) struct Journal {
    ledger: Ledger,
    server: String,
    agent: String,
    session: Option<String>,
    run: Option<String>,
    client: Party,
}

impl Journal {
    pub(super) fn open(server: &str, context: &Context) -> Result<Self> {
        Ok(Self {
            ledger: effect_ledger(context, "cp-mcp.jsonl")?,
            server: server.to_owned(),
            agent: context.agent(None),
            session: context.session(),
            run: context.options.run.clone(),
            client: Party::default(),
        })
    }

    /// What takes secrets out.
    pub(super) fn redactor(&self) -> &Redactor {
        self.ledger.redactor()
    }

    /// A server was started.
    pub(super) fn started(&mut self, described: &Value) -> Result<()> {
        let entry = self.entry("mcp.server");
        self.append(entry.with("server", described)).map(drop)
    }

    /// A client has said who it is, and which protocol it speaks.
    pub(super) fn session(&mut self, client: Party, protocol: &str) -> Result<()> {
        self.client = client;
        let entry = self.entry("mcp.session").with("protocol", protocol);
        self.append(entry.with("server", &self.server)).map(drop)
    }

    /// A tool is about to be called: on the disk before it is.
    pub(super) fn called(&mut self, tool: &str, arguments: &RawValue) -> Result<Receipt> {
        let entry = self.entry("mcp.call").with("server", &self.server).with("tool", tool);
        self.durably(entry.with("arguments", arguments))
    }

    /// What a call came to.
    pub(super) fn result(
        &mut self,
        call: &Receipt,
        is_error: bool,
        duration_ms: u64,
        hash: Option<&str>,
    ) -> Result<()> {
        let entry = self.entry("mcp.result").with("call", &call.seq).with("is_error", &is_error);
        self.append(entry.with("duration_ms", &duration_ms).with("sha256", &hash)).map(drop)
    }

    /// A call that was not made, and by which rule.
    pub(super) fn refused(&mut self, tool: &str, arguments: Option<&RawValue>, error: &Error) -> Result<()> {
        let entry = self.entry("mcp.refused").message(error.message()).with("server", &self.server);
        let entry = entry.with("tool", tool).with("arguments", &arguments).with("code", error.code().row().name);
        self.append(entry.with("rule", &error.details().get("rule"))).map(drop)
    }

    /// The hashes of tools that are offered from now on: on the disk before they are.
    pub(super) fn pinned(&mut self, hashes: &BTreeMap<&str, &str>) -> Result<()> {
        let entry = self.entry("mcp.pinned").with("server", &self.server).with("tools", hashes);
        self.durably(entry).map(drop)
    }

    /// What happened to an approval, on the disk before what comes after it.
    pub(super) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<()> {
        let entry = said.about(approval, self.entry(said.event()));
        self.durably(entry).map(drop)
    }

    fn entry(&self, event: &str) -> Entry {
        let mut entry = Entry::new(event).agent(&self.agent);
        if let Some(session) = &self.session {
            entry = entry.session(session);
        }
        if let Some(run) = &self.run {
            entry = entry.run(run);
        }
        if self.client == Party::default() { entry } else { entry.with("client", &self.client) }
    }

    fn append(&mut self, entry: Entry) -> Result<Receipt> {
        self.ledger.append(entry).map_err(Error::fatal)
    }

    fn durably(&mut self, entry: Entry) -> Result<Receipt> {
        let receipt = self.append(entry)?;
        self.ledger.sync().map_err(Error::fatal)?;
        Ok(receipt)
    }
}
