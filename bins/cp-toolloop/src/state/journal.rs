//! The run's ledger, which has an entry for every step before its effect.

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::wire::{Approval, Message, Receipt, ToolCall, ToolResult};
use cp_common::{Context, Error, Result};
use cp_ledger::format::approval::Said;
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use cp_ledger::{Entry, Ledger, Sync};
use serde::Serialize;
use serde_json::Value;

use crate::state::conversation::Renamed;
use crate::state::plan::{Limits, Plan};
use crate::state::tally::Tally;
use crate::tools::tool::Origin;

/// Writes the entries of a run into its ledger.
pub(crate) struct Journal {
    ledger: Ledger,
    run: String,
    agent: String,
    session: Option<String>,
}

#[derive(Serialize)]
struct Pinned<'a> {
    name: &'a str,
    #[serde(flatten)]
    origin: &'a Origin,
    schema_sha256: String,
    /// True if each call of it requires approval.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    approve: bool,
    /// True if it changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
}

impl Journal {
    /// Opens the ledger of a run, and creates it if necessary.
    pub(crate) fn open(path: &Path, plan: &Plan, context: &Context) -> Result<Self> {
        // The coprocesses sync the same file before each effect, which includes all earlier entries.
        let ledger = Ledger::open(path, Sync::Batch)?;
        let agent = context.agent(plan.prompt.agent.as_deref());
        Ok(Self { ledger, run: plan.run.clone(), agent, session: plan.prompt.session_id.clone() })
    }

    /// The path of the ledger.
    pub(crate) fn path(&self) -> &Path {
        self.ledger.path()
    }

    /// Records the start of a run: the prompt, the model, the tools and the limits.
    pub(crate) fn start(&mut self, plan: &Plan) -> Result<Receipt> {
        let pinned: Vec<Pinned<'_>> = plan
            .tools
            .iter()
            .map(|tool| Pinned {
                name: &tool.name,
                origin: &tool.origin,
                schema_sha256: Hash::of(tool.input_schema.get().as_bytes()).to_string(),
                approve: tool.hints.approve,
                read_only: tool.hints.read_only,
            })
            .collect();
        let last = plan.prompt.messages.last().map(|turn| turn.content.clone());
        let mut entry = self.entry("run_start").role("user").with("model_command", &plan.model.argv);
        if let Some(content) = &last {
            entry = entry.content(content);
        }
        entry = entry
            .with("name", &plan.name)
            .with("base", &plan.base)
            .with("root", &plan.root)
            .with("tools", &pinned)
            .with("limits", &plan.limits)
            .with("messages", &plan.prompt.messages.len());
        self.append(entry)
    }

    /// Records that a stopped run was resumed.
    pub(crate) fn resumed(&mut self, limits: &Limits) -> Result<Receipt> {
        self.append(self.entry("run_resumed").with("limits", limits).with("uid", &rustix::process::getuid().as_raw()))
    }

    /// A turn of the model begins.
    pub(crate) fn iteration(&mut self, number: u64) -> Result<Receipt> {
        self.append(self.entry("iteration").turn(number))
    }

    /// The model has answered. `normalized` has the calls that differ from those in the content.
    pub(crate) fn message(
        &mut self,
        number: u64,
        message: &Message,
        renamed: &Renamed,
        normalized: &BTreeMap<String, Value>,
    ) -> Result<Receipt> {
        let entry = self.entry("message").turn(number).role("assistant").content(&message.content);
        let entry = entry.with("model", &message.model).with("stop_reason", &message.stop_reason);
        let entry = entry.with("usage", &message.usage).with("tool_calls", &message.tool_calls.len());
        let entry = if renamed.is_empty() { entry } else { entry.with("renamed_calls", renamed) };
        self.append(if normalized.is_empty() { entry } else { entry.with("normalized_calls", normalized) })
    }

    /// Records that a call is about to start.
    pub(crate) fn call(&mut self, number: u64, call: &ToolCall) -> Result<Receipt> {
        let entry = self.entry("tool_call").turn(number).with("id", &call.id).with("name", &call.name);
        self.append(entry.with("input", &call.input))
    }

    /// Records the result of a call.
    pub(crate) fn result(&mut self, number: u64, result: &ToolResult) -> Result<Receipt> {
        let entry = self.entry("tool_result").turn(number).role("tool").content(&result.content);
        let entry = entry.with("id", &result.id).with("name", &result.name).with("is_error", &result.is_error);
        self.append(
            entry
                .with("exit_code", &result.exit_code)
                .with("duration_ms", &result.duration_ms)
                .with("receipt", &result.receipt),
        )
    }

    /// Records an event of an approval, and syncs the ledger.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        let receipt = self.append(said.about(approval, self.entry(said.event())))?;
        self.ledger.sync()?;
        Ok(receipt)
    }

    /// Records that the run has stopped and can be resumed.
    pub(crate) fn paused(&mut self, error: &Error, tally: &Tally) -> Result<Receipt> {
        let entry = self.entry("run_paused").message(error.message()).with("code", error.code().row().name);
        self.append(entry.with("tally", tally))
    }

    /// Records the end of the run.
    pub(crate) fn end(&mut self, status: &str, tally: &Tally) -> Result<Receipt> {
        let receipt = self.append(self.entry("run_end").with("status", status).with("tally", tally))?;
        self.ledger.sync()?;
        Ok(receipt)
    }

    /// Syncs all entries to the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.ledger.sync()
    }

    /// The beginning and the end of a text that is longer than the limit, and the hash under which the whole text is
    /// stored.
    pub(crate) fn shortened(&self, text: &str, most: usize) -> Result<Option<String>> {
        let tail = most / 4;
        let Some(cut) = self.ledger.redactor().cut(text, most - tail, tail) else { return Ok(None) };
        let Some((missing, tail)) = cut.tail else { return Ok(Some(cut.head)) };
        let (head, hash) = (cut.head, self.kept(text)?);
        Ok(Some(format!("{head}\n[… {missing} bytes are left out here, the whole is {hash} …]\n{tail}")))
    }

    /// Stores a text as a blob of the ledger, with secrets redacted, and returns its hash.
    pub(crate) fn kept(&self, text: &str) -> Result<Hash> {
        let (redacted, _) = self.ledger.redactor().redact_text(text);
        blob::store(self.ledger.path(), redacted.as_bytes())
    }

    fn entry(&self, event: &str) -> Entry {
        let entry = Entry::new(event).agent(&self.agent).run(&self.run);
        match &self.session {
            Some(session) => entry.session(session),
            None => entry,
        }
    }

    fn append(&mut self, entry: Entry) -> Result<Receipt> {
        self.ledger.append(entry).map_err(Error::fatal)
    }
}
