//! `cp-session show` and `count`: print the state of a session, without its turns.

use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;

use crate::operand::SessionOperand;
use crate::transcript::{self, Fork, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "show",
    class: Class::Query,
    output: "session_shown",
    examples: &["S=$(cp-session start --format text); cp-session show \"$S\""],
    ..VerbDoc::EMPTY
};

/// The arguments of `show` and `count`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
}

/// The state of a session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// Its id.
    session_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The ledger that holds the turns.
    path: String,
    /// The directory of everything that belongs to it.
    directory: String,
    /// Its tier; null for a session outside home.
    tier: Option<String>,
    /// The agent of the session.
    agent: String,
    /// How much of it goes to the model.
    mode: Mode,
    /// The directory it was started in.
    cwd: Option<String>,
    /// The session that it was forked from.
    forked_from: Option<Fork>,
    /// When it was started.
    started_at: String,
    /// When its newest entry was stored.
    updated_at: String,
    /// True if it has ended.
    ended: bool,
    /// How many turns it has.
    turns: u64,
    /// The place of its newest entry.
    last_seq: u64,
    /// The size of its ledger.
    bytes: u64,
}

impl Reply for Shown {
    fn text(&self) -> String {
        let state = if self.ended { "ended" } else { "open" };
        format!("{}  {}  {}  {} turns  {state}", self.session_id, self.updated_at, self.agent, self.turns)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let name = context.home.session_names().remove(&session.id);
    context.out.answer(&shown(&session, name)?)
}

fn shown(session: &Session, name: Option<String>) -> Result<Shown> {
    let file = session.file();
    let bytes = file.metadata().map_err(|e| Error::io("reading the session", e).in_file(&file))?.len();
    let (start, started_at) = transcript::start_of(&file)?;
    let (last_seq, updated_at) = transcript::tip(&file)?.unwrap_or_default();
    Ok(Shown {
        session_id: session.id.clone(),
        name,
        path: file.display().to_string(),
        directory: session.directory.display().to_string(),
        tier: session.tier().map(str::to_owned),
        agent: start.agent,
        mode: start.mode,
        cwd: start.cwd,
        forked_from: start.forked_from,
        started_at,
        updated_at,
        ended: transcript::ended(&file)?.is_some(),
        turns: transcript::count(&file)?,
        last_seq,
        bytes,
    })
}

/// The entry of this verb in `reference`.
pub(crate) const COUNT_DOC: VerbDoc = VerbDoc {
    path: "count",
    class: Class::Query,
    output: "session_counted",
    examples: &["S=$(cp-session start --format text); cp-session count \"$S\""],
    ..VerbDoc::EMPTY
};

/// How long a conversation is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counted {
    /// The session.
    session_id: String,
    /// How many turns it has: a question and its answer are two.
    count: u64,
}

impl Reply for Counted {
    fn text(&self) -> String {
        self.count.to_string()
    }
}

pub(crate) fn count(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let counted = Counted { count: transcript::count(&session.file())?, session_id: session.id };
    context.out.answer(&counted)
}
