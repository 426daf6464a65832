//! `cp-session start`: make a session.

use cp_common::context::options::AppendOptions;
use cp_common::home::{Home, Session, TIERS};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::spelling::nearest;
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::naming;
use crate::transcript::{Mode, START, Start};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "start",
    class: Class::Append,
    output: "session_started",
    examples: &["cp-session start", "cp-session start --mode isolated"],
    dangerous: false,
};

/// Start a session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Who speaks: an id in config/agents.json, or default
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Where it lies: ho1, ho2 or ho3
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// How much of it goes to the model
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
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
        return Err(Error::usage(format!("no tier `{tier}`")).hint(format!("there are {}", TIERS.join(", "))));
    }
    let start =
        Start { agent, tier, mode: args.mode, cwd: working_directory(), forked_from: None, imported_from: None };
    if args.append.dry_run {
        return context.out.answer(&started(None, start, None));
    }
    let asked = ("start", &start);
    let id = args.append.request_id.as_deref();
    let answer = idempotency::once(id, &asked, context, |context| {
        let (session, receipt) = make(&start, context, |_| Vec::new())?;
        Ok(started(Some(&session), start.clone(), Some(receipt)))
    })?;
    context.out.answer(&answer)
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

/// Makes the session with its three ledgers and its first entry; `more` gives those that follow, in the same write.
pub(crate) fn make(
    start: &Start,
    context: &Context,
    more: impl FnOnce(&str) -> Vec<Entry>,
) -> Result<(Session, Receipt)> {
    let session = naming::create(&start.tier, context)?;
    for name in ["exec.jsonl", "evidence.jsonl"] {
        Ledger::open(&session.directory.join("ledger").join(name), Sync::Batch)?;
    }
    let mut ledger = Ledger::open(&session.file(), Sync::Line)?;
    let mut entries = vec![Entry::new(START).agent(&start.agent).session(&session.id).data(start)];
    entries.extend(more(&session.id));
    let receipt = ledger.append_all(entries)?.into_iter().next();
    let receipt = receipt.ok_or_else(|| Error::new(cp_common::Code::Unknown, "the start was not recorded"))?;
    Ok((session, receipt))
}

pub(crate) fn working_directory() -> Option<String> {
    std::env::current_dir().ok().map(|directory| directory.display().to_string())
}

/// Refuses an agent that nobody made. `default` is built in.
fn check_agent(agent: &str, home: &Home) -> Result<()> {
    if agent == "default" || (cp_common::home::sessions::is_id(agent) && home.path("agents").join(agent).is_dir()) {
        return Ok(());
    }
    let file = home.agents_file();
    let registered: serde_json::Map<String, serde_json::Value> = match std::fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|e| Error::config(format!("not as it should be: {e}")).in_file(&file))?,
        Err(_) => serde_json::Map::new(),
    };
    if registered.contains_key(agent) {
        return Ok(());
    }
    let known = registered.keys().map(String::as_str).chain(["default"]);
    let error = Error::not_found(format!("no agent `{agent}`")).with("agent", agent);
    Err(match nearest(agent, known) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("name it in {}, or use default", file.display())),
    })
}
