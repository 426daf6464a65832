//! The file of a batch, which only grows, by a fact on each line: its record and terms, its rows, `null` when the
//! provider is about to be asked to create it, its id at the provider, and the outcomes of its rows. A file without all
//! its rows was not completed; a line without its end is not there.
//!
//! A file is read whole, because the provider limits the size of a batch, and the submission had it in memory too.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::{Home, locked, make_directory};
use cp_common::wire::{Message, Prompt, Reply};
use cp_common::{Code, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::endpoint::{Endpoint, Target};
use crate::engine::Work;
use crate::wire_api::Request;

/// What reading the answers of a batch needs of its submission.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The name of the endpoint.
    pub endpoint: String,
    pub fail_on: Vec<String>,
    pub stub_script: Option<PathBuf>,
    pub schema: Option<Value>,
}

/// A row: its place in the input, the hash and the length of its request, and its prompt with all options applied.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub index: Option<u64>,
    pub line: Option<u64>,
    pub request_hash: String,
    pub bytes: u64,
    pub prompt: Prompt,
}

impl Row {
    /// Restores the request, as far as it is needed for the answer.
    pub(super) fn work(&self, position: u64, endpoint: &Arc<Endpoint>) -> Work {
        let Prompt { system, messages, tools, model, .. } = self.prompt.clone();
        let request = Request { system: system.unwrap_or_default(), messages, tools, position, ..Request::default() };
        let target = Target { endpoint: Arc::clone(endpoint), model: model.unwrap_or_default() };
        Work::new(self.prompt.clone(), request, target)
    }
}

/// The outcome of a row: a message, or the members of an error.
pub(super) type Outcome = std::result::Result<Message, Value>;

/// Encodes a line of the file.
pub(super) fn line_of(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
    line.push(b'\n');
    Ok(line)
}

/// Parses a line of the file.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    serde_json::from_slice(line).map_err(|e| Error::config(format!("not a batch: {e}")).fatal())
}

/// A batch and its file.
pub(super) struct Batch {
    pub job: BatchJob,
    pub terms: Terms,
    path: PathBuf,
    /// The file. It is locked by those who add to it.
    file: File,
    /// True if the provider was asked to create the batch. Without its id the outcome is unknown.
    pub was_asked: bool,
    /// The complete lines of the file.
    lines: Vec<Vec<u8>>,
}

impl Batch {
    /// Locks the batch with this id. If there is none, it is made of this job and its encoded rows.
    pub(super) fn locked(home: &Home, id: &str, new: Option<(BatchJob, Terms, &[u8])>) -> Result<Self> {
        let directory = home.state("batches");
        make_directory(&directory)?;
        let path = directory.join(format!("{id}.jsonl"));
        let mut file = locked(&path, || {
            let opened = OpenOptions::new().append(true).create(new.is_some()).mode(0o600).open(&path);
            opened.map_err(|e| Error::io("opening", e).in_file(&path).fatal())
        })?;
        if let Some((job, terms, rows)) = new
            && Self::read(&path)?.is_none()
        {
            let text = [&line_of(&(job, terms))?, rows].concat();
            file.set_len(0).and_then(|()| file.write_all(&text)).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        let batch = Self::read(&path)?.ok_or_else(|| Error::not_found(format!("no batch has the id {id}")))?;
        // The incomplete line of a killed process is removed.
        file.set_len(batch.lines.iter().map(|line| line.len() as u64).sum()).map_err(failed)?;
        Ok(Self { file, ..batch })
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

    /// The batches whose ids begin with a text, the newest first, without their lines.
    pub(super) fn all(home: &Home, prefix: &str) -> Result<Vec<Self>> {
        let directory = home.state("batches");
        let entries = match std::fs::read_dir(&directory) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| Error::io("reading the batches", e).in_file(&directory).fatal())?,
        };
        let mut all = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.strip_suffix(".jsonl").is_some_and(|id| id.starts_with(prefix)) {
                let batch = Self::read(&path).map_err(|e| e.in_file(&path))?;
                all.extend(batch.map(|batch| Self { lines: Vec::new(), ..batch }));
            }
        }
        all.sort_by(|a, b| (&b.job.created_at, &b.job.job_id).cmp(&(&a.job.created_at, &a.job.job_id)));
        Ok(all)
    }

    /// Reads a batch; `None` if it was not completed.
    fn read(path: &Path) -> Result<Option<Self>> {
        let (mut file, mut text) = (File::open(path).map_err(failed)?, Vec::new());
        file.read_to_end(&mut text).map_err(failed)?;
        let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let lines: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
        let Some(head) = lines.first() else { return Ok(None) };
        let (mut job, terms): (BatchJob, Terms) = parse(head)?;
        job.provider_id = lines.get(job.rows() + 2).map(|line| parse(line)).transpose()?;
        let was_asked = lines.len() > job.rows() + 1;
        let batch = Self { path: path.to_owned(), file, was_asked, terms, lines, job };
        Ok(Some(batch).filter(|batch| batch.lines.len() > batch.job.rows()))
    }

    /// Notes that the provider is about to be asked to create the batch.
    pub(super) fn ask(&mut self) -> Result<()> {
        self.was_asked = true;
        self.add(&())?;
        self.sync()
    }

    /// Keeps the id at the provider.
    pub(super) fn created(&mut self, id: String) -> Result<()> {
        self.add(&id)?;
        self.job.provider_id = Some(id);
        self.sync()
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<()> {
        self.file.write_all(&line_of(line)?).map_err(failed)
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(failed)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(failed)
    }

    /// The name of a row in the ledger.
    pub(super) fn name_of(&self, number: u64) -> String {
        format!("{}#{number}", self.job.job_id)
    }

    /// Its rows, each with its number and its outcome if it is settled.
    pub(super) fn rows(&mut self) -> impl Iterator<Item = Result<(u64, Row, Option<Outcome>)>> + use<> {
        let (lines, count) = (std::mem::take(&mut self.lines), self.job.rows());
        (0..count).map(move |number| {
            let outcome = lines.get(count + 3 + number).map(|line| parse(line)).transpose()?;
            Ok((number as u64, parse(&lines[number + 1])?, outcome))
        })
    }
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
}

impl BatchJob {
    /// The number of requests.
    fn rows(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX / 2)
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
