//! `cp-session load`: the conversation, as a prompt takes it. And `export`, which writes a summary of a session to one
//! file, always without secrets.

use cp_common::home::write_whole;
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, Turn};
use cp_common::{Context, Result, clock};
use cp_ledger::format::line::Hash;
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::Serialize;
use serde_json::json;

use crate::lifecycle::{Args as ChangeArgs, Changed, change};
use crate::session::SessionOperand;
use crate::transcript::{self, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["S=$(cp-session start --format text); cp-session load \"$S\""],
    ..VerbDoc::new("load", Class::Query, "session_loaded")
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
        let message = format!("skipped {lines}, damaged or not an entry of a ledger: cp-log verify names them");
        context.out.notice("lines_skipped", Severity::Warning, message.clone());
        context.warn(&message);
    }
}

/// The event of a summary that was written.
const EXPORT: &str = "session_export";

/// The entry of this verb in `reference`.
pub(crate) const EXPORT_DOC: VerbDoc = VerbDoc {
    examples: &["S=$(cp-session start --format text); cp-session export \"$S\""],
    events: &[EXPORT],
    ..VerbDoc::new("export", Class::Append, "session_changed")
};

pub(crate) fn export(args: &ChangeArgs, context: &mut Context) -> Result<()> {
    change("export", args, context, |session| Ok(summarise(session)?.0), write_summary)
}

/// The answer of an export before it is recorded, and the bytes of the file.
fn summarise(session: &Session) -> Result<(Changed, Vec<u8>)> {
    let file = session.file();
    let (start, started_at) = transcript::start_of(&file)?;
    let redactor = Redactor::from_environment();
    let (mut turns, mut redactions) = (Vec::new(), 0);
    transcript::each_turn(&file, &mut |line| {
        let turn = transcript::turn_of(line, &file)?;
        // Secrets were removed when the text was stored; the rules may have improved since.
        let (text, count) = redactor.redact_text(&turn.plain_text());
        redactions += count;
        turns.push(json!({"seq": line.seq(), "ts": line.ts(), "role": turn.role, "text": text}));
        Ok(())
    })?;
    let turn_count = turns.len() as u64;
    let summary = json!({
        "schema_version": "1.0",
        "session_id": session.id,
        "agent": start.agent,
        "mode": start.mode,
        "tier": session.tier(),
        "started_at": started_at,
        "exported_at": clock::now(),
        "ended": transcript::ended(&file)?.is_some(),
        "turn_count": turn_count,
        "turns": turns,
    });
    let bytes = format!("{summary}\n").into_bytes();
    let exported = Changed {
        path: Some(session.directory.join("summary.json").as_path().into()),
        sha256: Some(Hash::of(&bytes).to_string()),
        turns: Some(turn_count),
        redactions: Some(redactions),
        ..Changed::new(session, EXPORT, None)
    };
    Ok((exported, bytes))
}

fn write_summary(session: &Session) -> Result<Changed> {
    let (mut exported, bytes) = summarise(session)?;
    write_whole(&session.directory.join("summary.json"), &bytes)?;
    let Changed { path, sha256, turns, redactions, .. } = &exported;
    let entry = Entry::new(EXPORT)
        .session(&session.id)
        .with("path", &path.as_ref().map(|name| &name.path))
        .with("sha256", sha256)
        .with("turns", turns);
    let entry = entry.with("redactions", redactions);
    exported.receipt = Some(Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)?);
    Ok(exported)
}
