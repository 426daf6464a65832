//! The files of a run: its ledger, and beside it its exact state until it is over, or its recording.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::home::TIERS;
use cp_common::{Context, Error, Result};

/// A run and where its files are.
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

    /// A run by its id, a unique beginning of one, or the path of its ledger.
    pub(crate) fn find(named: &str, context: &Context) -> Result<Self> {
        let missing =
            || Error::not_found(format!("no run `{named}`")).with("run", named).hint("`cp-toolloop runs` lists them");
        if named.contains('/') {
            let ledger = PathBuf::from(named);
            let run = ledger.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let files = Self { run, ledger };
            return if files.ledger.is_file() || files.state().is_file() { Ok(files) } else { Err(missing()) };
        }
        let mut found: Vec<Self> =
            Self::all(context).into_iter().filter(|files| files.run.starts_with(named)).collect();
        if let Some(exact) = found.iter().find(|files| files.run == named) {
            return Ok(exact.clone());
        }
        match found.len() {
            1 if !named.is_empty() => Ok(found.remove(0)),
            0 | 1 => Err(missing()),
            many => Err(Error::usage(format!("`{named}` matches {many} runs")).hint("give more of the id")),
        }
    }

    /// Every run of this home, also one that was killed before its ledger began.
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

    /// Where its exact state is until it is over.
    pub(crate) fn state(&self) -> PathBuf {
        self.ledger.with_extension("sealed")
    }

    /// Where its steps are kept when it is over and was recorded.
    pub(crate) fn recording(&self) -> PathBuf {
        self.ledger.with_extension("recorded")
    }
}
