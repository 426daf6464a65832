//! The state file of a batch, which only grows: its record and terms, its rows, `null` when the provider is about to be
//! asked to create it, its id at the provider, and the outcomes of its rows. A file without all its rows was not
//! completed; a line without its end is not there.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
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

/// Encodes a line of a state file.
pub(super) fn line_of(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
    line.push(b'\n');
    Ok(line)
}

/// The complete lines of a state file.
pub(super) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    /// The offset of the next line.
    pub offset: u64,
}

impl Lines {
    fn open(path: &Path, offset: u64) -> Result<Self> {
        let opened = File::open(path).and_then(|mut file| file.seek(SeekFrom::Start(offset)).map(|_| file));
        Ok(Self { reader: BufReader::new(opened.map_err(failed)?), line: Vec::new(), offset })
    }

    /// Reads a line. Returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        let length = self.reader.read_until(b'\n', &mut self.line).map_err(failed)?;
        let is_complete = self.line.ends_with(b"\n");
        self.offset += if is_complete { length as u64 } else { 0 };
        Ok(is_complete)
    }

    /// The next line.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        if !self.advance()? {
            return Ok(None);
        }
        serde_json::from_slice(&self.line).map(Some).map_err(|e| Error::config(format!("not a batch: {e}")).fatal())
    }
}

/// A batch and its state file.
pub(super) struct Batch {
    pub job: BatchJob,
    pub terms: Terms,
    pub path: PathBuf,
    /// The state file. It is locked by those who add to it.
    file: File,
    /// True if the provider was asked to create the batch. Without its id the outcome is unknown.
    pub was_asked: bool,
    /// The offsets of the rows and of their outcomes.
    rows: u64,
    outcomes: u64,
}

impl Batch {
    /// Locks the batch with this id. If there is none, it is made of this job and its encoded rows.
    pub(super) fn locked(home: &Home, id: &str, new: Option<(BatchJob, Terms, &[u8])>) -> Result<Self> {
        make_directory(&home.state("batches"))?;
        let path = path(home, id);
        let mut file = locked(&path, || {
            let opened = OpenOptions::new().read(true).append(true).create(new.is_some()).mode(0o600).open(&path);
            opened.map_err(|e| Error::io("opening", e).in_file(&path).fatal())
        })?;
        if let Some(batch) = Self::load(&path, file.try_clone()?)? {
            return Ok(batch);
        }
        let Some((job, terms, rows)) = new else { return Err(Error::not_found(format!("no batch has the id {id}"))) };
        let head = line_of(&(job, terms))?;
        let written = file.set_len(0).and_then(|()| file.write_all(&head)).and_then(|()| file.write_all(rows));
        written.and_then(|()| file.sync_all()).map_err(failed)?;
        Self::load(&path, file)?.ok_or_else(|| Error::config("the batch was not stored").in_file(&path).fatal())
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

    /// The batches whose ids begin with a text, the newest first.
    pub(super) fn all(home: &Home, prefix: &str) -> Result<Vec<Self>> {
        let directory = home.state("batches");
        let entries = match std::fs::read_dir(&directory) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| Error::io("reading the batches", e).in_file(&directory).fatal())?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let paths = names
            .filter(|name| name.starts_with(prefix))
            .filter_map(|name| name.strip_suffix(".jsonl").map(|id| path(home, id)));
        let read = paths.map(|path| Self::load(&path, File::open(&path)?).map_err(|e| e.in_file(&path)));
        let mut all: Vec<Self> = read.filter_map(Result::transpose).collect::<Result<_>>()?;
        all.sort_by(|a, b| (&b.job.created_at, &b.job.job_id).cmp(&(&a.job.created_at, &a.job.job_id)));
        Ok(all)
    }

    /// Reads a batch; `None` if it was not completed.
    fn load(path: &Path, file: File) -> Result<Option<Self>> {
        let mut lines = Lines::open(path, 0)?;
        let Some((mut job, terms)) = lines.next::<(BatchJob, Terms)>()? else { return Ok(None) };
        let rows = lines.offset;
        for _ in 0..job.count {
            if !lines.advance()? {
                return Ok(None);
            }
        }
        let was_asked = lines.next::<()>()?.is_some();
        job.provider_id = lines.next()?;
        let (path, outcomes) = (path.to_owned(), lines.offset);
        Ok(Some(Self { job, terms, path, file, was_asked, rows, outcomes }))
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

    /// Removes what follows this offset: the incomplete line of a killed process.
    pub(super) fn cut(&self, at: u64) -> Result<()> {
        self.file.set_len(at).map_err(failed)
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(failed)
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(failed)
    }

    /// Its rows, each with its number and its name in the ledger.
    pub(super) fn rows(&self) -> Result<impl Iterator<Item = Result<(u64, String, Row)>> + use<>> {
        let (id, mut lines) = (self.job.job_id.clone(), Lines::open(&self.path, self.rows)?);
        Ok((0..self.job.count).map(move |number| {
            let row = lines.next()?.ok_or_else(|| Error::config(format!("{id} has no row {number}")).fatal())?;
            Ok((number, format!("{id}#{number}"), row))
        }))
    }

    /// The outcomes of its rows so far.
    pub(super) fn outcomes(&self) -> Result<Lines> {
        Lines::open(&self.path, self.outcomes)
    }
}

/// The state file of a batch.
pub(super) fn path(home: &Home, id: &str) -> PathBuf {
    home.state("batches").join(format!("{id}.jsonl"))
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
    /// The file with the prompts.
    pub file: String,
    /// The error of the whole batch, in the words of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
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
