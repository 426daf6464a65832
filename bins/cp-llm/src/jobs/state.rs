//! The state file of a batch, `ID.json`, which is replaced as a whole. It is written just before the provider is asked
//! to create the batch; until it has the id at the provider, the outcome is unknown.
//!
//! A file is read whole, because the provider limits the size of a batch, and the submission had it in memory too.

use std::fs::File;
use std::path::PathBuf;

use cp_common::home::{Home, is_id, lock_file, write_whole};
use cp_common::output::Place;
use cp_common::wire::{Prompt, Reply, raw};
use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::Outcome;

/// A row: its place in the input, the hash of its request, its parameters, and its prompt.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub place: Place,
    pub request_hash: String,
    pub params: Map<String, Value>,
    pub prompt: Prompt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// A batch, and what reading its answers needs of its submission.
#[derive(Serialize, Deserialize)]
pub(super) struct Batch {
    pub job: BatchJob,
    pub model: String,
    pub fail_on: Vec<String>,
    pub schema: Option<Value>,
    pub rows: Vec<Row>,
    #[serde(skip)]
    pub path: PathBuf,
}

/// The state file of the batch with this id.
pub(super) fn path_of(id: &str, home: &Home) -> PathBuf {
    home.state("batches").join(format!("{id}.json"))
}

impl Batch {
    /// Finds a batch that no other process is changing. The lock is a file of its own, because the state file is
    /// replaced.
    pub(super) fn find(id: &str, home: &Home) -> Result<(Self, File)> {
        let path = path_of(id, home);
        if !is_id(id) || !path.exists() {
            let error = Error::not_found(format!("no batch has the id {id}"));
            return Err(error.hint("`cp-llm batch status` lists them; --home names another home"));
        }
        let lock = lock_file(&path.with_extension("lock"))?;
        Ok((Self::read(path)?, lock))
    }

    /// The ids of all batches, the newest first.
    pub(super) fn all(home: &Home) -> Result<Vec<String>> {
        let directory = home.state("batches");
        if !directory.exists() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for entry in directory.read_dir().map_err(|e| Error::io("opening", e).in_file(&directory).fatal())? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "json") {
                let job = Self::read(path)?.job;
                all.push((job.created_at, job.job_id));
            }
        }
        all.sort();
        Ok(all.into_iter().rev().map(|(_, id)| id).collect())
    }

    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let text = std::fs::read(&path).map_err(|e| Error::io("opening", e).in_file(&path).fatal())?;
        let found = serde_json::from_slice(&text);
        let batch: Self = found.map_err(|e| Error::config(format!("not a batch: {e}")).in_file(&path).fatal())?;
        Ok(Self { path, ..batch })
    }

    /// Replaces the file.
    pub(super) fn save(&self) -> Result<()> {
        write_whole(&self.path, raw(self)?.get().as_bytes()).map_err(Error::fatal)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|e| Error::io("the state of the batch", e).fatal())
    }
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum State {
    /// Not started.
    #[default]
    Pending,
    /// In progress.
    Running,
    /// Ended with answers.
    Succeeded,
    /// Ended without answers, or expired.
    Failed,
    /// Cancelled; answers from before can be fetched.
    Cancelled,
}

/// A batch at a provider.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BatchJob {
    /// The id, which is derived from the input.
    pub job_id: String,
    /// The status.
    pub status: State,
    /// The id at the provider; absent until the provider has confirmed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The name of the endpoint.
    pub endpoint: String,
    /// The number of requests.
    pub count: u64,
    /// The number of finished requests, including failed ones.
    pub done: u64,
    /// The time of the submission.
    pub created_at: String,
    /// The hash of the requests and their prompts.
    pub input_hash: String,
}

impl BatchJob {
    /// True if no more answers will come.
    pub(super) fn is_ended(&self) -> bool {
        !matches!(self.status, State::Pending | State::Running)
    }
}

impl Reply for BatchJob {
    fn text(&self) -> String {
        format!("{}  {}  {}/{}", self.job_id, format!("{:?}", self.status).to_lowercase(), self.done, self.count)
    }
}
