//! A batch on disk, and the record that is printed of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::{Home, locked, write_whole};
use cp_common::output::Place;
use cp_common::wire::{Prompt, Reply};
use cp_common::{Code, Error, Result, clock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backend::endpoint::{Endpoint, Target};
use crate::engine::Work;
use crate::wire_api::Request;

/// A batch. Its directory has `items.jsonl` with an [`Item`] for each row; `schema.json` if answers must match one; `job.json`, which is this and is
/// written last; and `answers.jsonl` after the answers were fetched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub id: String,
    pub backend: String,
    /// The base URL of the server, if there is one.
    pub endpoint: Option<String>,
    /// The id of the batch at the provider, if known.
    pub provider_id: Option<String>,
    /// The time of the last request to create the batch, in seconds since 1970. Without `provider_id` the outcome of that request is unknown.
    pub asked_at: Option<u64>,
    pub created_at: String,
    pub input_hash: String,
    pub count: u64,
    /// The options for reading its answers.
    pub words: Vec<String>,
    /// The ledger, as the bytes of its path, the session and the run of the submission.
    pub ledger: Vec<u8>,
    pub session: Option<String>,
    pub run: Option<String>,
    #[serde(skip)]
    pub directory: PathBuf,
}

/// A row: its place in the input, the hash and the length of its request, and its prompt.
#[derive(Serialize, Deserialize)]
pub(super) struct Item {
    pub index: Option<u64>,
    pub line: Option<u64>,
    pub request_hash: String,
    pub bytes: u64,
    pub prompt: Prompt,
}

impl Item {
    /// The row of a prompt with all options applied.
    pub(super) fn of(work: &Work, place: Place, request_hash: String, bytes: u64) -> Self {
        let Request { system, messages, tools, model, .. } = work.request().clone();
        let system = Some(system).filter(|system| !system.is_empty());
        let prompt = Prompt { system, messages, tools, model: Some(model), ..work.prompt.clone() };
        Self { index: place.index, line: place.line, request_hash, bytes, prompt }
    }

    /// The place in the input.
    pub(super) fn place(&self) -> Place {
        Place { index: self.index, line: self.line }
    }

    /// Restores the request, as far as it is needed for the answer.
    pub(super) fn work(&self, position: u64, endpoint: &Arc<Endpoint>) -> Work {
        let Prompt { system, messages, tools, model, .. } = self.prompt.clone();
        let request = Request { system: system.unwrap_or_default(), messages, tools, position, ..Request::default() };
        let target = Target { endpoint: Arc::clone(endpoint), model: model.unwrap_or_default() };
        Work::new(self.prompt.clone(), request, target, Vec::new())
    }
}

/// The directory of all batches.
pub(super) fn directory(home: &Home) -> PathBuf {
    home.state("batches")
}

impl Job {
    /// Finds a batch by its id or a unique prefix.
    pub(super) fn find(home: &Home, id: &str) -> Result<Self> {
        let mut named = directories(home)?;
        named.retain(|path| name_of(path).starts_with(id));
        match named.as_slice() {
            [only] => Self::load(only),
            [] => Err(Error::not_found(format!("no batch has the id {id}"))
                .hint("`cp-llm batch poll` lists them; --home names another home")),
            _ => Err(Error::usage(format!("more than one batch has an id that begins with `{id}`"))),
        }
    }

    /// All batches, the newest first.
    pub(super) fn all(home: &Home) -> Result<Vec<Self>> {
        let mut all = directories(home)?.iter().map(|path| Self::load(path)).collect::<Result<Vec<_>>>()?;
        all.sort_by(|a, b| (&b.created_at, &b.id).cmp(&(&a.created_at, &a.id)));
        Ok(all)
    }

    /// Reads a batch.
    pub(super) fn load(directory: &Path) -> Result<Self> {
        let file = directory.join("job.json");
        let text = std::fs::read(&file).map_err(|e| Error::io("reading the batch", e).in_file(&file))?;
        let job: Self = serde_json::from_slice(&text)
            .map_err(|e| Error::config(format!("not a batch: {e}")).in_file(&file).fatal())?;
        Ok(Self { directory: directory.to_owned(), ..job })
    }

    /// Locks the batch against other processes and reads it again.
    pub(super) fn lock(&mut self) -> Result<File> {
        let held = locked(&self.directory, || open_directory(&self.directory))?;
        *self = Self::load(&self.directory)?;
        Ok(held)
    }

    /// Writes the batch atomically.
    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        write_whole(&self.file("job.json"), &text).map_err(Error::fatal)
    }

    /// Stores that the provider is about to be asked to create the batch, or that it has certainly not created it.
    pub(super) fn mark_requested(&mut self, is_asking: bool) -> Result<()> {
        self.asked_at = is_asking.then(clock::unix_seconds);
        self.save()
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.directory).map_err(|e| Error::io("removing", e).in_file(&self.directory).fatal())
    }

    /// The path of a file of the batch.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Opens a file of the batch.
    pub(super) fn opened(&self, name: &str) -> Result<File> {
        File::open(self.file(name)).map_err(|e| Error::io("reading the batch", e).in_file(&self.file(name)).fatal())
    }

    /// Reads its rows, each with its number and its name in the ledger.
    pub(super) fn items(&self) -> Result<impl Iterator<Item = Result<(u64, String, Item)>> + use<>> {
        let (id, lines) = (self.id.clone(), BufReader::new(self.opened("items.jsonl")?).split(b'\n'));
        Ok((0..).zip(lines).map(move |(number, line)| {
            let item = line.and_then(|line| Ok(serde_json::from_slice(&line)?));
            let item = item.map_err(|e| Error::io("reading the rows of the batch", e).fatal())?;
            Ok((number, format!("{id}#{number}"), item))
        }))
    }

    /// The members of its ledger entry.
    pub(super) fn ledger_facts(&self) -> Value {
        json!({"id": self.id, "backend": self.backend, "provider_id": self.provider_id, "count": self.count, "input_hash": self.input_hash})
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Opens the directory of a batch, to lock it.
pub(super) fn open_directory(directory: &Path) -> Result<File> {
    File::open(directory).map_err(|e| Error::io("opening", e).in_file(directory))
}

/// The directories of all batches. A directory without `job.json` was not completed.
fn directories(home: &Home) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory(home)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| Error::io("reading the batches", e).in_file(&directory(home)).fatal())?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| name_of(path).starts_with("BAT-") && path.join("job.json").exists()).collect())
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum State {
    /// Not started.
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

impl State {
    /// True if no more answers will come.
    pub(super) const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// The state of a batch at its provider.
pub(super) struct Progress {
    pub state: State,
    /// The state in the words of the provider.
    pub word: String,
    pub done: u64,
    /// The number of answers, which are paid for.
    pub answered: u64,
    /// The number of rows that the results must have.
    pub recorded: u64,
    /// The error of the whole batch.
    pub failure: Option<String>,
    /// The paths of its results.
    pub results: Vec<String>,
}

impl Progress {
    pub(super) fn of(state: State, word: &str, done: u64) -> Self {
        Self { state, word: word.to_owned(), done, answered: 0, recorded: done, failure: None, results: Vec::new() }
    }
}

/// A batch at a provider.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["failure"])))]
pub(crate) struct BatchJob {
    /// The id, which is derived from the input.
    id: String,
    /// The state.
    state: State,
    /// The state in the words of the provider.
    provider_state: String,
    /// The id at the provider; absent until the provider has confirmed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    /// The backend that answers.
    backend: String,
    /// The base URL of the server; absent for a backend without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// The number of requests.
    count: u64,
    /// The number of finished requests, including failed ones.
    done: u64,
    /// The time of the submission.
    created_at: String,
    /// The hash of the requests and their prompts.
    input_hash: String,
    /// The directory with the prompts.
    directory: String,
    /// The command that prints the state.
    poll: String,
    /// The command that prints the answers.
    result: String,
    /// The error of the whole batch, in the words of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<&'static str>,
}

impl BatchJob {
    /// The record of a batch in this state.
    pub(super) fn of(job: &Job, progress: Progress) -> Self {
        let Job { id, provider_id, backend, endpoint, count, created_at, input_hash, directory, .. } = job.clone();
        Self {
            state: progress.state,
            provider_state: progress.word,
            provider_id,
            backend,
            endpoint,
            count,
            done: progress.done,
            created_at,
            input_hash,
            directory: directory.display().to_string(),
            poll: format!("cp-llm batch poll {id}"),
            result: format!("cp-llm batch fetch {id}"),
            untrusted: progress.failure.iter().map(|_| "/failure").collect(),
            failure: progress.failure,
            id,
        }
    }
}

impl Reply for BatchJob {
    fn text(&self) -> String {
        format!("{}  {}  {}/{}", self.id, format!("{:?}", self.state).to_lowercase(), self.done, self.count)
    }
}
