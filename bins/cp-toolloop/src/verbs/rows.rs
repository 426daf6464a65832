//! `--rows` with parallel runs, each in its own process, and `--skip-done` with an earlier output.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::context::options::StreamOptions;
use cp_common::coprocess::{Child, ChildOptions, cmd, find};
use cp_common::output::Place;
use cp_common::stream::jobs::Jobs;
use cp_common::stream::{earlier, filter};
use cp_common::wire::record::{Kind, Record};
use cp_common::{Code, Context, Error, Result, signals};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::options::passed_on;
use crate::engine::print::{Event, play};
use crate::state::plan::{Plan, RunFiles};
use crate::state::step::{Owner, Step};
use crate::state::step_log::{self, StepLog};
use crate::state::tally::Total;

/// How long the processes have to stop and to report their end.
const STOP_TIME: Duration = Duration::from_secs(6);
/// The members that the closing record of a run adds to the details of its error.
const COUNTS: [&str; 8] =
    ["total", "succeeded", "failed", "skipped", "iterations", "tool_calls", "tool_errors", "usage"];

/// A run is stopped by SIGTERM, and stops its own coprocesses first.
const OPTIONS: ChildOptions =
    ChildOptions { after_input: Duration::ZERO, after_term: Duration::from_secs(5), ..ChildOptions::DEFAULT };

/// A run in the queue.
pub(super) struct Task {
    place: Place,
    files: RunFiles,
    /// The arguments of its process; `None` if it ended while no process waited for it.
    arguments: Option<Vec<OsString>>,
}

/// The active runs, with their outcomes.
pub(super) struct Rows {
    pub(super) jobs: Jobs<Task, (Task, Result<()>)>,
    options: StreamOptions,
    /// True if recordings are kept, because of `--record`.
    keeps: bool,
    /// Each process is stopped before this process exits.
    _effect: signals::Effect,
}

impl Rows {
    /// A queue with this number of parallel runs.
    pub(super) fn new(most: usize, keeps: bool, options: StreamOptions) -> Result<Self> {
        Ok(Self { jobs: Jobs::new(most, work)?, options, keeps, _effect: signals::effect() })
    }

    /// Starts the run of a row, or resumes its earlier run.
    pub(super) fn give(&mut self, plan: &Plan, begun: Option<&str>, context: &mut Context) -> Result<()> {
        let earlier = begun.and_then(|run| RunFiles::find(run, context).ok());
        let files = earlier.clone().map_or_else(|| RunFiles::of(&plan.run, context), Ok)?;
        if earlier.is_none() {
            // The start is printed before the run has an effect, so that a resume finds the run.
            Event::start(plan, &files.ledger).show(context)?;
            StepLog::create(&files, &context.home, &Step::Plan(Box::new(plan.clone()), Owner::this()))?;
        } else if !files.state().exists() && !files.recording().exists() {
            let message = format!("the run of the row has ended, and its answer is not stored ({})", files.run);
            return Err(Error::new(Code::Conflict, message)
                .with("run_id", files.run.as_str())
                .hint("it was cancelled: without its lines in the earlier output the row is begun again"));
        }
        let arguments = files.state().exists().then(|| arguments(plan, &files.run, context));
        context.out.defer_item();
        self.jobs.give(Task { place: context.out.place, files, arguments })
    }

    /// Prints the next run if it has ended, or if `waits`, when it ends; false if there is none.
    pub(super) fn next(&mut self, waits: bool, total: &mut Total, context: &mut Context) -> Result<bool> {
        if waits {
            context.out.flush()?;
        }
        let ended = if waits { self.jobs.wait()? } else { self.jobs.take() };
        ended.map_or(Ok(false), |ended| self.settle(ended, total, context).map(|()| true))
    }

    /// Prints the active runs after an error of the stream: complete, or up to the stop by a signal.
    pub(super) fn remaining(&mut self, end: &Error, total: &mut Total, context: &mut Context) {
        self.jobs.take_back();
        let rest = self.jobs.drain(if signals::interrupted() { STOP_TIME } else { Duration::MAX });
        self.options = self.options.without_stop();
        // A reader that has exited gets no more output.
        for worked in rest.into_iter().filter(|_| !end.is_reader_gone()) {
            if self.settle(worked, total, context).is_err() {
                return;
            }
        }
    }

    fn settle(
        &self,
        (Task { place, files, .. }, outcome): (Task, Result<()>),
        total: &mut Total,
        context: &mut Context,
    ) -> Result<()> {
        let mut failure = outcome.err().map(|error| of_row(error.with("run_id", files.run.as_str())));
        if let Some(stopped) = failure.take_if(|failure| failure.code() == Code::Interrupted) {
            // A run that was stopped alone does not stop the others.
            let here = std::mem::replace(&mut context.out.place, place);
            show(&files, total, context)?;
            context.out.item_failed(stopped)?;
            context.out.place = here;
            return Ok(());
        }
        filter::settle(place, self.options, context, |context| {
            show(&files, total, context)?;
            failure.map_or(Ok(()), Err)?;
            context.out.flush()?;
            if !self.keeps {
                // The answer has been printed.
                let _ = std::fs::remove_file(files.recording());
            }
            Ok(())
        })
    }
}

/// Waits until the process of a run exits.
fn work(task: Task) -> (Task, Result<()>) {
    let outcome = task.arguments.as_ref().map_or(Ok(()), |arguments| resume(arguments));
    (task, outcome)
}

/// Starts this program with these arguments, and waits until the run ends. Its records are in its steps, and the
/// errors are in its last record, so that the standard error is discarded.
fn resume(arguments: &[OsString]) -> Result<()> {
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

/// The arguments that resume a run with the limits of this plan.
fn arguments(plan: &Plan, run: &str, context: &mut Context) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["resume", run, "--row", "--format", "json"].map(OsString::from).into();
    // The run has its own ledger.
    arguments.extend(passed_on(context, |options| (options.ledger, options.run) = (None, None)));
    arguments.extend(plan.approver.iter().flat_map(|program| ["--approver", program]).map(OsString::from));
    arguments.extend(plan.limits.words().map(OsString::from));
    arguments
}

/// Prints what a run printed in its own process, from its steps.
fn show(files: &RunFiles, total: &mut Total, context: &mut Context) -> Result<()> {
    let recording = files.recording();
    let steps = if files.state().exists() {
        step_log::peek(files)?
    } else if recording.exists() {
        step_log::recorded(&recording, &context.home)?
    } else {
        return Ok(());
    };
    let from = steps.iter().rposition(|step| matches!(step, Step::Resumed(..))).unwrap_or_default();
    total.add(&files.run, &play(steps, from, context)?.tally);
    Ok(())
}

/// The failure of a row, which does not stop other rows.
pub(super) fn of_row(error: Error) -> Error {
    if error.is_reader_gone() {
        return error;
    }
    let mut value = error.to_value();
    if let Some(Value::Object(details)) = value.get_mut("details") {
        details.retain(|name, _| !COUNTS.contains(&name.as_str()));
    }
    Error::from_value(&value)
}

/// The rows of an earlier output.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// The rows by index.
    rows: HashMap<u64, EarlierRow>,
}

/// A row of an earlier output.
#[derive(Default)]
pub(super) struct EarlierRow {
    /// The run of the row.
    pub(super) run: String,
    /// The hash of the request.
    request: String,
    /// True if the output has its last message.
    pub(super) is_answered: bool,
}

#[derive(Deserialize)]
struct Data {
    index: u64,
    run_id: Option<String>,
    request: Option<String>,
    tool_calls: Option<Vec<IgnoredAny>>,
}

impl EarlierRun {
    /// Reads the earlier output, and locks it.
    pub(super) fn read(file: &Path, context: &Context) -> Result<Self> {
        cp_policy::check_writable(&context.home, file)?;
        let mut rows = HashMap::<u64, EarlierRow>::new();
        earlier::read(file, context.out.format(), false, |record| {
            let Ok(data) = record.read::<Data>() else { return };
            let row = rows.entry(data.index).or_default();
            match (record.kind, data) {
                (Some(Kind::Item), Data { run_id: Some(run), request: Some(request), .. }) if row.run != run => {
                    *row = EarlierRow { run, request, is_answered: false };
                }
                (Some(Kind::Message), data) => row.is_answered |= data.tool_calls.is_some_and(|calls| calls.is_empty()),
                _ => {}
            }
        })?;
        Ok(Self { file: file.to_owned(), rows })
    }

    /// The earlier row with this index. A row with another request is a conflict.
    pub(super) fn at(&self, index: u64, request: &str) -> Result<Option<&EarlierRow>> {
        match self.rows.get(&index) {
            Some(row) if row.request != request => {
                let message = format!(
                    "the earlier output is of another row with index {index}, or of other tools or another model"
                );
                Err(Error::new(Code::Conflict, message)
                    .in_file(&self.file)
                    .with("index", index)
                    .hint("give the rows and the options that it was made with, or begin another output")
                    .fatal())
            }
            row => Ok(row),
        }
    }
}
