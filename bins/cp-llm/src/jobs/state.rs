//! The state file of a batch, `ID.jsonl`: the batch on one line, then what happened to it, each on a line. A line without
//! its end is not there.
//!
//! A file is read whole, because the provider limits the size of a batch, and the submission had it in memory too.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use cp_common::home::{Home, create_whole, locked};
use cp_common::wire::{Message, Prompt, Reply};
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A row: its place in the input, the hash and the length of its request, and its prompt with all options applied.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub index: Option<u64>,
    pub line: Option<u64>,
    pub request_hash: String,
    pub bytes: u64,
    pub params: Map<String, Value>,
    pub prompt: Prompt,
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// The message of a row, or the members of its error.
pub(super) type Outcome = Box<Result<Message, Value>>;

/// What happened to a batch.
#[derive(Serialize, Deserialize)]
pub(super) enum Event {
    /// The provider is asked to create the batch. Until its id is known the outcome is unknown.
    Asked,
    /// The provider has created it, with this id.
    Created(String),
    /// A row has its outcome.
    Settled(usize, Outcome),
}

/// A batch, and what reading its answers needs of its submission.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Batch {
    pub job: BatchJob,
    /// The name of the endpoint.
    pub endpoint: String,
    pub model: Option<String>,
    pub fail_on: Vec<String>,
    pub stub_script: Option<PathBuf>,
    pub schema: Option<Value>,
    pub rows: Vec<Row>,
    #[serde(skip)]
    pub was_asked: bool,
    #[serde(skip)]
    pub path: PathBuf,
    /// The file, if the batch is locked.
    #[serde(skip)]
    pub file: Option<File>,
}

impl Batch {
    /// Stores the batch, unless there is one of its id, and locks it.
    pub(super) fn stored(mut self, home: &Home) -> Result<Self> {
        self.path = home.state("batches").join(format!("{}.jsonl", self.job.job_id));
        create_whole(&self.path, &line_of(&self)?).map_err(Error::fatal)?;
        self.locked()
    }

    /// Locks the batch against other processes, and reads what they did with it.
    pub(super) fn locked(self) -> Result<Self> {
        let file = locked(&self.path, || {
            let opened = OpenOptions::new().append(true).open(&self.path);
            opened.map_err(|e| Error::io("opening", e).in_file(&self.path).fatal())
        })?;
        let (batch, length) = Self::read(self.path)?;
        // The incomplete line of a killed process is removed.
        file.set_len(length).map_err(failed)?;
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

    /// The batches whose ids begin with a text, the newest first, without their rows.
    pub(super) fn all(home: &Home, prefix: &str) -> Result<Vec<Self>> {
        let directory = home.state("batches");
        let entries = match directory.read_dir() {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            found => found.map_err(|e| Error::io("reading the batches", e).in_file(&directory).fatal())?,
        };
        let mut all = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("BAT-") && name.starts_with(prefix)) {
                all.push(Self { rows: Vec::new(), ..Self::read(entry.path())?.0 });
            }
        }
        all.sort_by(|a, b| (&b.job.created_at, &b.job.job_id).cmp(&(&a.job.created_at, &a.job.job_id)));
        Ok(all)
    }

    /// Reads a batch, and the length of its complete lines.
    fn read(path: PathBuf) -> Result<(Self, u64)> {
        let wrong = |e| Error::config(format!("not a batch: {e}")).in_file(&path).fatal();
        let text = std::fs::read(&path).map_err(|e| Error::io("opening", e).in_file(&path).fatal())?;
        let end = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
        let mut lines = text[..end].split_inclusive(|byte| *byte == b'\n');
        let mut batch: Self = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(wrong)?;
        for line in lines {
            batch.apply(serde_json::from_slice(line).map_err(wrong)?);
        }
        Ok((Self { path, ..batch }, end as u64))
    }

    /// Adds what happened to the file, which is synced except after the outcome of a row.
    pub(super) fn note(&mut self, event: Event) -> Result<()> {
        let line = line_of(&event)?;
        self.file.as_ref().map_or(Ok(()), |mut file| file.write_all(&line)).map_err(failed)?;
        if !matches!(event, Event::Settled(..)) {
            self.sync()?;
        }
        self.apply(event);
        Ok(())
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Asked => self.was_asked = true,
            Event::Created(id) => self.job.provider_id = Some(id),
            Event::Settled(number, outcome) => {
                if let Some(row) = self.rows.get_mut(number) {
                    row.outcome = Some(outcome);
                }
            }
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data).map_err(failed)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(failed)
    }

    /// The number of rows that have an outcome.
    pub(super) fn settled(&self) -> u64 {
        self.rows.iter().filter(|row| row.outcome.is_some()).count() as u64
    }
}

/// Encodes a line of a file.
pub(super) fn line_of(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    jsonl::write(&mut line, value).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
    Ok(line)
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
    /// The paths of its results at the provider, each with the number of rows that have at least one when it is read. A
    /// provider without counts has a result for each row of a batch that succeeded.
    #[serde(skip)]
    pub results: Vec<(String, u64)>,
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
