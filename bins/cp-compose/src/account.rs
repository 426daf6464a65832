//! The account of a prompt: the source, size, hash and redactions of each part, and the dropped turns.

use std::collections::BTreeMap;

use cp_common::wire::{Prompt, Reply, estimated_tokens};
use cp_ledger::format::line::Hash;
use cp_redact::MARK_START;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A part of a prompt.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// soul, context, system, history, user, …
    #[serde(rename = "part")]
    pub(crate) kind: &'static str,
    /// The file or session; null for the command line and standard input.
    pub(crate) source: Option<String>,
    /// The size in the prompt.
    pub(crate) bytes: usize,
    /// The hash of its bytes in the prompt, `sha256:` and 64 hex digits.
    pub(crate) sha256: String,
    /// The estimated number of tokens: bytes divided by four.
    pub(crate) estimated_tokens: usize,
    /// The number of secrets that were removed.
    pub(crate) redactions: u32,
    /// Their number by kind, for the report.
    #[serde(skip)]
    kinds: BTreeMap<String, u32>,
}

/// A dropped part.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Dropped {
    /// The kind of the dropped parts: turns.
    pub(crate) what: &'static str,
    /// The number.
    pub(crate) count: usize,
    /// The reason.
    pub(crate) why: String,
}

/// The account so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The parts of the prompt.
    pub(crate) parts: Vec<Part>,
    /// The dropped parts.
    pub(crate) dropped: Vec<Dropped>,
}

impl Account {
    /// Adds a part.
    pub(crate) fn part(&mut self, kind: &'static str, source: Option<String>, bytes: &[u8], redactions: u32) {
        self.parts.push(Part {
            kind,
            source,
            bytes: bytes.len(),
            sha256: Hash::of(bytes).to_string(),
            estimated_tokens: estimated_tokens(bytes.len()),
            redactions,
            kinds: if redactions > 0 { kinds(bytes) } else { BTreeMap::new() },
        });
    }

    /// Adds a dropped part, if `count` is not 0.
    pub(crate) fn dropped(&mut self, what: &'static str, count: usize, why: impl Into<String>) {
        if count > 0 {
            self.dropped.push(Dropped { what, count, why: why.into() });
        }
    }

    /// Returns the report for the prompt; absent if no secret was removed and no turn was dropped.
    pub(crate) fn report(&self) -> cp_common::Result<Option<Box<RawValue>>> {
        let redacted: Vec<&Part> = self.parts.iter().filter(|part| part.redactions > 0).collect();
        if redacted.is_empty() && self.dropped.is_empty() {
            return Ok(None);
        }
        let redactions: u32 = redacted.iter().map(|part| part.redactions).sum();
        let member = |part: &&Part| {
            let Part { kind, source, redactions, kinds, .. } = part;
            json!({"part": kind, "source": source, "redactions": redactions, "kinds": kinds})
        };
        let redacted: Vec<Value> = redacted.iter().map(member).collect();
        let report = json!({"redactions": redactions, "redacted": redacted, "dropped": self.dropped});
        cp_common::wire::raw(&report).map(Some)
    }
}

/// Counts the marks of a redacted text by the kind of secret.
fn kinds(text: &[u8]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for mark in std::str::from_utf8(text).unwrap_or_default().split(MARK_START).skip(1) {
        let kind = mark.split([']', '#']).next().unwrap_or_default();
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    counts
}

/// The account of a prompt, for `--explain`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Explained {
    /// The agent.
    agent: Option<String>,
    /// The session of the history.
    session_id: Option<String>,
    /// The governed prompt.
    prompt_id: Option<String>,
    /// The parts of the prompt.
    parts: Vec<Part>,
    /// The dropped parts.
    dropped: Vec<Dropped>,
    /// The size of all parts.
    bytes: usize,
    /// The estimated number of tokens: bytes divided by four.
    estimated_tokens: usize,
}

impl Explained {
    /// Creates the account of a prompt.
    pub(crate) fn of(prompt: &Prompt, account: Account) -> Self {
        Self {
            agent: prompt.agent.clone(),
            session_id: prompt.session_id.clone(),
            prompt_id: prompt.prompt_id.clone(),
            bytes: account.parts.iter().map(|part| part.bytes).sum(),
            estimated_tokens: account.parts.iter().map(|part| part.estimated_tokens).sum(),
            parts: account.parts,
            dropped: account.dropped,
        }
    }
}

impl Reply for Explained {
    fn text(&self) -> String {
        let part = |part: &Part| {
            let source = part.source.as_deref().unwrap_or("-");
            format!("{:<10} {:>8} bytes  {}  {source}", part.kind, part.bytes, &part.sha256[..19])
        };
        let dropped = |left: &Dropped| format!("left out: {} {} ({})", left.count, left.what, left.why);
        let lines = self.parts.iter().map(part).chain(self.dropped.iter().map(dropped));
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use cp_testkit::{of_record, same_or_update};

    use super::*;

    #[test]
    fn explained_schema_matches_type() {
        same_or_update(env!("CARGO_MANIFEST_DIR"), "explained", &of_record(schemars::schema_for!(Explained)));
    }
}
