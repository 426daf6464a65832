//! The state file of a batch, `ID.json`, which is replaced as a whole. It is written just before the provider is asked
//! to create the batch; until it has the id at the provider, the outcome is unknown.
//!
//! A file is read whole, because the provider limits the size of a batch, and the submission had it in memory too.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use cp_common::home::{Home, locked, make_directory, write_whole};
use cp_common::output::Place;
use cp_common::wire::{Prompt, Reply};
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Outcome, Work};

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

impl Row {
    pub(super) fn of(place: Place, work: &Work) -> Result<Self> {
        Ok(Self {
            place,
            request_hash: work.request_hash()?.to_owned(),
            params: work.request.params.clone(),
            prompt: work.prompt.clone(),
            outcome: None,
        })
    }
}

/// A batch, and what reading its answers needs of its submission.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Batch {
    pub job: BatchJob,
    pub model: String,
    pub fail_on: Vec<String>,
    pub schema: Option<Value>,
    pub rows: Vec<Row>,
    #[serde(skip)]
    pub path: PathBuf,
}

impl Batch {
    /// Locks the id of this new batch. Returns the batch that has the id already, if there is one.
    pub(super) fn or_existing(self, home: &Home) -> Result<(Self, File)> {
        let directory = home.state("batches");
        make_directory(&directory)?;
        Self { path: directory.join(format!("{}.json", self.job.job_id)), ..self }.locked()
    }

    /// Locks the batch, and reads what other processes did with it. The lock is a file of its own, because the state
    /// file is replaced.
    pub(super) fn locked(self) -> Result<(Self, File)> {
        let beside = self.path.with_extension("lock");
        let lock = locked(&beside, || {
            let opened = File::options().append(true).create(true).mode(0o600).open(&beside);
            opened.map_err(|e| Error::io("opening", e).in_file(&beside).fatal())
        })?;
        Ok((if self.path.exists() { Self::read(self.path)? } else { self }, lock))
    }

    /// Finds a batch by its id or a unique prefix.
    pub(super) fn find(home: &Home, id: &str) -> Result<Self> {
        let mut all = Self::all(home, id)?;
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(Error::not_found(format!("no batch has the id {id}"))
                .hint("`cp-llm batch status` lists them; --home names another home")),
            _ => Err(Error::usage(format!("more than one batch has an id that begins with `{id}`"))),
        }
    }

    /// The batches whose ids begin with a text, the newest first, without their rows.
    pub(super) fn all(home: &Home, prefix: &str) -> Result<Vec<Self>> {
        let directory = home.state("batches");
        let mut all = Vec::new();
        if !directory.exists() {
            return Ok(all);
        }
        for entry in directory.read_dir().map_err(|e| Error::io("opening", e).in_file(&directory).fatal())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(prefix) && name.ends_with(".json") {
                all.push(Self { rows: Vec::new(), ..Self::read(path)? });
            }
        }
        all.sort_by(|a, b| (&b.job.created_at, &b.job.job_id).cmp(&(&a.job.created_at, &a.job.job_id)));
        Ok(all)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text = std::fs::read(&path).map_err(|e| Error::io("opening", e).in_file(&path).fatal())?;
        let found = serde_json::from_slice(&text);
        let batch: Self = found.map_err(|e| Error::config(format!("not a batch: {e}")).in_file(&path).fatal())?;
        Ok(Self { path, ..batch })
    }

    /// Replaces the file.
    pub(super) fn save(&self) -> Result<()> {
        write_whole(&self.path, &encoded(self)?).map_err(Error::fatal)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|e| Error::io("the state of the batch", e).fatal())
    }
}

pub(super) fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())
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
#[cfg_attr(test, schemars(extend("x-untrusted" = ["failure"])))]
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
    /// The error of the whole batch, in the words of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl BatchJob {
    /// The name of a row.
    pub(super) fn row(&self, number: usize) -> String {
        format!("{}#{number}", self.job_id)
    }

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
