//! Where runs lie, and what their ledgers say of them.

use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result};
use cp_ledger::read;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::journal;
use crate::tally::Tally;

/// The tiers that a run may lie in.
const TIERS: [&str; 3] = ["ho1", "ho2", "ho3"];

/// A run that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its id.
    pub(crate) run: String,
    /// Its ledger.
    pub(crate) ledger: PathBuf,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Status {
    /// A process works on it.
    Running,
    /// It stopped and said why; it can go on.
    Paused,
    /// Its process was killed; it can go on.
    Interrupted,
    /// The model was done.
    Completed,
    /// Somebody ended it.
    Cancelled,
    /// It is over, and nothing says how.
    Unknown,
}

/// A run, in short.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Summary {
    /// Its id.
    pub(crate) id: String,
    /// What became of it.
    pub(crate) status: Status,
    /// When it was started.
    pub(crate) started_at: String,
    /// When its newest entry was stored.
    pub(crate) updated_at: String,
    /// The code that it stopped with.
    pub(crate) code: Option<String>,
    /// What was used, as far as it said.
    pub(crate) tally: Option<Tally>,
    /// Its ledger.
    pub(crate) ledger: String,
}

/// The members of an entry that are looked at.
#[derive(Deserialize)]
struct Entry {
    ts: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    data: Value,
}

/// A run by its id, a unique beginning of one, or the path of its ledger.
pub(crate) fn find(named: &str, context: &Context) -> Result<Place> {
    let missing =
        || Error::not_found(format!("no run `{named}`")).with("run", named).hint("`cp-toolloop runs` lists them");
    if named.contains('/') {
        let ledger = PathBuf::from(named);
        let run = ledger.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        return if ledger.is_file() { Ok(Place { run, ledger }) } else { Err(missing()) };
    }
    let mut found: Vec<Place> = all(context).into_iter().filter(|place| place.run.starts_with(named)).collect();
    if let Some(exact) = found.iter().find(|place| place.run == named) {
        return Ok(exact.clone());
    }
    match found.len() {
        1 if !named.is_empty() => Ok(found.remove(0)),
        0 | 1 => Err(missing()),
        many => Err(Error::usage(format!("`{named}` is the beginning of {many} runs")).hint("give more of the id")),
    }
}

/// Every run of this home.
pub(crate) fn all(context: &Context) -> Vec<Place> {
    let listings = TIERS.iter().filter_map(|tier| std::fs::read_dir(context.home.runs(tier)).ok());
    listings
        .flatten()
        .filter_map(|entry| {
            let ledger = entry.ok()?.path();
            let run = ledger.file_name()?.to_str()?.strip_suffix(".jsonl")?.to_owned();
            run.starts_with("RUN-").then_some(Place { run, ledger })
        })
        .collect()
}

/// What a run's ledger says of it.
pub(crate) fn summary(place: &Place) -> Result<Summary> {
    let started_at = started(&place.ledger)?;
    let mut lines = read::backward(&place.ledger)?;
    let (mut updated_at, mut last) = (None, None);
    while let Some(raw) = lines.next()? {
        let Some(entry) = entry_of(raw.bytes) else { continue };
        updated_at.get_or_insert_with(|| entry.ts.clone());
        if matches!(entry.event.as_str(), "run_start" | "run_resumed" | "run_paused" | "run_end") {
            last = Some(entry);
            break;
        }
    }
    let sealed = journal::path_of(&place.ledger);
    let data = |name: &str| last.as_ref().and_then(|entry| entry.data.get(name)).cloned();
    let event = last.as_ref().map(|entry| entry.event.clone()).unwrap_or_default();
    let status = match event.as_str() {
        "run_end" => data("status").and_then(|status| serde_json::from_value(status).ok()).unwrap_or(Status::Unknown),
        _ if journal::is_running(&sealed) => Status::Running,
        _ if !sealed.exists() => Status::Unknown,
        "run_paused" => Status::Paused,
        _ => Status::Interrupted,
    };
    Ok(Summary {
        id: place.run.clone(),
        status,
        updated_at: updated_at.unwrap_or_else(|| started_at.clone()),
        started_at,
        code: data("code").and_then(|code| code.as_str().map(str::to_owned)),
        tally: data("tally").and_then(|tally| serde_json::from_value(tally).ok()),
        ledger: place.ledger.display().to_string(),
    })
}

fn started(ledger: &Path) -> Result<String> {
    let mut lines = read::lines(ledger)?;
    let first = lines.next()?.and_then(|raw| entry_of(raw.bytes));
    first.map(|entry| entry.ts).ok_or_else(|| Error::validation("not the ledger of a run").in_file(ledger))
}

fn entry_of(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}
