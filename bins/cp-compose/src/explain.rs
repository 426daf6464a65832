//! `--explain`: where every part of a prompt came from, instead of the prompt.

use cp_common::wire::{Prompt, Reply};
use serde::Serialize;

use crate::parts::{Account, Dropped, Part};

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
