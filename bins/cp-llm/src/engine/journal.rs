//! The ledger entries of each attempt: its request before it is sent, and its outcome. They have hashes and counts.
//! They have text only inside a session or run, or if policy says so. They never have headers, because those include
//! the key.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cp_common::wire::Receipt;
use cp_common::{Context, Error, Result, keys};
use cp_ledger::read::newest;
use cp_ledger::{Entry, Ledger, Sync};
use serde::Serialize;
use serde_json::Value;

use super::Work;
use crate::backend::Exchange;

/// The file name of the ledger.
const NAME: &str = "cp-llm.jsonl";

/// Writes the ledger entries of this program. The ledger is opened with the first request.
pub(crate) struct Journal {
    path: PathBuf,
    /// The open ledger, and true if its entries are synced to disk.
    ledger: Mutex<Option<(Ledger, bool)>>,
    agent: String,
    session: Option<String>,
    run: Option<String>,
    /// True if entries include the text of prompts and answers.
    keeps_content: bool,
}

impl Journal {
    /// A journal for the ledger of this command line.
    pub(crate) fn new(context: &Context, log_content: bool) -> Result<Self> {
        let (session, run) = (context.session(), context.options.run.clone());
        Ok(Self {
            path: cp_ledger::effect_path(context, NAME)?,
            ledger: Mutex::new(None),
            agent: context.agent(None),
            keeps_content: log_content || session.is_some() || run.is_some(),
            session,
            run,
        })
    }

    /// Records that a request is about to be sent.
    pub(crate) fn record_request(&self, work: &Work) -> Result<()> {
        let mut entry = self.entry("llm.request", work.ready.backend.name(), work)?;
        let system = Some(&work.request.system).filter(|system| !system.is_empty());
        entry = with_some(entry, "system_hash", system.map(|system| keys::hash(system.as_bytes())));
        entry = with_some(entry, "prompt_id", work.prompt.prompt_id.as_ref());
        entry = with_some(entry, "network", work.ready.network);
        if self.keeps_content {
            entry = entry.content(work.prompt.input());
        }
        self.append(work.ready.network.is_some(), entry).map(|_| ())
    }

    /// Records the outcome of a request.
    pub(super) fn record_response(&self, work: &mut Work, exchange: &Exchange) -> Result<()> {
        if work.batch.is_some() && work.receipt.is_some() {
            return Ok(());
        }
        let mut entry = self
            .entry("llm.response", work.ready.backend.name(), work)?
            .with("status", &exchange.status)
            .with("request_id", &exchange.request_id)
            .with("response_hash", &exchange.hash)
            .with("duration_ms", &exchange.took.map(milliseconds));
        match &exchange.outcome {
            Ok(answer) => {
                entry = entry
                    .role("assistant")
                    .with("id", &answer.id)
                    .with("answered_by", &answer.model)
                    .with("stop_reason", &answer.stop)
                    .with("tool_calls", &answer.calls.len())
                    .with("usage", &exchange.usage);
                if self.keeps_content {
                    entry = entry.content(&answer.content.clone().with_calls(&answer.calls));
                }
            }
            Err(error) => {
                let message = if self.keeps_content { error.message().to_owned() } else { with_words_hashed(error) };
                entry = entry.message(&message).with("code", error.code().row().name);
                entry = with_some(entry.with("reason", &error.details().get("reason")), "usage", exchange.usage);
            }
        }
        work.receipt = Some(self.append(work.ready.network.is_some(), entry)?);
        Ok(())
    }

    /// Records that a batch was submitted, or why it was not.
    pub(crate) fn record_batch(&self, facts: &impl Serialize, failure: Option<&Error>, is_paid: bool) -> Result<()> {
        let mut entry = self.new_entry("llm.batch", None, None).with("job", facts);
        if let Some(error) = failure {
            entry = entry.message(error.message()).with("code", error.code().row().name);
        }
        self.append(is_paid, entry).map(|_| ())
    }

    /// The receipts of the rows of batches whose outcomes are on the ledger since this time. A process that was killed
    /// before it wrote the state file has left them there.
    pub(crate) fn receipts_since(&self, time: &str) -> Result<HashMap<String, Receipt>> {
        let (ledger, mut receipts) = (Ledger::open(&self.path, Sync::None)?, HashMap::new());
        newest(&self.path, |line| {
            if line.is_event("llm.response")
                && let Some(row) = line.data_member("batch").and_then(|row| serde_json::from_slice(row).ok())
            {
                receipts.insert(row, ledger.receipt(line.seq(), &line.hash()));
            }
            (line.ts() < time).then_some(())
        })?;
        Ok(receipts)
    }

    /// Records that an answer was taken from a recording.
    pub(super) fn record_replay(&self, from: &str, work: &mut Work) -> Result<()> {
        work.attempt = 0;
        let entry = self.entry("llm.response", from, work)?.with("cached", &true);
        work.receipt = Some(self.append(false, entry)?);
        Ok(())
    }

    fn entry(&self, event: &str, backend: &str, work: &Work) -> Result<Entry> {
        let entry = self.new_entry(event, work.prompt.agent.as_ref(), work.prompt.session_id.as_ref());
        Ok(with_some(entry, "batch", work.batch.as_ref())
            .with("backend", backend)
            .with("endpoint", &work.target.endpoint.name)
            .with("model", &work.request.model)
            .with("attempt", &work.attempt)
            .with("request_hash", work.request_hash()?))
    }

    /// A new entry. The agent and the session of the command line are the defaults.
    fn new_entry(&self, event: &str, agent: Option<&String>, session: Option<&String>) -> Entry {
        let entry = Entry::new(event).agent(agent.unwrap_or(&self.agent));
        let entry = session.or(self.session.as_ref()).into_iter().fold(entry, Entry::session);
        self.run.iter().fold(entry, Entry::run)
    }

    fn append(&self, is_paid: bool, entry: Entry) -> Result<Receipt> {
        // Entries of paid requests are synced in batches. Other entries are not synced.
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match ledger.take() {
            Some((open, is_synced)) if is_synced || !is_paid => (open, is_synced),
            _ => (Ledger::open(&self.path, if is_paid { Sync::Batch } else { Sync::None })?, is_paid),
        };
        let receipt = ledger.insert(open).0.append(entry)?;
        Ok(receipt)
    }
}

/// The message of an error. The words of an upstream, which may repeat the prompt, are hashed like the prompt.
fn with_words_hashed(error: &Error) -> String {
    let words = error.details().get("upstream_message").and_then(Value::as_str).map(str::to_owned);
    words.map_or_else(
        || error.message().to_owned(),
        |words| error.message().replace(&words, &keys::hash(words.as_bytes())),
    )
}

/// Adds a member if there is a value.
fn with_some(entry: Entry, name: &str, value: Option<impl Serialize>) -> Entry {
    match value {
        Some(value) => entry.with(name, &value),
        None => entry,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
