//! A run in a process of its own: `cp-toolloop resume`, for a row.

use std::ffi::OsString;
use std::time::Duration;

use cp_common::coprocess::{Child, ChildOptions, cmd, find};
use cp_common::wire::record::Record;
use cp_common::{Context, Error, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::state::plan::Plan;

/// A run is stopped by SIGTERM, and stops its own coprocesses first.
const OPTIONS: ChildOptions =
    ChildOptions { after_input: Duration::ZERO, after_term: Duration::from_secs(5), ..ChildOptions::DEFAULT };

/// Starts this program with these arguments, and waits until the run ends. Its records are in its steps, and the
/// errors are in its last record, so that the standard error is discarded.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    let mut child = Child::start("cp-toolloop", &cmd(find("cp-toolloop")?, arguments).stderr_null(), OPTIONS)?;
    child.close_input();
    let mut failed = None;
    loop {
        let Some(line) = child.next_line()? else { return Err(child.gone()) };
        let record = Record::parse(line).map_err(Error::fatal)?;
        if !record.ok {
            failed.get_or_insert_with(|| record.failure());
        }
        if record.closed {
            return failed.map_or(Ok(()), Err);
        }
    }
}

/// Stops this run when its parent process exits; another run over the same rows resumes it.
pub(crate) fn stop_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| Error::io("watching the parent process", e).fatal())
}

/// The arguments that resume a run with the limits of this plan.
pub(crate) fn arguments(plan: &Plan, run: &str, context: &Context) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["resume".into(), run.into(), "--row".into()];
    let mut words = context.handed_on().into_iter();
    // The run has its own ledger.
    while let Some(word) = words.next() {
        if word == "--ledger" || word == "--run" {
            words.next();
        } else {
            arguments.push(word);
        }
    }
    arguments.extend(["--format", "json"].map(OsString::from));
    arguments.extend(plan.approver.iter().flat_map(|program| ["--approver", program]).map(OsString::from));
    arguments.extend(plan.limits.words().map(OsString::from));
    arguments
}
