//! `cp-session list`: the sessions of home, the last written first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use serde::Serialize;

use crate::transcript::{self, Mode};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "list",
    class: Class::Query,
    output: "session_page",
    examples: &["cp-session list --limit 10"],
    sort: Some("the time of the last write, newest first; then session_id"),
    ..VerbDoc::EMPTY
};

/// List the sessions, the last written first
#[derive(clap::Args)]
pub(crate) struct Args {
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
    /// Its tier.
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
        format!("{}  {}  {}  {state}{name}", self.session_id, self.updated_at, self.agent)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-session list", &(&args.agent, args.open), &args.query)?;
    let names = context.home.session_names();
    let mut sessions: Vec<_> =
        context.home.all_sessions()?.into_iter().map(|session| (key_of(&session), session)).collect();
    sessions.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut broken = 0_u64;
    // Only the sessions of this page are read.
    let found = sessions.into_iter().filter(|(key, _)| !pages.is_passed(key)).filter_map(|(key, session)| {
        let listed = listed(&session, &names).inspect_err(|_| broken += 1).ok()?;
        matches(&listed, args).then_some((key, listed))
    });
    let page = pages.page(found)?;
    if broken > 0 {
        let directories = if broken == 1 { "1 directory" } else { &format!("{broken} directories") };
        context.warn(&format!("skipped {directories} without a readable session"));
    }
    context.out.answer(&page)
}

/// The time of the last write in nanoseconds, the newest first, and the id and tier.
type Key = (Reverse<i64>, String, Option<String>);

fn key_of(session: &Session) -> Key {
    let written = session.file().metadata().map_or(0, |file| file.mtime() * 1_000_000_000 + file.mtime_nsec());
    (Reverse(written), session.id.clone(), session.tier().map(str::to_owned))
}

fn matches(listed: &Listed, args: &Args) -> bool {
    args.agent.as_ref().is_none_or(|agent| *agent == listed.agent) && !(args.open && listed.ended)
}

fn listed(session: &Session, names: &BTreeMap<String, String>) -> Result<Listed> {
    let overview = transcript::overview(&session.file())?;
    Ok(Listed {
        session_id: session.id.clone(),
        name: names.get(&session.id).cloned(),
        tier: session.tier().map(str::to_owned),
        agent: overview.start.agent,
        mode: overview.start.mode,
        started_at: overview.started_at,
        updated_at: overview.updated_at,
        ended: overview.ended,
        bytes: overview.bytes,
    })
}
