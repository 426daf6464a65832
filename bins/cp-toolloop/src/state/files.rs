//! The files of a run: its ledger, and beside it its exact state until it is over, or its recording.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::Context;
use cp_common::home::TIERS;

/// A run and its files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunFiles {
    pub(crate) run: String,
    pub(crate) ledger: PathBuf,
}

impl RunFiles {
    /// The files of a run that is started in this context.
    pub(crate) fn of(run: &str, context: &Context) -> Self {
        let ledger = context.home.runs(&context.tier()).join(format!("{run}.jsonl"));
        Self { run: run.to_owned(), ledger }
    }

    /// Every run of this home, including a run that was killed before it created its ledger.
    pub(crate) fn all(context: &Context) -> Vec<Self> {
        let listings = TIERS.iter().filter_map(|tier| std::fs::read_dir(context.home.runs(tier)).ok());
        let of_file = |file: PathBuf| {
            let name = file.file_name()?.to_str()?;
            let run = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".sealed"))?.to_owned();
            run.starts_with("RUN-").then(|| Self { run, ledger: file.with_extension("jsonl") })
        };
        let all: BTreeSet<Self> = listings.flatten().filter_map(|entry| of_file(entry.ok()?.path())).collect();
        all.into_iter().collect()
    }

    /// The file of its exact state until the run ends.
    pub(crate) fn state(&self) -> PathBuf {
        self.ledger.with_extension("sealed")
    }

    /// The file of its steps after the run has ended, if it is recorded.
    pub(crate) fn recording(&self) -> PathBuf {
        self.ledger.with_extension("recorded")
    }
}
