//! The ledgers of a run: its own, and those of home that have lines of it.

use std::path::{Path, PathBuf};

use cp_common::{Context, Result, json};
use cp_ledger::proof::leaves::files_of;
use cp_ledger::read::source::lines_of;
use memchr::memmem::Finder;

use crate::reading::ledger_of_run;

/// A run.
pub(crate) struct Run {
    pub(super) name: String,
    /// Its ledger, and the shared ones after it.
    pub(crate) ledgers: Vec<PathBuf>,
}

impl Run {
    /// Finds its ledgers.
    pub(crate) fn find(run: &str, context: &Context) -> Result<Self> {
        let ledger = ledger_of_run(run, context)?;
        let name = ledger.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut ledgers = vec![ledger];
        for shared in ["cp-exec.jsonl", "cp-llm.jsonl"].map(|name| context.home.ledger(name)) {
            if shared.is_file() && has(&shared, &name)? {
                ledgers.push(shared);
            }
        }
        Ok(Self { name, ledgers })
    }
}

/// True if a ledger has a line of a run.
fn has(ledger: &Path, run: &str) -> Result<bool> {
    let mut needle = b",\"run\":".to_vec();
    json::string(run, &mut needle);
    let finder = Finder::new(&needle);
    for file in files_of(ledger)? {
        if lines_of(&file)?.next_with(&finder)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
