//! `cp-session export`: write a summary of a session to one file, always without secrets.

use std::path::Path;

use cp_common::home::{Session, write_whole};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result, clock};
use cp_ledger::format::line::Hash;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::lifecycle::{Args, change};
use crate::transcript::{self, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "export",
    class: Class::Append,
    output: "session_exported",
    examples: &["S=$(cp-session start --format text); cp-session export \"$S\""],
    events: &["session_export"],
    ..VerbDoc::EMPTY
};

/// A summary that was written.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Exported {
    /// The session.
    session_id: String,
    /// The file.
    path: String,
    /// The hash of its bytes, `sha256:` and 64 hex digits.
    sha256: String,
    /// How many turns it has.
    turns: u64,
    /// How many secrets were redacted now; secrets that were redacted before they were stored are not counted.
    redactions: u32,
    /// Where it is recorded; a dry run writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Exported {
    fn text(&self) -> String {
        self.path.clone()
    }
}

/// The file.
#[derive(Serialize)]
struct Summary<'a> {
    schema_version: &'static str,
    session_id: &'a str,
    agent: String,
    mode: Mode,
    tier: Option<String>,
    started_at: String,
    exported_at: String,
    ended: bool,
    turn_count: u64,
    turns: Vec<SummaryTurn>,
}

#[derive(Serialize)]
struct SummaryTurn {
    seq: u64,
    ts: String,
    role: String,
    text: String,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    change("export", args, context, |session| Ok(summarise(session)?.0), export)
}

/// The answer of an export before it is recorded, and the bytes of the file.
fn summarise(session: &Session) -> Result<(Exported, Vec<u8>)> {
    let file = session.file();
    let (start, started_at) = transcript::start_of(&file)?;
    let redactor = Redactor::from_environment();
    let (mut turns, mut redactions) = (Vec::new(), 0);
    transcript::each_turn(&file, &mut |line| {
        let turn = transcript::turn_of(line, &file)?;
        // Secrets were removed when the text was stored; the rules may have improved since.
        let (text, count) = redactor.redact_text(&turn.plain_text());
        redactions += count;
        turns.push(SummaryTurn { seq: line.seq(), ts: line.ts().to_owned(), role: turn.role, text });
        Ok(())
    })?;
    let summary = Summary {
        schema_version: "1.0",
        session_id: &session.id,
        agent: start.agent,
        mode: start.mode,
        tier: session.tier().map(str::to_owned),
        started_at,
        exported_at: clock::now(),
        ended: transcript::ended(&file)?.is_some(),
        turn_count: turns.len() as u64,
        turns,
    };
    let mut bytes = cp_common::wire::raw(&summary)?.get().as_bytes().to_vec();
    bytes.push(b'\n');
    let exported = Exported {
        session_id: session.id.clone(),
        path: session.directory.join("summary.json").display().to_string(),
        sha256: Hash::of(&bytes).to_string(),
        turns: summary.turn_count,
        redactions,
        receipt: None,
    };
    Ok((exported, bytes))
}

fn export(session: &Session) -> Result<Exported> {
    let (mut exported, bytes) = summarise(session)?;
    write_whole(Path::new(&exported.path), &bytes)?;
    let entry = Entry::new("session_export").session(&session.id).data(&exported);
    exported.receipt = Some(Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)?);
    Ok(exported)
}
