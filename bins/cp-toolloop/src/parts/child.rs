//! A run in a process of its own: `cp-toolloop resume`, for a row.

use std::ffi::OsString;
use std::time::Duration;

use cp_common::coprocess::{Child, ChildOptions, cmd, find};
use cp_common::wire::record::Record;
use cp_common::{Context, Error, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value;

use crate::state::plan::{Limits, Plan};
use crate::state::tally::Tally;

/// A run is stopped by SIGTERM, and stops its own coprocesses first.
const OPTIONS: ChildOptions =
    ChildOptions { after_input: Duration::ZERO, after_term: Duration::from_secs(5), ..ChildOptions::DEFAULT };

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tally: Tally,
    /// The error that stopped it.
    pub(crate) failure: Option<Error>,
}

/// Starts this program with these arguments, passes each record but the last to `pass`, and returns its end. The
/// standard error is discarded, because the records have the errors.
pub(crate) fn run(arguments: &[OsString], pass: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Ended> {
    let mut child = Child::start("cp-toolloop", &cmd(find("cp-toolloop")?, arguments).stderr_null(), OPTIONS)?;
    child.close_input();
    let mut failed = None;
    loop {
        let Some(line) = child.next_line()? else { return Err(child.gone()) };
        let record = Record::parse(line).map_err(Error::fatal)?;
        if record.closed {
            return Ok(closing(&record, failed));
        }
        pass(line)?;
        if !record.ok {
            failed = Some(record.failure());
        }
    }
}

/// The end in a closing record. An earlier record may have the error of the run.
fn closing(record: &Record<'_>, failed: Option<Error>) -> Ended {
    let failure = (!record.ok).then(|| record.failure());
    // The counts are in its data, or in the details of its error.
    let tally: Tally = match &failure {
        None => record.read().unwrap_or_default(),
        Some(failure) => serde_json::from_value(Value::Object(failure.details())).unwrap_or_default(),
    };
    Ended { tally, failure: failure.map(|failure| failed.unwrap_or(failure)) }
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
    let Limits { max_iterations, tokens, usd, deadline, .. } = plan.limits;
    let mut limits = vec![format!("--max-iterations={max_iterations}")];
    limits.extend(tokens.map(|tokens| format!("--budget-tokens={tokens}")));
    limits.extend(usd.map(|usd| format!("--budget-usd={usd}")));
    limits.extend(deadline.map(|seconds| format!("--deadline={seconds}")));
    arguments.extend(limits.into_iter().map(OsString::from));
    arguments
}
