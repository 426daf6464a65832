//! `cp-session start`: create a session: the directory, its ledgers, and the first entries. And `fork`, which creates one
//! that begins with the turns of another.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use cp_common::context::options::AppendOptions;
use cp_common::home::{DEFAULT_AGENT, Home, is_id, lock_file, make_directory, write_whole};
use cp_common::keys::{hex, random};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{CwdName, Receipt, Turn, raw};
use cp_common::{Code, Context, Error, Result, clock};
use cp_ledger::sessions::{self, HostNote, Session};
use cp_ledger::{Entry, Ledger, Sync};
use serde::de::IgnoredAny;

use crate::delete::finish_earlier;
use crate::lifecycle::{Changed, set_name};
use crate::round::turn_entry;
use crate::session::{self, SessionOperand};
use crate::transcript::{self, External, Fork, Mode, START, Start};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-session start", "cp-session start --mode isolated"],
    events: &["session_start"],
    ..VerbDoc::new("start", Class::Append, "session_changed")
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

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    finish_earlier(context);
    let agent = context.agent(args.agent.as_deref());
    check_agent(&agent, &context.home)?;
    let tier = context.tier(args.tier.as_deref())?;
    if let Some(name) = &args.name {
        sessions::check_name(name, None, &context.home)?;
    }
    let pair = args.host.clone().zip(args.host_session.clone());
    let external = pair.map(|(host, id)| External { host, id });
    let start = Start { agent, tier, mode: args.mode, cwd: working_directory(), external, ..Start::default() };
    let preview = || Ok(Changed::started(None, start.clone(), None));
    let request = ("start", &start, &args.name);
    idempotency::answer(&args.append, &request, context, preview, |context| {
        let (session, receipt) = match &start.external {
            Some(external) => hosted(external, &start, context)?,
            None => create(&start, context, |_| Vec::new()).map(|(session, receipt)| (session, Some(receipt)))?,
        };
        if let Some(name) = &args.name {
            set_name(&session, name, context)?;
        }
        Ok(Changed::started(Some(&session), start.clone(), receipt))
    })
}

/// The session of a conversation of another program, made for the first that asks: of several at once the others find
/// it.
fn hosted(external: &External, start: &Start, context: &Context) -> Result<(Session, Option<Receipt>)> {
    let place = HostNote::file(&external.host, &external.id, &context.home);
    let _lock = lock_file(&place.with_extension("lock"))?;
    if let Some((session, _)) = Session::of_host(&external.host, &external.id, &context.home) {
        return Ok((session, None));
    }
    let (session, receipt) = create(start, context, |_| Vec::new())?;
    let note = HostNote { session: session.id.clone(), base: context.base()? };
    write_whole(&place, raw(&note)?.get().as_bytes())?;
    Ok((session, Some(receipt)))
}

/// Refuses an agent that is neither built in, nor registered, nor has a directory.
fn check_agent(agent: &str, home: &Home) -> Result<()> {
    if agent == DEFAULT_AGENT || (is_id(agent) && home.path("agents").join(agent).is_dir()) {
        return Ok(());
    }
    let registered = home.agents::<IgnoredAny>()?;
    if registered.contains_key(agent) { Ok(()) } else { Err(home.unknown_agent(agent, registered.keys())) }
}

/// The entry of this verb in `reference`.
pub(crate) const FORK_DOC: VerbDoc =
    VerbDoc { path: "fork", examples: &["S=$(cp-session start --format text); cp-session fork \"$S\" --at 0"], ..DOC };

/// Start a session with the first turns of another
#[derive(clap::Args)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    session: SessionOperand,
    /// How many turns to take over, as count counts them (default: all)
    #[arg(long, value_name = "TURN")]
    at: Option<u64>,
    #[command(flatten)]
    append: AppendOptions,
}

pub(crate) fn fork(args: &ForkArgs, context: &mut Context) -> Result<()> {
    let origin = args.session.find(context)?;
    let request = ("fork", session::place(&origin), args.at, working_directory());
    let plan = || {
        let turns = first_turns(&origin, args.at)?;
        let forked_from = Some(Fork { session_id: origin.id.clone(), turns: turns.len() as u64 });
        let (start, _) = transcript::start_of(&origin.file())?;
        Ok::<_, Error>((Start { forked_from, cwd: working_directory(), ..start }, turns))
    };
    let preview = || Ok(Changed::started(None, plan()?.0, None));
    idempotency::answer(&args.append, &request, context, preview, |context| {
        let (start, turns) = plan()?;
        let (session, receipt) = create(&start, context, |id| turns.iter().map(|turn| turn_entry(id, turn)).collect())?;
        Ok(Changed::started(Some(&session), start, Some(receipt)))
    })
}

fn first_turns(origin: &Session, at: Option<u64>) -> Result<Vec<Turn>> {
    let (file, mut turns) = (origin.file(), Vec::new());
    transcript::each_turn(&file, &mut |line| {
        if at.is_none_or(|at| (turns.len() as u64) < at) {
            turns.push(transcript::turn_of(line, &file)?);
        }
        Ok(())
    })?;
    match at {
        Some(at) if (turns.len() as u64) < at => {
            Err(Error::validation(format!("--at {at}: the session has only {} turns", turns.len()))
                .with("turns", turns.len())
                .hint("cp-session count prints how many turns there are"))
        }
        _ => Ok(turns),
    }
}

/// How many ids are tried. One that is taken is rare, and two in a row mean that something else is wrong.
const ATTEMPTS: u32 = 8;

/// Creates a session with its three ledgers and its first entry; `more` gives those that follow, in the same write.
/// The ledgers of the programs that work in a session.
const LEDGERS: [&str; 2] = ["ledger/exec.jsonl", "ledger/evidence.jsonl"];

fn create(start: &Start, context: &Context, more: impl FnOnce(&str) -> Vec<Entry>) -> Result<(Session, Receipt)> {
    let session = create_directory(&start.tier, context)?;
    let receipt = begin(&session, start, more).inspect_err(|_| remove_empty(&session))?;
    Ok((session, receipt))
}

/// Begins the ledgers of a session.
fn begin(session: &Session, start: &Start, more: impl FnOnce(&str) -> Vec<Entry>) -> Result<Receipt> {
    for ledger in LEDGERS {
        Ledger::open(&session.directory.join(ledger), Sync::Batch)?;
    }
    let mut ledger = Ledger::open(&session.file(), Sync::Line)?;
    let mut entries = vec![Entry::new(START).agent(&start.agent).session(&session.id).data(start)];
    entries.extend(more(&session.id));
    let receipt = ledger.append_all(entries)?.into_iter().next();
    receipt.ok_or_else(|| Error::new(Code::Unknown, "the start was not recorded"))
}

/// Removes the directory of a session that was not started, unless a ledger in it has lines, which may be known to the
/// ledger of the home.
fn remove_empty(session: &Session) {
    for file in LEDGERS.iter().map(|ledger| session.directory.join(ledger)).chain([session.file()]) {
        if file.metadata().is_ok_and(|meta| meta.len() == 0) {
            let _ = std::fs::remove_file(file);
        }
    }
    let _ = std::fs::remove_dir(session.directory.join("ledger"));
    let _ = std::fs::remove_dir(&session.directory);
}

/// The directory that a new session is started in, for its first entry.
fn working_directory() -> Option<CwdName> {
    std::env::current_dir().ok().map(|directory| directory.as_path().into())
}

fn create_directory(tier: &str, context: &Context) -> Result<Session> {
    let sessions = context.home.sessions(tier);
    make_directory(&sessions)?;
    for _ in 0..ATTEMPTS {
        let id = new_id()?;
        let directory = sessions.join(&id);
        // Not `make_directory`: of two programs with the same id, one must fail.
        match make_private(&directory).and_then(|()| make_private(&directory.join("ledger"))) {
            Ok(()) => return Ok(Session { id, directory }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("creating the session", e).in_file(&directory).fatal()),
        }
    }
    Err(Error::new(Code::Conflict, "no free session id was found").hint("try again"))
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}

/// `SES-`, the day, and eight hex digits.
fn new_id() -> Result<String> {
    Ok(format!("SES-{}-{}", clock::today(), hex(&random::<4>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_id_has_the_documented_form() {
        let id = new_id().unwrap();
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("SES", 8, 8));
        assert!(parts[2].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
