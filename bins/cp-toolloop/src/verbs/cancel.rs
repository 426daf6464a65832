//! `cp-toolloop cancel`: end a run permanently, after stopping its process.

use std::time::{Duration, Instant};

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result, signals};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::state::plan::RunFiles;
use crate::state::run::Run;
use crate::state::step::Step;
use crate::state::step_log;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "cancel",
    class: Class::Governed,
    output: "cancelled",
    examples: &[
        // A run that stops at its limit, and is cancelled.
        r#"printf '{"tool_calls":[{"name":"nope"}]}\n' >script; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello; cp-toolloop cancel RUN-"#,
    ],
    events: &["run_end"],
    ..VerbDoc::EMPTY
};

/// How long a running process has to stop.
const GRACE: Duration = Duration::from_secs(5);

/// End a run permanently
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, its name, or the path of its ledger
    #[arg(id = "named", value_name = "RUN")]
    run: String,
}

/// The result of the verb.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cancelled {
    /// The run.
    run_id: String,
    /// Always cancelled.
    status: &'static str,
    /// True if a process was stopped.
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
    let cancelled = end(&RunFiles::find(&args.run, context)?, context)?;
    context.out.answer(&cancelled)
}

/// Ends a run.
fn end(files: &RunFiles, context: &Context) -> Result<Cancelled> {
    let was_running = step_log::is_running(&files.state());
    if was_running {
        stop(files)?;
    }
    let mut run = Run::open(files, context)?;
    run.end("cancelled", None)?;
    let ledger = files.ledger.display().to_string();
    Ok(Cancelled { run_id: run.plan.run, status: "cancelled", was_running, ledger })
}

/// Stops the process of a run, and waits until it has released the run.
fn stop(files: &RunFiles) -> Result<()> {
    let mut steps = step_log::peek(files)?.into_iter().rev();
    let owner = steps.find_map(|step| match step {
        Step::Plan(_, owner) | Step::Resumed(owner, _) => Some(owner),
        _ => None,
    });
    let unnamed = || Error::new(Code::Integrity, "the run's state does not name its process").in_file(&files.state());
    let owner = owner.ok_or_else(unnamed)?;
    if owner.is_alive()
        && let Some(pid) = i32::try_from(owner.pid).ok().and_then(Pid::from_raw)
    {
        kill_process(pid, Signal::TERM).map_err(|e| Error::io("stopping the run", e))?;
    }
    let asked = Instant::now();
    while step_log::is_running(&files.state()) {
        if asked.elapsed() > GRACE {
            return Err(Error::new(Code::Timeout, "the run did not stop in time").with("pid", owner.pid));
        }
        signals::check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
