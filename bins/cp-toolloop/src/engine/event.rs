//! The item records of a run: its start, and the start of each turn.

use std::path::Path;

use cp_common::output::Format;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Context, Result};
use serde::Serialize;

use crate::state::plan::Plan;
use crate::state::step::Compacted;

/// A point in a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Event {
    /// `run_start`, `run_resumed`, `iteration` or `context_compacted`.
    #[serde(rename = "event")]
    what: &'static str,
    /// The run.
    run_id: String,
    /// Which turn of the model begins, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u64>,
    /// The run's ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<String>,
    /// How many of the records that follow may have been printed before the run stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<usize>,
    /// How the conversation was shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    compacted: Option<Compacted>,
    /// A hash of what is asked, and of whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
}

impl Event {
    /// The start of a run.
    pub(crate) fn start(plan: &Plan, ledger: &Path) -> Self {
        Self {
            what: "run_start",
            run_id: plan.run.clone(),
            iteration: None,
            ledger: Some(ledger.display().to_string()),
            replayed: None,
            compacted: None,
            request: Some(plan.request()),
            tools: Some(plan.tools.iter().map(|tool| tool.name.clone()).collect()),
        }
    }

    /// The resume of a run; `replayed` of the following records may have been printed before.
    pub(crate) fn resumed(plan: &Plan, ledger: &Path, replayed: usize) -> Self {
        Self { what: "run_resumed", replayed: Some(replayed), ..Self::start(plan, ledger) }
    }

    /// A turn of the model begins.
    pub(crate) fn iteration(run: &str, number: u64) -> Self {
        Self {
            what: "iteration",
            run_id: run.to_owned(),
            iteration: Some(number),
            ledger: None,
            replayed: None,
            compacted: None,
            request: None,
            tools: None,
        }
    }

    /// The conversation was shortened before this turn.
    pub(crate) fn compacted(run: &str, number: u64, compacted: Compacted) -> Self {
        Self { what: "context_compacted", compacted: Some(compacted), ..Self::iteration(run, number) }
    }

    /// Prints the record and flushes the output.
    pub(crate) fn show(&self, context: &mut Context) -> Result<()> {
        context.progress(&self.text());
        if context.out.format() != Format::Json {
            return Ok(());
        }
        context.out.record(Kind::Item, self)?;
        context.out.flush()
    }
}

impl Reply for Event {
    fn text(&self) -> String {
        match self.iteration.filter(|_| self.compacted.is_none()) {
            Some(number) => format!("· asking the model, turn {number}"),
            None => format!("· {} {}", self.what.replace('_', " "), self.run_id),
        }
    }
}
