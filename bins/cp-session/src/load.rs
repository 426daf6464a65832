//! `cp-session load`: the conversation, as a prompt takes it.

use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, Turn};
use cp_common::{Context, Result};
use serde::Serialize;

use crate::operand::SessionOperand;
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
