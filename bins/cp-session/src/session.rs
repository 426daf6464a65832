//! The operand that names a session, and the verbs that print which sessions there are and their state: `list`, `show`
//! and `count`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use cp_common::clock::in_seconds;
use cp_common::context::options::{Pages, QueryOptions};
use cp_common::home::resolved;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{CwdName, DirectoryName, PathName, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::sessions::{self, Session};
use serde::Serialize;

use crate::transcript::{self, Fork, Mode};

/// The entry of this verb in `reference`.
pub(crate) const LIST_DOC: VerbDoc = VerbDoc {
    examples: &["cp-session list --limit 10"],
    sort: Some("the time of the last write, newest first; then session_id"),
    ..VerbDoc::new("list", Class::Query, "session_page")
};

/// List the sessions, the last written first
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Only those of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Only those that have not ended
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    query: QueryOptions,
}

/// A session in the list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Listed {
    /// Its id.
    session_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its tier; null for a session outside home.
    tier: Option<String>,
    /// The agent of the session.
    agent: String,
    /// How much of it goes to the model.
    mode: Mode,
    /// When it was started.
    started_at: String,
    /// When its newest entry was stored.
    updated_at: String,
    /// True if it has ended.
    ended: bool,
    /// The size of its ledger.
    bytes: u64,
}

impl Reply for Listed {
    fn text(&self) -> String {
        let state = if self.ended { "ended" } else { "open" };
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("  {name}"));
        format!("{}  {}  {}  {state}{name}", self.session_id, in_seconds(&self.updated_at), self.agent)
    }
}

pub(crate) fn list(args: &ListArgs, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-session list", &(&args.agent, args.open), &args.query)?;
    let names = sessions::named(&context.home).collect();
    let mut sessions: Vec<_> =
        Session::all(&context.home)?.into_iter().map(|session| (key_of(&session), session)).collect();
    sessions.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut broken = Vec::new();
    // Only the sessions of this page are read.
    let found = sessions.into_iter().filter(|(key, _)| !pages.is_passed(key)).filter_map(|(key, session)| {
        let listed = listed(&session, &names).inspect_err(|_| broken.push(session.directory.clone())).ok()?;
        let is_meant = args.agent.as_ref().is_none_or(|agent| *agent == listed.agent) && !(args.open && listed.ended);
        is_meant.then_some((key, listed))
    });
    let page = pages.page(found)?;
    warn_skipped(&broken, context);
    context.out.answer(&page)
}

/// Says which sessions were left out because they cannot be read.
pub(crate) fn warn_skipped(broken: &[PathBuf], context: &mut Context) {
    if let [first, more @ ..] = broken {
        let others = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        context.warn(&format!("skipped {}{others}: no readable session", first.display()));
    }
}

/// The time of the last write in nanoseconds, the newest first, and the id and tier.
type Key = (Reverse<i64>, String, Option<String>);

fn key_of(session: &Session) -> Key {
    let written = session.file().metadata().map_or(0, |file| file.mtime() * 1_000_000_000 + file.mtime_nsec());
    (Reverse(written), session.id.clone(), session.tier().map(str::to_owned))
}

fn listed(session: &Session, names: &BTreeMap<String, String>) -> Result<Listed> {
    let file = session.file();
    let bytes = file.metadata().map_err(|e| Error::io("reading the session", e).in_file(&file))?.len();
    let (start, started_at) = transcript::start_of(&file)?;
    let (_, updated_at) = transcript::tip(&file)?.unwrap_or_default();
    Ok(Listed {
        session_id: session.id.clone(),
        name: names.get(&session.id).cloned(),
        tier: session.tier().map(str::to_owned),
        agent: start.agent,
        mode: start.mode,
        started_at,
        updated_at,
        ended: transcript::ended(&file)?.is_some(),
        bytes,
    })
}

/// The entry of this verb in `reference`.
pub(crate) const SHOW_DOC: VerbDoc = VerbDoc {
    examples: &["S=$(cp-session start --format text); cp-session show \"$S\""],
    ..VerbDoc::new("show", Class::Query, "session_shown")
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
    #[serde(flatten)]
    listed: Listed,
    #[serde(flatten)]
    path: PathName,
    #[serde(flatten)]
    directory: DirectoryName,
    #[serde(flatten)]
    cwd: Option<CwdName>,
    /// The session that it was forked from.
    forked_from: Option<Fork>,
    /// How many turns it has.
    turns: u64,
    /// The place of its newest entry.
    last_seq: u64,
}

impl Reply for Shown {
    fn text(&self) -> String {
        format!("{}  {} turns", self.listed.text(), self.turns)
    }
}

pub(crate) fn show(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let file = session.file();
    let (start, _) = transcript::start_of(&file)?;
    let (last_seq, _) = transcript::tip(&file)?.unwrap_or_default();
    context.out.answer(&Shown {
        listed: listed(&session, &sessions::named(&context.home).collect())?,
        path: file.as_path().into(),
        directory: session.directory.as_path().into(),
        cwd: start.cwd,
        forked_from: start.forked_from,
        turns: transcript::count(&file)?,
        last_seq,
    })
}

/// The entry of this verb in `reference`.
pub(crate) const COUNT_DOC: VerbDoc = VerbDoc {
    examples: &["S=$(cp-session start --format text); cp-session count \"$S\""],
    ..VerbDoc::new("count", Class::Query, "session_counted")
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

/// The operand that names a session.
#[derive(clap::Args)]
pub(crate) struct SessionOperand {
    /// The session: an id, a unique prefix of one, a name, or a path
    #[arg(value_name = "SESSION")]
    named: Option<String>,
}

impl SessionOperand {
    /// The session: that of the operand, else of `--session`, else of `CP_SESSION`.
    pub(crate) fn find(&self, context: &Context) -> Result<Session> {
        find(self.named.as_deref(), context)
    }
}

/// The resolved directory of a session, to which tokens and request ids are bound.
pub(crate) fn place(session: &Session) -> PathBuf {
    resolved(&session.directory)
}

/// The session with this name, else that of `--session`, else that of `CP_SESSION`.
pub(crate) fn find(name: Option<&str>, context: &Context) -> Result<Session> {
    let name = name.map(str::to_owned).or_else(|| context.session()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| {
        Error::usage("no session specified")
            .hint("give --session S or set CP_SESSION: an id, a unique prefix of one, a name, or a path")
    })?;
    Session::find(&name, &context.home)
}
