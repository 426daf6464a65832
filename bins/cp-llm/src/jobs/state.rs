//! The files of a batch: `ID.json` has its record and its terms and is replaced whole; `ID.jsonl` has its rows and then
//! the outcomes of rows, each on a line. A batch without the former was not stored completely; a line without its end
//! is not there.
//!
//! The rows are read whole, because the provider limits the size of a batch, and the submission had it in memory too.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::{Home, locked, make_directory, write_whole};
use cp_common::wire::{Message, Prompt, Reply};
use cp_common::{Code, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::endpoint::{Endpoint, Target};
use crate::engine::Work;
use crate::wire_api::Request;

/// A row: its place in the input, the hash and the length of its request, and its prompt with all options applied.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub index: Option<u64>,
    pub line: Option<u64>,
    pub request_hash: String,
    pub bytes: u64,
    pub prompt: Prompt,
    /// A message, or the members of an error.
    #[serde(skip)]
    pub outcome: Option<Result<Message, Value>>,
}

impl Row {
    /// Restores the request, as far as it is needed for the answer.
    pub(super) fn work(&self, number: usize, endpoint: &Arc<Endpoint>) -> Work {
        let Prompt { system, messages, tools, model, .. } = self.prompt.clone();
        let (system, position) = (system.unwrap_or_default(), number as u64);
        let request = Request { system, messages, tools, position, ..Request::default() };
        let target = Target { endpoint: Arc::clone(endpoint), model: model.unwrap_or_default() };
        Work::new(self.prompt.clone(), request, target)
    }
}

/// Encodes a line of a file.
pub(super) fn line_of(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
    line.push(b'\n');
    Ok(line)
}

/// A batch, and what reading its answers needs of its submission.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Batch {
    pub job: BatchJob,
    /// The name of the endpoint.
    pub endpoint: String,
    pub fail_on: Vec<String>,
    pub stub_script: Option<PathBuf>,
    pub schema: Option<Value>,
    /// True if the provider was asked to create the batch. Without its id the outcome is unknown.
    pub was_asked: bool,
    /// The rows, if the batch is locked.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// The file of the rows, which is the lock.
    #[serde(skip)]
    pub file: Option<File>,
    /// The other file.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Batch {
    /// Locks the batch with this id and reads its rows. If there is none, a new one is stored.
    pub(super) fn locked(home: &Home, id: &str, new: Option<Self>) -> Result<Self> {
        let directory = home.state("batches");
        make_directory(&directory)?;
        let [path, rows] = ["json", "jsonl"].map(|extension| directory.join(format!("{id}.{extension}")));
        let mut file = locked(&rows, || {
            let opened = OpenOptions::new().read(true).append(true).create(new.is_some()).mode(0o600).open(&rows);
            opened.map_err(|e| Error::io("opening", e).in_file(&rows).fatal())
        })?;
        if let Some(new) = new.filter(|_| !path.exists()) {
            let text = new.rows.iter().map(line_of).collect::<Result<Vec<_>>>()?.concat();
            file.set_len(0).and_then(|()| file.write_all(&text)).and_then(|()| file.sync_all()).map_err(failed)?;
            let batch = Self { file: Some(file), path, ..new };
            return batch.store().map(|()| batch);
        }
        let mut batch = Self::read(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        // The incomplete line of a killed process is removed.
        text.truncate(memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1));
        file.set_len(text.len() as u64).map_err(failed)?;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if (batch.rows.len() as u64) < batch.job.count {
                batch.rows.push(parse(line, &rows)?);
                continue;
            }
            let (number, outcome): (usize, _) = parse(line, &rows)?;
            if let Some(row) = batch.rows.get_mut(number) {
                row.outcome = Some(outcome);
            }
        }
        Ok(Self { file: Some(file), ..batch })
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

    /// Finds a batch and locks it against other processes.
    pub(super) fn find_locked(home: &Home, id: &str) -> Result<Self> {
        Self::locked(home, &Self::find(home, id)?.job.job_id, None)
    }

    /// The batches whose ids begin with a text, the newest first, without their rows.
    pub(super) fn all(home: &Home, prefix: &str) -> Result<Vec<Self>> {
        let directory = home.state("batches");
        let entries = match std::fs::read_dir(&directory) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| Error::io("reading the batches", e).in_file(&directory).fatal())?,
        };
        let mut all = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.strip_suffix(".json").is_some_and(|id| id.starts_with(prefix)) {
                all.push(Self::read(path)?);
            }
        }
        all.sort_by(|a, b| (&b.job.created_at, &b.job.job_id).cmp(&(&a.job.created_at, &a.job.job_id)));
        Ok(all)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text = std::fs::read(&path).map_err(|e| Error::io("opening", e).in_file(&path).fatal())?;
        let batch = parse(&text, &path)?;
        Ok(Self { path, ..batch })
    }

    /// Stores all but the rows.
    pub(super) fn store(&self) -> Result<()> {
        write_whole(&self.path, &line_of(self)?).map_err(Error::fatal)
    }

    /// Stores the outcome of a row.
    pub(super) fn settle(&mut self, number: usize, outcome: Result<Message, Value>) -> Result<()> {
        let line = line_of(&(number, &outcome))?;
        self.file.as_ref().map_or(Ok(()), |mut file| file.write_all(&line)).map_err(failed)?;
        self.rows[number].outcome = Some(outcome);
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data).map_err(failed)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(failed)?;
        std::fs::remove_file(self.path.with_extension("jsonl")).map_err(failed)
    }

    /// The name of a row in the ledger.
    pub(super) fn name_of(&self, number: usize) -> String {
        format!("{}#{number}", self.job.job_id)
    }
}

fn parse<T: DeserializeOwned>(json: &[u8], path: &Path) -> Result<T> {
    serde_json::from_slice(json).map_err(|e| Error::config(format!("not a batch: {e}")).in_file(path).fatal())
}

fn failed(e: std::io::Error) -> Error {
    Error::io("the state of the batch", e).fatal()
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
    /// The backend that answers.
    pub backend: String,
    /// The base URL of the server; absent for a backend without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
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
    /// The paths of its results at the provider.
    #[serde(skip)]
    pub results: Vec<String>,
    /// The number of rows in the first of them, and in all, as far as the provider counts them. A provider without
    /// counts has a result for each row of a batch that succeeded.
    #[serde(skip)]
    pub recorded: (u64, u64),
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
