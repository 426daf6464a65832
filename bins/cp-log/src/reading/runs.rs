//! The ledger of a run, found by the id of the run or by its name.

use std::path::{Path, PathBuf};

use cp_common::home::TIERS;
use cp_common::{Context, Error, Result, json};
use cp_ledger::read::lines;

/// The lines in which the start of a run is looked for.
const FIRST: usize = 8;

/// Finds the ledger of a run by its id or its name; none if no run has it.
pub(crate) fn run_ledger(run: &str, context: &Context) -> Result<Option<PathBuf>> {
    if run.is_empty() || run.contains('/') {
        return Ok(None);
    }
    let directories = TIERS.iter().map(|tier| context.home.runs(tier));
    let by_id = directories.clone().map(|runs| runs.join(format!("{run}.jsonl"))).find(|path| path.is_file());
    if by_id.is_some() {
        return Ok(by_id);
    }
    let mut found = Vec::new();
    for entry in directories.filter_map(|runs| std::fs::read_dir(runs).ok()).flatten() {
        let path = entry.map_err(|e| Error::io("cannot list the runs", e))?.path();
        let is_ledger = path.extension().is_some_and(|extension| extension == "jsonl");
        if is_ledger && name_of(&path)?.as_deref() == Some(run) {
            found.push(path);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => Err(Error::usage(format!("{count} runs have the name `{run}`")).hint("give the id of one of them")),
    }
}

/// The ledger of a run that is given by its id, its name or the path of its ledger.
pub(crate) fn ledger_of_run(run: &str, context: &Context) -> Result<PathBuf> {
    if run.contains('/') {
        return Ok(PathBuf::from(run));
    }
    let missing = || Error::not_found(format!("no run `{run}`")).hint("cp-toolloop runs lists them");
    run_ledger(run, context)?.ok_or_else(missing)
}

/// Fails if no entry was found because `--run` names no run.
pub(crate) fn check_run(context: &Context) -> Result<()> {
    context.options.run.as_deref().map_or(Ok(()), |run| ledger_of_run(run, context).map(drop))
}

/// The id of a run that is given by its id or its name.
pub(crate) fn run_id(run: &str, context: &Context) -> Result<String> {
    let ledger = run_ledger(run, context)?;
    let id = ledger.as_deref().and_then(Path::file_stem).map(|id| id.to_string_lossy().into_owned());
    Ok(id.unwrap_or_else(|| run.to_owned()))
}

/// The name that the start of a run has.
fn name_of(ledger: &Path) -> Result<Option<String>> {
    let mut lines = lines(ledger)?;
    for _ in 0..FIRST {
        let Some(raw) = lines.next()? else { break };
        if let Some(line) = raw.stored().filter(|line| line.is_event("run_start")) {
            return Ok(line.data_member("name").and_then(json::unquote));
        }
    }
    Ok(None)
}
