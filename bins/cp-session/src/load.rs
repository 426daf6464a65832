//! `cp-session load`: the conversation, as a prompt takes it. And `export`, which writes a summary of a session to one
//! file, always without secrets.

use std::path::Path;

use cp_common::home::write_whole;
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply, Turn};
use cp_common::{Context, Result, clock};
use cp_ledger::format::line::Hash;
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::lifecycle::{Args as ChangeArgs, change};
use crate::session::SessionOperand;
use crate::transcript::{self, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "load",
    class: Class::Query,
    output: "session_loaded",
    examples: &["S=$(cp-session start --format text); cp-session load \"$S\""],
    ..VerbDoc::EMPTY
};

/// Print the conversation
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    /// Only the newest N turns
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
}

/// A conversation.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["messages"])))]
pub(crate) struct Loaded {
    /// The session.
    session_id: String,
    /// The agent of the session.
    agent: String,
    /// How much of it goes to the model.
    mode: Mode,
    /// The turns, oldest first.
    messages: Vec<Turn>,
    /// How many there are here.
    count: usize,
    /// True if there are older ones.
    has_more: bool,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
}

impl Reply for Loaded {
    fn text(&self) -> String {
        let lines = self.messages.iter().map(|turn| format!("{}: {}", turn.role, turn.plain_text()));
        lines.collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let file = session.file();
    let (start, _) = transcript::start_of(&file)?;
    let turns = transcript::newest(&file, args.last)?;
    note_skipped(turns.skipped, context);
    let messages: Vec<Turn> = turns.list.into_iter().map(|stored| stored.turn).collect();
    let loaded = Loaded {
        session_id: session.id,
        agent: start.agent,
        mode: start.mode,
        count: messages.len(),
        messages,
        has_more: turns.has_more,
        untrusted: ["/messages"],
    };
    context.out.answer(&loaded)
}

/// Warns that some lines of a session were skipped.
fn note_skipped(skipped: u64, context: &mut Context) {
    if skipped > 0 {
        let lines = if skipped == 1 { "1 line" } else { &format!("{skipped} lines") };
        let message = format!("skipped {lines}, damaged or not an entry of a ledger: see cp-session check");
        context.out.notice("lines_skipped", Severity::Warning, message.clone());
        context.warn(&message);
    }
}

/// The entry of this verb in `reference`.
pub(crate) const EXPORT_DOC: VerbDoc = VerbDoc {
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

pub(crate) fn export(args: &ChangeArgs, context: &mut Context) -> Result<()> {
    change("export", args, context, |session| Ok(summarise(session)?.0), write_summary)
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

fn write_summary(session: &Session) -> Result<Exported> {
    let (mut exported, bytes) = summarise(session)?;
    write_whole(Path::new(&exported.path), &bytes)?;
    let entry = Entry::new("session_export").session(&session.id).data(&exported);
    exported.receipt = Some(Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)?);
    Ok(exported)
}
