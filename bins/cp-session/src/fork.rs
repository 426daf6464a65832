//! `cp-session fork`: a new session that begins with the turns of another.

use cp_common::context::options::AppendOptions;
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Turn;
use cp_common::{Context, Error, Result};
use cp_ledger::sessions::Session;

use crate::lifecycle::Changed;
use crate::round::turn_entry;
use crate::session::{self, SessionOperand};
use crate::start::{create, working_directory};
use crate::transcript::{self, Fork, MESSAGE, REPAIR, Start};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "fork",
    class: Class::Append,
    output: "session_changed",
    examples: &["S=$(cp-session start --format text); cp-session fork \"$S\" --at 0"],
    events: &["session_start"],
    ..VerbDoc::EMPTY
};

/// Start a session with the first turns of another
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    /// How many turns to take over, as count counts them (default: all)
    #[arg(long, value_name = "TURN")]
    at: Option<u64>,
    #[command(flatten)]
    append: AppendOptions,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let origin = args.session.find(context)?;
    let request = ("fork", session::place(&origin), args.at, working_directory());
    let plan = |context: &mut Context| {
        let turns = first_turns(&origin, args.at)?;
        if turns.last().is_some_and(calls_a_tool) {
            let message = "the fork ends with a tool call that has no result: cp-session check --repair adds one";
            context.out.notice("open_tool_call", Severity::Warning, message);
            context.warn(message);
        }
        let forked_from = Some(Fork { session_id: origin.id.clone(), turns: turns.len() as u64 });
        let (start, _) = transcript::start_of(&origin.file())?;
        Ok::<_, Error>((Start { forked_from, cwd: working_directory(), ..start }, turns))
    };
    if args.append.dry_run {
        let (start, _) = plan(context)?;
        return context.out.answer(&Changed::started(None, start, None));
    }
    let forked = idempotency::once(args.append.request_id.as_deref(), &request, context, |context| {
        let (start, turns) = plan(context)?;
        let (session, receipt) = create(&start, context, |id| turns.iter().map(|turn| turn_entry(id, turn)).collect())?;
        Ok(Changed::started(Some(&session), start, Some(receipt)))
    })?;
    context.out.answer(&forked)
}

fn first_turns(origin: &Session, at: Option<u64>) -> Result<Vec<Turn>> {
    let file = origin.file();
    let (mut turns, mut repaired) = (Vec::new(), Vec::new());
    transcript::each_entry(&file, &mut |line| {
        if line.is_event(REPAIR) {
            repaired.extend(transcript::repair_of(line, &file)?.inserts);
        } else if line.is_event(MESSAGE) && at.is_none_or(|at| (turns.len() as u64) < at) {
            turns.push((line.seq(), transcript::turn_of(line, &file)?));
        }
        Ok(())
    })?;
    if let Some(at) = at.filter(|at| (turns.len() as u64) < *at) {
        return Err(Error::validation(format!("--at {at}: the session has only {} turns", turns.len()))
            .with("turns", turns.len())
            .hint("cp-session count prints how many turns there are"));
    }
    // Turns that a repair inserted go where they belong.
    let followed = |(seq, turn): (u64, Turn)| {
        let inserted: Vec<Turn> =
            repaired.iter().filter(|insert| insert.after_seq == seq).map(|insert| insert.turn.clone()).collect();
        std::iter::once(turn).chain(inserted)
    };
    Ok(turns.into_iter().flat_map(followed).collect())
}

fn calls_a_tool(turn: &Turn) -> bool {
    turn.content.blocks().iter().any(|block| block.view().is_ok_and(|view| view.kind == "tool_use"))
}
