//! The account of a prompt: the source, size, hash and redactions of each part, and the turns that were left out.

use cp_common::wire::{Prompt, Reply, estimated_tokens};
use cp_ledger::format::line::Hash;
use cp_redact::Redactor;
use serde::Serialize;

/// A part of a prompt.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// soul, context, system, history, user, …
    #[serde(rename = "part")]
    pub(crate) kind: &'static str,
    /// The file or session it came from; null for the command line and standard input.
    pub(crate) source: Option<String>,
    /// Its size in the prompt.
    pub(crate) bytes: usize,
    /// The hash of its bytes in the prompt, `sha256:` and 64 hex digits.
    pub(crate) sha256: String,
    /// About how many tokens it is: bytes divided by four.
    pub(crate) estimated_tokens: usize,
    /// How many secrets were taken out of it.
    pub(crate) redactions: u32,
}

/// Something that was left out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Dropped {
    /// What: turns.
    pub(crate) what: &'static str,
    /// How many.
    pub(crate) count: usize,
    /// Why.
    pub(crate) why: String,
}

/// The account so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// What the prompt is made of.
    pub(crate) parts: Vec<Part>,
    /// What is not in it.
    pub(crate) dropped: Vec<Dropped>,
}

/// The report in a prompt: absent where nothing was redacted and nothing was left out.
#[derive(Debug, Serialize)]
struct Report<'a> {
    redactions: u32,
    redacted: Vec<Redacted<'a>>,
    dropped: &'a [Dropped],
}

#[derive(Debug, Serialize)]
struct Redacted<'a> {
    part: &'static str,
    source: Option<&'a str>,
    redactions: u32,
}

impl Account {
    /// Enters a part.
    pub(crate) fn part(&mut self, kind: &'static str, source: Option<String>, bytes: &[u8], redactions: u32) {
        self.parts.push(Part {
            kind,
            source,
            bytes: bytes.len(),
            sha256: Hash::of(bytes).to_string(),
            estimated_tokens: estimated_tokens(bytes.len()),
            redactions,
        });
    }

    /// Enters something that was left out, if there was any of it.
    pub(crate) fn dropped(&mut self, what: &'static str, count: usize, why: impl Into<String>) {
        if count > 0 {
            self.dropped.push(Dropped { what, count, why: why.into() });
        }
    }

    /// The report that goes into the prompt.
    pub(crate) fn report(&self) -> cp_common::Result<Option<Box<serde_json::value::RawValue>>> {
        let redacted: Vec<Redacted<'_>> = self
            .parts
            .iter()
            .filter(|part| part.redactions > 0)
            .map(|part| Redacted { part: part.kind, source: part.source.as_deref(), redactions: part.redactions })
            .collect();
        if redacted.is_empty() && self.dropped.is_empty() {
            return Ok(None);
        }
        let redactions = redacted.iter().map(|part| part.redactions).sum();
        cp_common::wire::raw(&Report { redactions, redacted, dropped: &self.dropped }).map(Some)
    }
}

/// Removes secrets from what goes to a model, unless that is switched off. The rules are prepared at the first use.
pub(crate) struct Cleaner {
    redactor: Option<Redactor>,
    off: bool,
}

impl Cleaner {
    /// With `off`, every text passes unchanged.
    pub(crate) const fn new(off: bool) -> Self {
        Self { redactor: None, off }
    }

    /// The text without secrets, and how many there were.
    pub(crate) fn clean(&mut self, text: &str) -> (String, u32) {
        if self.off {
            return (text.to_owned(), 0);
        }
        self.redactor.get_or_insert_with(Redactor::from_environment).redact_text(text)
    }
}

/// The account of a prompt.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Explained {
    /// Who speaks.
    agent: Option<String>,
    /// The session that the history came from.
    session_id: Option<String>,
    /// The governed prompt.
    prompt_id: Option<String>,
    /// What the prompt is made of.
    parts: Vec<Part>,
    /// What was left out.
    dropped: Vec<Dropped>,
    /// The size of all parts.
    bytes: usize,
    /// About how many tokens they are: bytes divided by four.
    estimated_tokens: usize,
}

impl Explained {
    /// The account of this prompt.
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
        let mut lines: Vec<String> = self
            .parts
            .iter()
            .map(|part| {
                let source = part.source.as_deref().unwrap_or("-");
                format!("{:<10} {:>8} bytes  {}  {source}", part.kind, part.bytes, &part.sha256[..19])
            })
            .collect();
        lines.extend(
            self.dropped
                .iter()
                .map(|dropped| format!("left out: {} {} ({})", dropped.count, dropped.what, dropped.why)),
        );
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use cp_common::wire::schemas::{of_record, same_or_update};

    use super::*;

    #[test]
    fn explained_schema_matches_type() {
        same_or_update(env!("CARGO_MANIFEST_DIR"), "explained", &of_record(schemars::schema_for!(Explained)));
    }
}
