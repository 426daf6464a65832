//! `cp-session compact`: let a model summarise the older turns. The originals stay; the summary stands for them.

use cp_common::context::options::AppendOptions;
use cp_common::coprocess;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::record::{Kind, closed_line};
use cp_common::wire::{Message, Prompt};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};

use crate::lifecycle::Changed;
use crate::session::{self, SessionOperand};
use crate::transcript::{self, COMPACT, Stored};

/// System text of a request to summarise turns.
const SUMMARISE: &str = "Summarise the conversation for whoever continues it: the questions, the decisions, the findings \
(names, paths, numbers, exact words where they matter), and the open points. Leave out greetings. Add nothing.";

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        "export CP_SESSION=$(cp-session start --format text); for m in a b c; do cp-session append -- $m >&2; cp-session append --role assistant -- $m >&2; done; cp-session compact --keep 2 --backend stub",
    ],
    events: &[COMPACT],
    ..VerbDoc::new("compact", Class::Governed, "session_changed")
};

/// Let a model summarise the older turns, which stay on disk
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    /// How many of the newest turns stay as they are
    #[arg(long, value_name = "N", default_value_t = 4)]
    keep: usize,
    /// The model to ask
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// How to ask it, as cp-llm takes it
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let told = (args.keep, &args.model, &args.backend);
    let request = ("compact", session::place(&session), told);
    let preview = || {
        let (turns, _) = covered(&session, args.keep)?;
        Ok(Changed { turns: Some(turns.len() as u64), ..Changed::new(&session, COMPACT, None) })
    };
    idempotency::answer(&args.append, &request, context, preview, |context| {
        let (turns, through_seq) = covered(&session, args.keep)?;
        let summary = summarise(&turns, args, context)?;
        store(&session, &turns, through_seq, &summary)
    })
}

/// The turns to cover, and the number of the last entry of them.
fn covered(session: &Session, keep: usize) -> Result<(Vec<Stored>, u64)> {
    transcript::must_be_open(&session.file())?;
    let mut turns = transcript::newest(&session.file(), None)?.list;
    let (cut, through_seq) = cut_of(&turns, keep)?;
    turns.truncate(cut);
    Ok((turns, through_seq))
}

/// How many turns to cover, and the number of the last entry of them. The turns after it begin with a question.
fn cut_of(turns: &[Stored], keep: usize) -> Result<(usize, u64)> {
    let nothing = || {
        Error::validation(format!(
            "nothing to compact: the session has {} turns, and --keep {keep} retains them",
            turns.len()
        ))
        .with("turns", turns.len())
        .hint("give a lower --keep")
    };
    let mut cut = turns.len().saturating_sub(keep);
    while cut < turns.len() && cut > 0 && !turns[cut].turn.is_question() {
        cut -= 1;
    }
    let through = turns[..cut].iter().rev().find_map(|stored| stored.seq).ok_or_else(nothing)?;
    if cut < 2 { Err(nothing()) } else { Ok((cut, through)) }
}

fn summarise(turns: &[Stored], args: &Args, context: &Context) -> Result<Message> {
    let lines = turns.iter().map(|stored| format!("{}: {}", stored.turn.role, stored.turn.plain_text()));
    let text = lines.collect::<Vec<_>>().join("\n");
    let prompt = Prompt { system: Some(SUMMARISE.to_owned()), ..Prompt::of_text(&text) };
    let mut arguments = vec!["--input", "records", "--closed"];
    for (flag, value) in [("--backend", &args.backend), ("--model", &args.model)] {
        arguments.extend(value.iter().flat_map(|value| [flag, value]));
    }
    let question = closed_line(Kind::Prompt.name(), &prompt)?;
    let summary: Message = coprocess::ask("cp-llm", &arguments, &question, context)?;
    if summary.content.text().trim().is_empty() {
        return Err(Error::new(Code::Server, "the model returned an empty summary"));
    }
    Ok(summary)
}

fn store(session: &Session, covered: &[Stored], through_seq: u64, summary: &Message) -> Result<Changed> {
    let turns = covered.len() as u64;
    let from_seq = covered.iter().find_map(|stored| stored.seq);
    let text = summary.content.text();
    let entry = Entry::new(COMPACT)
        .session(&session.id)
        .role("assistant")
        .content(&text)
        .with("from_seq", &from_seq)
        .with("through_seq", &through_seq)
        .with("turns", &turns)
        .with("model", &summary.model)
        .with("usage", &summary.usage);
    let receipt = Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)?;
    let untrusted = vec!["/summary".to_owned()];
    let changed = Changed::new(session, COMPACT, Some(receipt));
    Ok(Changed { turns: Some(turns), summary: Some(text), untrusted, ..changed })
}
