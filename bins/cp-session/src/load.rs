//! `cp-session load`: the conversation, as a prompt takes it.

use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, Turn};
use cp_common::{Context, Result};
use serde::Serialize;

use crate::answer::answer;
use crate::naming::Named;
use crate::transcript::{self, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "load",
    class: Class::Query,
    output: "session_loaded",
    examples: &["S=$(cp-session start --format text); cp-session load \"$S\""],
    dangerous: false,
};

/// Print the conversation
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: Named,
    /// Only the newest N turns
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Only these members, dotted names, separated by commas
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    fields: Vec<String>,
}

/// A conversation.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["messages"])))]
pub(crate) struct Loaded {
    /// The session.
    session_id: String,
    /// Who speaks in it.
    agent: String,
    /// How much of it goes to the model.
    mode: Mode,
    /// The turns, oldest first.
    messages: Vec<Turn>,
    /// How many there are here.
    count: usize,
    /// Whether there are older ones.
    has_more: bool,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
}

const MEMBERS: [&str; 7] = ["session_id", "agent", "mode", "messages", "count", "has_more", "_untrusted"];

impl Reply for Loaded {
    fn text(&self) -> String {
        let lines = self.messages.iter().map(|turn| format!("{}: {}", turn.role, words(turn)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// What was said, for people: calls and results by their names where there are no words.
pub(crate) fn words(turn: &Turn) -> String {
    let blocks = turn.content.blocks();
    let lines = blocks.iter().filter_map(|block| {
        let view = block.view().ok()?;
        Some(match (view.text, view.name) {
            (Some(text), _) => text.into_owned(),
            (None, Some(name)) => format!("[{} {}{}]", view.kind, name, view.input.map_or("", |input| input.get())),
            (None, None) => format!("[{}{}]", view.kind, view.content.map_or("", |content| content.get())),
        })
    });
    lines.collect::<Vec<_>>().join("\n")
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
    answer(&loaded, &args.fields, &MEMBERS, context)
}

/// Says that some lines of a session were passed over.
pub(crate) fn note_skipped(skipped: u64, context: &mut Context) {
    if skipped > 0 {
        let lines = if skipped == 1 { "1 line is" } else { &format!("{skipped} lines are") };
        let message = format!("{lines} damaged or not ours, and passed over: see cp-session check");
        context.out.notice("lines_skipped", Severity::Warning, message.clone());
        context.warn(&message);
    }
}
