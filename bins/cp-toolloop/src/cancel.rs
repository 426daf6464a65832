//! `cp-toolloop cancel`: end a run for good. One that is running is stopped first.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::book::Book;
use crate::conversation::Conversation;
use crate::journal::{self, Journal, Owner, Step};
use crate::place::{self, Place};

/// How long a running process has to leave in its own way.
const PATIENCE: Duration = Duration::from_secs(5);

/// End a run for good
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, or the path of its ledger
    #[arg(value_name = "RUN")]
    run: String,
}

/// What was done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cancelled {
    /// The run.
    run_id: String,
    /// Always cancelled.
    status: &'static str,
    /// Whether a process had to be stopped.
    was_running: bool,
    /// Its ledger.
    ledger: String,
}

impl Reply for Cancelled {
    fn text(&self) -> String {
        format!("{} is cancelled", self.run_id)
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let place = place::find(&args.run, context)?;
    let cancelled = end(&place, context)?;
    context.out.answer(&cancelled)
}

/// Ends a run, and with it those of its agents that are not over.
fn end(place: &Place, context: &Context) -> Result<Cancelled> {
    let sealed = journal::path_of(&place.ledger);
    let was_running = journal::is_running(&sealed);
    if was_running {
        stop(&sealed)?;
    }
    let (journal, steps) = Journal::open(&sealed, &context.home)?;
    let (plan, conversation) = Conversation::of_steps(steps)?;
    let agent = context.agent(plan.prompt.agent.as_deref());
    let mut book = Book::open(&place.ledger, &plan.run, &agent, plan.prompt.session_id.as_deref())?;
    book.end("cancelled", &conversation.tally)?;
    journal.close(None)?;
    for agent in conversation.calls.iter().filter(|call| call.result.is_none()).filter_map(|call| call.agent.as_ref()) {
        let Ok(place) = place::find(agent, context) else { continue };
        // One that is over has nothing left but its result.
        let _ = std::fs::remove_file(journal::recording_of(&place.ledger));
        if journal::path_of(&place.ledger).exists() {
            end(&place, context)?;
        }
    }
    let ledger = place.ledger.display().to_string();
    Ok(Cancelled { run_id: plan.run, status: "cancelled", was_running, ledger })
}

/// Stops the process that runs a run, and waits until it has let go.
fn stop(sealed: &Path) -> Result<()> {
    let owner = owner(sealed)?;
    if owner.is_alive()
        && let Some(pid) = i32::try_from(owner.pid).ok().and_then(Pid::from_raw)
    {
        kill_process(pid, Signal::TERM).map_err(|e| Error::io("stopping the run", e))?;
    }
    let asked = Instant::now();
    while journal::is_running(sealed) {
        if asked.elapsed() > PATIENCE {
            return Err(Error::new(Code::Timeout, "the run does not let go").with("pid", owner.pid));
        }
        cp_common::signals::check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Who took the run over last.
fn owner(sealed: &Path) -> Result<Owner> {
    let text = std::fs::read(sealed)?;
    let whole = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
    let steps = journal::steps_of(&text[..whole], None)?.0;
    let owner = steps.into_iter().rev().find_map(|step| if let Step::Owner(owner) = step { Some(owner) } else { None });
    owner.ok_or_else(|| Error::new(Code::Integrity, "the run's state does not say who runs it").in_file(sealed))
}
