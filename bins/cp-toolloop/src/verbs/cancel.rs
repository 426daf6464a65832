//! `cp-toolloop cancel`: end a run permanently, after stopping its process.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::state::plan::RunFiles;
use crate::state::run::Run;
use crate::state::step::Step;
use crate::state::step_log;
use crate::state::summary::summary;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        // A run that stops at its limit, and is cancelled.
        r#"printf '{"tool_calls":[{"name":"nope"}]}\n' >script; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello; cp-toolloop cancel RUN-"#,
    ],
    events: &["run_end"],
    ..VerbDoc::new("cancel", Class::Governed, "cancelled")
};

/// End a run permanently
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, its name, or the path of its ledger
    #[arg(id = "named", value_name = "RUN")]
    run: String,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files = RunFiles::find(&args.run, context)?;
    if step_log::is_running(&files.state()) {
        stop(&files)?;
    }
    // This waits until the process has released the run.
    Run::open(&files, context)?.end("cancelled", None)?;
    context.out.answer(&summary(&files)?)
}

/// Signals the process of a run.
fn stop(files: &RunFiles) -> Result<()> {
    let mut steps = step_log::peek(files)?.into_iter().rev();
    let owner = steps.find_map(|step| match step {
        Step::Plan(_, owner) | Step::Resumed(owner, _) => Some(owner),
        _ => None,
    });
    let alive = owner.filter(|owner| owner.is_alive());
    let Some(pid) = alive.and_then(|owner| Pid::from_raw(i32::try_from(owner.pid).ok()?)) else { return Ok(()) };
    kill_process(pid, Signal::TERM).map_err(|e| Error::io("stopping the run", e))
}
