//! `cp-session start`: create a session.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;

use cp_common::context::options::AppendOptions;
use cp_common::home::sessions::is_id;
use cp_common::home::{DEFAULT_AGENT, Home, HostNote, Session, TIERS, lock, make_directory, write_whole};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply, raw};
use cp_common::{Context, Error, Result};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::creation::{create, working_directory};
use crate::rename::named;
use crate::transcript::{External, Mode, Start};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "start",
    class: Class::Append,
    output: "session_started",
    examples: &["cp-session start", "cp-session start --mode isolated"],
    events: &["session_start"],
    ..VerbDoc::EMPTY
};

/// Start a session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent: an id in config/agents.json, or default
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The tier to create it in: ho1, ho2 or ho3
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// A name for it: letters, digits, - and _
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How much of it goes to the model
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// The program that leads the conversation; the session that it has already is the answer
    #[arg(long, value_name = "PROGRAM", requires = "host_session")]
    host: Option<String>,
    /// The id of the conversation there
    #[arg(long, value_name = "ID", requires = "host")]
    host_session: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// The session that was made.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Started {
    /// Its id. A dry run draws none.
    pub(crate) session_id: Option<String>,
    /// The ledger that holds it.
    pub(crate) path: Option<String>,
    /// Where it lies.
    pub(crate) tier: String,
    /// Who speaks in it.
    pub(crate) agent: String,
    /// How much of it goes to the model.
    pub(crate) mode: Mode,
    /// Where its start is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Receipt>,
}

impl Reply for Started {
    fn text(&self) -> String {
        self.session_id.clone().unwrap_or_else(|| "would start a session".to_owned())
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let agent = context.agent(args.agent.as_deref());
    check_agent(&agent, &context.home)?;
    let tier = context.config.text("tier", args.tier.as_deref()).unwrap_or_default();
    if !TIERS.contains(&tier.as_str()) {
        return Err(
            Error::usage(format!("`{tier}` is not a valid tier")).hint(format!("use one of {}", TIERS.join(", ")))
        );
    }
    if let Some(name) = &args.name {
        context.home.check_session_name(name, None)?;
    }
    let pair = args.host.clone().zip(args.host_session.clone());
    let external = pair.map(|(host, id)| External { host, id });
    let start = Start { agent, tier, mode: args.mode, cwd: working_directory(), external, ..Start::default() };
    let preview = || Ok(started(None, start.clone(), None));
    let asked = ("start", &start, &args.name);
    idempotency::answer(&args.append, &asked, context, preview, |context| {
        let (session, receipt) = match &start.external {
            Some(external) => hosted(external, &start, context)?,
            None => create(&start, context, |_| Vec::new()).map(|(session, receipt)| (session, Some(receipt)))?,
        };
        if let Some(name) = &args.name {
            named(&session, name, context)?;
        }
        Ok(started(Some(&session), start.clone(), receipt))
    })
}

/// The session of a conversation of another program, made for the first that asks: of several at once the others find it.
fn hosted(external: &External, start: &Start, context: &Context) -> Result<(Session, Option<Receipt>)> {
    let place = context.home.host_note_file(&external.host, &external.id);
    make_directory(place.parent().unwrap_or(context.home.root()))?;
    let lock_file = place.with_extension("lock");
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_file)
        .map_err(|e| Error::io("opening the lock", e).in_file(&lock_file))?;
    lock(&file)?;
    if let Some((session, _)) = context.home.host_session(&external.host, &external.id) {
        return Ok((session, None));
    }
    let (session, receipt) = create(start, context, |_| Vec::new())?;
    let note = HostNote { session: session.id.clone(), base: context.base()? };
    write_whole(&place, raw(&note)?.get().as_bytes())?;
    Ok((session, Some(receipt)))
}

fn started(session: Option<&Session>, start: Start, receipt: Option<Receipt>) -> Started {
    Started {
        session_id: session.map(|session| session.id.clone()),
        path: session.map(|session| session.file().display().to_string()),
        tier: start.tier,
        agent: start.agent,
        mode: start.mode,
        receipt,
    }
}

/// Refuses an agent that is neither built in, nor registered, nor has a directory.
fn check_agent(agent: &str, home: &Home) -> Result<()> {
    if agent == DEFAULT_AGENT || (is_id(agent) && home.path("agents").join(agent).is_dir()) {
        return Ok(());
    }
    let registered = home.agents::<IgnoredAny>()?;
    if registered.contains_key(agent) { Ok(()) } else { Err(home.unknown_agent(agent, registered.keys())) }
}
