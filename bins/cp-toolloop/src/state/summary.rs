//! A run as its files have it: how it is found by name, and its summary.

use std::path::PathBuf;

use cp_common::wire::LedgerName;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::read::newest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::conversation::Conversation;
use crate::state::ledger::{data_of, start_of};
use crate::state::plan::RunFiles;
use crate::state::step_log;
use crate::state::tally::Tally;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Status {
    /// A process runs it.
    Running,
    /// It stopped with an error, and can be resumed.
    Paused,
    /// Its process was killed, and it can be resumed.
    Interrupted,
    /// The model gave a final answer.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It has ended, and the ledger does not have the reason.
    Unknown,
}

/// The summary of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Summary {
    /// Its id.
    pub(crate) id: String,
    /// The name from `--name`.
    pub(crate) name: Option<String>,
    /// Its status.
    pub(crate) status: Status,
    /// When it was started.
    pub(crate) started_at: String,
    /// When its newest entry was stored.
    pub(crate) updated_at: String,
    /// The code of the error that stopped it.
    pub(crate) code: Option<String>,
    /// Its usage so far.
    pub(crate) tally: Option<Tally>,
    #[serde(flatten)]
    pub(crate) ledger: LedgerName,
}

/// Reads the summary of a run from its ledger.
pub(crate) fn summary(files: &RunFiles) -> Result<Summary> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Last {
        status: Option<Status>,
        code: Option<String>,
        tally: Option<Tally>,
    }
    let (started_at, name) = begin(files)?;
    let (mut updated_at, state, mut event) = (None, files.state(), "");
    let last = if files.ledger.exists() {
        newest(&files.ledger, |line| {
            updated_at.get_or_insert_with(|| line.ts().to_owned());
            event =
                ["run_start", "run_resumed", "run_paused", "run_end"].into_iter().find(|name| line.is_event(name))?;
            Some(data_of::<Last>(line))
        })?
    } else {
        None
    };
    let last = last.unwrap_or_default();
    let status = match event {
        "run_end" => last.status.unwrap_or(Status::Unknown),
        _ if step_log::is_running(&state) => Status::Running,
        _ if !state.exists() => Status::Unknown,
        "run_paused" => Status::Paused,
        _ => Status::Interrupted,
    };
    Ok(Summary {
        id: files.run.clone(),
        name,
        status,
        updated_at: updated_at.unwrap_or_else(|| started_at.clone()),
        started_at,
        code: last.code,
        tally: last.tally,
        ledger: files.ledger.as_path().into(),
    })
}

/// The time of the start of a run, and its name, from its plan if the run was killed before it created its ledger.
fn begin(files: &RunFiles) -> Result<(String, Option<String>)> {
    if let Some((at, data)) = start_of(&files.ledger)? {
        return Ok((at, data.get("name").and_then(Value::as_str).map(str::to_owned)));
    }
    if !files.state().exists() {
        return Err(Error::validation("not the ledger of a run").in_file(&files.ledger));
    }
    let (plan, _) = Conversation::of_steps(step_log::peek(files)?)?;
    Ok((plan.started, plan.name))
}

impl RunFiles {
    /// The run of an id, a unique beginning of one, a name, or a ledger path. Of several runs with one name it is the
    /// unfinished one, or else the newest.
    pub(crate) fn find(named: &str, context: &Context) -> Result<Self> {
        let missing =
            || Error::not_found(format!("no run `{named}`")).with("run", named).hint("`cp-toolloop runs` lists them");
        if named.contains('/') {
            let ledger = PathBuf::from(named);
            let run = ledger.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let files = Self { run, ledger };
            return if files.ledger.is_file() || files.state().is_file() { Ok(files) } else { Err(missing()) };
        }
        let all = Self::all(context);
        if let Some(exact) = all.iter().find(|files| files.run == named) {
            return Ok(exact.clone());
        }
        let mut found: Vec<&Self> =
            all.iter().filter(|files| !named.is_empty() && files.run.starts_with(named)).collect();
        match found.len() {
            0 => Self::of_name(named, all).ok_or_else(missing),
            1 => Ok(found.remove(0).clone()),
            many => Err(Error::usage(format!("`{named}` matches {many} runs")).hint("give more of the id")),
        }
    }

    /// Refuses the name of an unfinished run, because the name must be unique among unfinished runs.
    pub(crate) fn check_free(name: &str, context: &Context) -> Result<()> {
        match Self::of_name(name, Self::all(context)).filter(|files| files.state().exists()) {
            None => Ok(()),
            Some(files) => Err(Error::new(Code::Conflict, format!("the run `{name}` is not over"))
                .with("run_id", files.run.as_str())
                .hint(format!("`cp-toolloop resume {name}` resumes it, `cp-toolloop cancel {name}` ends it"))),
        }
    }

    fn of_name(name: &str, all: Vec<Self>) -> Option<Self> {
        let begun = all.into_iter().filter_map(|files| Some((begin(&files).ok()?, files)));
        let named = begun.filter(|((_, own), _)| own.as_deref() == Some(name));
        named.max_by_key(|((at, _), files)| (files.state().exists(), at.clone())).map(|(_, files)| files)
    }
}
