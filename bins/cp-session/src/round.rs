//! A round as it is written: the question, the answer and the entry that closes it, in one append, all or none.

use std::collections::BTreeMap;

use cp_common::context::given::text_of;
use cp_common::wire::record::read;
use cp_common::wire::{Block, Content, Receipt, Reply, ToolCall, Turn};
use cp_common::{Error, Result};
use cp_ledger::{Entry, Ledger};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::transcript::{MESSAGE, TURN, must_be_open};

/// The members of a message that are read. Only the content is required, because other programs write messages too.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    #[serde(default = "assistant")]
    role: String,
    content: Content,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    blocks: Vec<Block>,
    #[serde(default)]
    input: Vec<Turn>,
    /// The session that its prompt came from.
    pub(crate) session_id: Option<String>,
    agent: Option<String>,
    #[serde(skip)]
    origin: BTreeMap<String, Box<RawValue>>,
}

fn assistant() -> String {
    "assistant".to_owned()
}

/// The members of a message that tell where an answer came from and what it cost: the `data` of its entry.
const ORIGIN: [&str; 7] = ["id", "model", "backend", "endpoint", "stop_reason", "usage", "receipt"];

impl Message {
    /// Reads a message.
    pub(crate) fn read(data: &RawValue) -> Result<Self> {
        let mut message: Self = read(data)?;
        message.origin = read(data)?;
        message.origin.retain(|name, value| ORIGIN.contains(&name.as_str()) && value.get() != "null");
        if message.role != "assistant" {
            return Err(Error::validation(format!("a message has the role `{}`, not assistant", message.role))
                .hint("cp-session append stores a turn of any role"));
        }
        for turn in &message.input {
            check_role(&turn.role)?;
        }
        Ok(message)
    }

    /// Stores the round. Both sides of it are in the ledger when this returns, or neither is.
    pub(crate) fn store(&self, session: &str, ledger: &mut Ledger) -> Result<Vec<Receipt>> {
        let answer = Turn {
            role: self.role.clone(),
            content: self.content.clone().with_calls(&self.tool_calls),
            blocks: self.blocks.clone(),
        };
        let turns = self.input.iter().chain([&answer]);
        let redactions = turns.map(redactions).sum::<Result<u32>>()?;
        let question = self.input.iter().position(|turn| turn.role == "user");
        let file = ledger.path().to_owned();
        ledger.append_placed(|first| {
            // Checked under the lock: the session may have ended meanwhile.
            must_be_open(&file)?;
            let place = |at: usize| first + at as u64;
            let mut entries: Vec<Entry> = self.input.iter().map(|turn| turn_entry(session, turn)).collect();
            let entry = turn_entry(session, &answer).data(&self.origin);
            entries.push(self.agent.iter().fold(entry, Entry::agent));
            entries.push(
                Entry::new(TURN)
                    .session(session)
                    .with("user_seq", &question.map(place))
                    .with("assistant_seq", &place(self.input.len()))
                    .with("risk", &None::<&str>)
                    .with("cancelled", &false)
                    .with("dry_run", &false)
                    .with("hints", &[""; 0])
                    .with("redactions", &redactions),
            );
            Ok(entries)
        })
    }
}

/// A turn or a memory that was added.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Added {
    /// The session; null for a memory without one.
    pub(crate) session_id: Option<String>,
    /// The role of the speaker of a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// The kind of a memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// How many secrets were taken out.
    pub(crate) redactions: u32,
    /// Where it is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Receipt>,
}

impl Reply for Added {
    fn text(&self) -> String {
        match &self.receipt {
            Some(receipt) => format!("{} {}", receipt.seq, receipt.hash),
            None => format!("would add it as {}", self.role.as_ref().or(self.kind.as_ref()).map_or("", String::as_str)),
        }
    }
}

/// The entry of one turn.
pub(crate) fn turn_entry(session: &str, turn: &Turn) -> Entry {
    let entry = Entry::new(MESSAGE).session(session).role(&turn.role).content(&turn.content);
    if turn.blocks.is_empty() { entry } else { entry.with("blocks", &turn.blocks) }
}

/// A text that was given as input, which must not be empty.
pub(crate) fn text_given(bytes: &[u8]) -> Result<&str> {
    let text = text_of(bytes)?;
    if text.trim().is_empty() {
        return Err(Error::validation("the text is empty").hint("give some text"));
    }
    Ok(text)
}

/// Refuses any role but user and assistant.
pub(crate) fn check_role(role: &str) -> Result<()> {
    if matches!(role, "user" | "assistant") {
        return Ok(());
    }
    Err(Error::validation(format!("the role `{role}` is neither user nor assistant")))
}

/// How many secrets the ledger will remove from a turn: from its content, and again from the blocks that say the same.
pub(crate) fn redactions(turn: &Turn) -> Result<u32> {
    let mut text = cp_common::wire::raw(turn)?.get().as_bytes().to_vec();
    Ok(Redactor::from_environment().redact(&mut text, 0))
}
