//! The digest of a session's ledger: its first question, its number of turns, its model, and the tool runs of its rounds.

use std::path::Path;

use cp_common::Result;
use cp_common::wire::Content;
use cp_ledger::format::line::Line;
use cp_ledger::store::blob;
use serde::{Deserialize, Serialize};

use crate::interactive::transcript::TURN;

/// The entry of a session that is a copy.
pub(crate) const COPY: &str = "session_copy";

/// The `data` of this entry.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The original session, if the copy is without its last round.
    pub(crate) replaces: Option<String>,
    /// The tool run of each round of the copy.
    pub(crate) runs: Vec<Option<String>>,
}

#[derive(Debug, Default)]
pub(crate) struct Digest {
    /// The first question.
    pub(crate) first: String,
    pub(crate) turns: u64,
    /// The model of the last answer.
    pub(crate) model: Option<String>,
    /// The tool run of each round, the newest last.
    pub(crate) runs: Vec<Option<String>>,
    /// The tool run of the last turn, if the turn failed and so is not a round.
    pub(crate) failed_run: Option<String>,
    /// The original session, if this is a copy without its last round.
    pub(crate) replaces: Option<String>,
}

/// The members of the entry that closes a turn.
#[derive(Deserialize)]
struct Closing {
    user_seq: Option<u64>,
    model: Option<String>,
    run: Option<String>,
}

impl Digest {
    /// Reads the ledger in a session's directory.
    pub(crate) fn of(directory: &Path) -> Result<Self> {
        let file = directory.join("session.jsonl");
        let (mut digest, mut questions) = (Self::default(), 0);
        let mut lines = cp_ledger::read::lines(&file)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            if line.is_event(TURN) {
                digest.close(&line);
            } else if line.is_event(COPY) {
                let copied: Copied = data_of(&line).unwrap_or_default();
                (digest.runs, digest.replaces) = (copied.runs, copied.replaces);
            } else if line.is_event("message") && line.member("role") == Some(b"\"user\"") {
                let kept = line.member("content").unwrap_or(b"\"\"");
                let whole = blob::resolve(&file, kept)?;
                let content: Option<Content> = serde_json::from_slice(whole.as_deref().unwrap_or(kept)).ok();
                // The results of tools have no text of their own.
                let text = content.map(|content| content.text()).unwrap_or_default();
                questions += u64::from(!text.is_empty());
                if digest.first.is_empty() {
                    digest.first = text;
                }
            }
        }
        digest.turns = digest.turns.max(questions);
        Ok(digest)
    }

    fn close(&mut self, line: &Line<'_>) {
        let number = line.member("turn").and_then(|turn| serde_json::from_slice(turn).ok());
        self.turns = self.turns.max(number.unwrap_or_default());
        let Some(Closing { user_seq, model, run }) = data_of(line) else { return };
        self.model = model.or(self.model.take());
        if user_seq.is_some() {
            self.runs.push(run);
            self.failed_run = None;
        } else {
            self.failed_run = run;
        }
    }
}

fn data_of<T: for<'a> Deserialize<'a>>(line: &Line<'_>) -> Option<T> {
    serde_json::from_slice(line.member("data")?).ok()
}
