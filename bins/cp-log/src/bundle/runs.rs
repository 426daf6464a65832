//! The ledgers of a run: its own, those of the agents that it began, and those of home that have lines of one of them.

use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result, json};
use cp_ledger::proof::leaves::files_of;
use cp_ledger::read::Raw;
use cp_ledger::read::source::lines_of;
use memchr::memmem::Finder;

use crate::reading::{Filters, Select, Target, is_ledger, run_ledger};

/// A run with all that it began.
#[derive(Default)]
pub(crate) struct Runs {
    /// Its ledger, those of its agents behind it, and the shared ones last.
    pub(crate) ledgers: Vec<PathBuf>,
    /// How many are not shared.
    pub(crate) own: usize,
    /// Agents without a ledger.
    pub(super) missing: Vec<String>,
    names: Vec<String>,
}

impl Runs {
    /// Finds them all.
    pub(crate) fn find(run: &str, context: &Context) -> Result<Self> {
        let named = Some(PathBuf::from(run)).filter(|_| run.contains('/'));
        let missing = || Error::not_found(format!("no run `{run}`")).hint("cp-toolloop runs lists them");
        let ledger = named.map_or_else(|| run_ledger(run, context), |named| Ok(Some(named)))?.ok_or_else(missing)?;
        let name = ledger.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut this = Self { ledgers: vec![ledger], own: 0, missing: Vec::new(), names: vec![name] };
        while let Some(ledger) = this.ledgers.get(this.own).cloned() {
            this.add_agents(&ledger)?;
            this.own += 1;
        }
        for name in ["cp-exec.jsonl", "cp-llm.jsonl"] {
            let shared = context.home.ledger(name);
            let mut has_line = false;
            for run in this.names.iter().filter(|_| shared.is_file()) {
                has_line |= has(&shared, run)?;
            }
            this.ledgers.extend(has_line.then_some(shared));
        }
        Ok(this)
    }

    /// The filters for their lines on a shared ledger.
    pub(super) fn selects(&self, filters: &Filters) -> Result<Vec<Select>> {
        self.names.iter().map(|run| Select::new(filters, None, Some(run))).collect()
    }

    /// The agents that a ledger says were begun. Each has its ledger beside it.
    fn add_agents(&mut self, ledger: &Path) -> Result<()> {
        each(ledger, b"\"event\":\"agent_start\"", |raw| {
            // Any other name could lead out of the directory.
            let is_new = |run: &String| run.starts_with("RUN-") && !run.contains('/') && !self.names.contains(run);
            let Some(run) = agent(raw).filter(is_new) else { return };
            let path = ledger.with_file_name(format!("{run}.jsonl"));
            if is_ledger(&Target::named(&path)).unwrap_or(false) {
                self.ledgers.push(path);
            } else {
                self.missing.push(run.clone());
            }
            self.names.push(run);
        })
    }
}

/// The run that a line says was begun.
fn agent(raw: &Raw<'_>) -> Option<String> {
    let line = raw.stored().filter(|line| line.is_event("agent_start"))?;
    json::unquote(line.data_member("run_id")?)
}

/// True if a ledger has a line of a run.
fn has(ledger: &Path, run: &str) -> Result<bool> {
    let mut needle = b",\"run\":".to_vec();
    json::string(run, &mut needle);
    let mut found = false;
    each(ledger, &needle, |_| found = true)?;
    Ok(found)
}

/// Passes the lines of a ledger that hold some bytes.
fn each(ledger: &Path, needle: &[u8], mut pass: impl FnMut(&Raw<'_>)) -> Result<()> {
    let finder = Finder::new(needle);
    for file in files_of(ledger)? {
        let mut lines = lines_of(&file)?;
        while let Some(raw) = lines.next_with(&finder)? {
            pass(&raw);
        }
    }
    Ok(())
}
