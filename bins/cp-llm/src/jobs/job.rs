//! A batch on disk, and the record that is printed of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::{Home, lock, write_whole};
use cp_common::output::Place;
use cp_common::wire::{Prompt, Reply};
use cp_common::{Code, Error, Result, clock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backend::endpoint::{Endpoint, Target};
use crate::engine::Work;
use crate::wire_api::Request;

/// A batch. Its directory has `job.json`, this; `items.jsonl`, an [`Item`] for each row; until the provider has them `requests`, what is
/// sent; `schema.json`, where answers must match one; and once they were fetched `answers.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub id: String,
    pub backend: String,
    /// The base URL of the server, where the backend has one, and where each request would go below it.
    pub endpoint: Option<String>,
    pub path: String,
    /// Its id at the provider, once it is known, and that of the file of its requests.
    pub provider_id: Option<String>,
    pub input_file: Option<String>,
    /// When the provider was last asked to make it, in seconds since 1970. While there is no id it is not known whether the provider did.
    pub asked_at: Option<u64>,
    pub created_at: String,
    pub input_hash: String,
    pub count: u64,
    /// The options with which its answers are read.
    pub words: Vec<String>,
    /// What it belongs to; the ledger as the bytes of its path.
    pub ledger: Vec<u8>,
    pub session: Option<String>,
    pub run: Option<String>,
    #[serde(skip)]
    pub directory: PathBuf,
}

/// A row: its place in the input, its request by hash and length, and its prompt, which the message hands on.
#[derive(Serialize, Deserialize)]
pub(super) struct Item {
    pub index: Option<u64>,
    pub line: Option<u64>,
    pub request_hash: String,
    pub bytes: u64,
    pub prompt: Prompt,
}

impl Item {
    /// A row, with what the options made of its prompt.
    pub(super) fn of(work: &Work, place: Place, request_hash: String, bytes: u64) -> Self {
        let Request { system, messages, tools, model, .. } = work.request().clone();
        let system = Some(system).filter(|system| !system.is_empty());
        let prompt = Prompt { system, messages, tools, model: Some(model), ..work.prompt.clone() };
        Self { index: place.index, line: place.line, request_hash, bytes, prompt }
    }

    /// Where it stood in the input.
    pub(super) fn place(&self) -> Place {
        Place { index: self.index, line: self.line }
    }

    /// The request that it was, as far as its answer needs it.
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
    /// The batch with this id, or with the one id that begins so.
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

    /// Every batch, the oldest first.
    pub(super) fn all(home: &Home) -> Result<Vec<Self>> {
        let mut all = directories(home)?.iter().map(|path| Self::load(path)).collect::<Result<Vec<_>>>()?;
        all.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
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

    /// Waits until no other process works on the batch, and reads it again. Others wait until the lock is dropped.
    pub(super) fn locked(&mut self) -> Result<File> {
        let held = File::open(&self.directory).map_err(|e| Error::io("opening", e).in_file(&self.directory))?;
        lock(&held).map_err(|e| e.in_file(&self.directory))?;
        *self = Self::load(&self.directory)?;
        Ok(held)
    }

    /// Writes the batch, whole or not at all.
    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        write_whole(&self.file("job.json"), &text).map_err(Error::fatal)
    }

    /// Says on disk that the provider is about to be asked to make it, or that it certainly has not.
    pub(super) fn mark_requested(&mut self, is_asking: bool) -> Result<()> {
        self.asked_at = is_asking.then(clock::unix_seconds);
        self.save()
    }

    /// Removes the batch.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.directory).map_err(|e| Error::io("removing", e).in_file(&self.directory).fatal())
    }

    /// A file of the batch.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file of the batch, opened.
    pub(super) fn opened(&self, name: &str) -> Result<File> {
        File::open(self.file(name)).map_err(|e| Error::io("reading the batch", e).in_file(&self.file(name)).fatal())
    }

    /// Its rows, each with its number, and the name that the ledger has for it.
    pub(super) fn items(&self) -> Result<impl Iterator<Item = Result<(u64, String, Item)>> + use<>> {
        let (id, lines) = (self.id.clone(), BufReader::new(self.opened("items.jsonl")?).split(b'\n'));
        Ok((0..).zip(lines).map(move |(number, line)| {
            let item = line.and_then(|line| Ok(serde_json::from_slice(&line)?));
            let item = item.map_err(|e| Error::io("reading the rows of the batch", e).fatal())?;
            Ok((number, format!("{id}#{number}"), item))
        }))
    }

    /// What the ledger says of it.
    pub(super) fn ledger_facts(&self) -> Value {
        json!({"id": self.id, "backend": self.backend, "provider_id": self.provider_id, "count": self.count, "input_hash": self.input_hash})
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The directories of the batches: what is still being put together has a name that begins with a dot.
fn directories(home: &Home) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory(home)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| Error::io("reading the batches", e).in_file(&directory(home)).fatal())?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| name_of(path).starts_with("BAT-")).collect())
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum State {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// It has answers.
    Succeeded,
    /// It has none, or its provider ran out of time.
    Failed,
    /// It was stopped; what was answered before can be fetched.
    Cancelled,
}

impl State {
    /// Whether nothing more comes.
    pub(super) const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// Where a batch stands, as its provider says.
pub(super) struct Progress {
    pub state: State,
    /// The provider's own word.
    pub word: String,
    pub done: u64,
    /// Why it failed as a whole.
    pub failure: Option<String>,
    /// Where its results are, below the base URL.
    pub results: Vec<String>,
}

impl Progress {
    pub(super) fn of(state: State, word: &str, done: u64) -> Self {
        Self { state, word: word.to_owned(), done, failure: None, results: Vec::new() }
    }
}

/// A batch of a provider.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["failure"])))]
pub(crate) struct BatchJob {
    /// Its id here: the same input has the same one.
    id: String,
    /// Where it stands.
    state: State,
    /// The same in the words of its provider.
    provider_state: String,
    /// Its id there; absent while the provider is not known to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    /// Who answers.
    backend: String,
    /// The base URL of the server; absent for a backend without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// How many requests it has.
    count: u64,
    /// How many of them are done, those that failed among them.
    done: u64,
    /// When it was submitted.
    created_at: String,
    /// The hash of the requests and of what they carry along.
    input_hash: String,
    /// The directory with what they carry along.
    directory: String,
    /// The command that says where it stands.
    poll: String,
    /// The command that gives its answers.
    result: String,
    /// Why it failed as a whole, in the words of its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<&'static str>,
}

impl BatchJob {
    /// A batch and where it stands.
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
