//! Recordings of answers, found by the hash of the request: one file of lines, read as far as it has grown at each
//! lookup, so that processes share it. What happens to a request without a recording is the [`Use`] of the file.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cp_common::context::given;
use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Code, Error, Result, keys};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::backend::endpoint::Endpoint;

/// A file of recordings, and how it is used.
pub(crate) struct Recordings {
    path: PathBuf,
    file: File,
    purpose: Use,
    index: Mutex<Index>,
    answered: Condvar,
}

/// The use of a file of recordings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Every request is sent, and its answer added.
    Record,
    /// A request without a recording is an error. Equal requests get their answers in order; the last one repeats.
    Replay,
    /// A request without a recording is sent, and its answer added. The last of several answers counts.
    Cache,
}

/// The right of a thread to ask for an answer. Other threads of this process that need the same one wait until it is
/// dropped.
pub(super) struct Claim<'a> {
    recordings: &'a Recordings,
    key: &'a str,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.recordings.index().asked.remove(self.key);
        self.recordings.answered.notify_all();
    }
}

/// The part of a file that was read, and the answers that are asked for.
#[derive(Default)]
struct Index {
    /// The offset of the last answer under each key. Keys are indexed by a part of them, because the line has all of it.
    last: HashMap<u64, u64>,
    /// The offsets of the answers before it, in order, if they count.
    earlier: HashMap<u64, VecDeque<u64>>,
    /// The backend of the first recording.
    backend: Option<String>,
    /// The number of complete lines that are not recordings.
    skipped: u64,
    /// The number of bytes that were read.
    covered: u64,
    /// The keys of the answers that threads ask for.
    asked: HashSet<String>,
}

/// A request and its answer.
#[derive(Serialize, Deserialize)]
struct Recording<'a> {
    key: &'a str,
    backend: &'a str,
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    message: &'a RawValue,
}

impl Recordings {
    /// Opens a file, and creates one that answers are added to. Lines that are not recordings are skipped with a warning.
    pub(crate) fn open(path: &Path, purpose: Use, warn: &dyn Fn(&str)) -> Result<Self> {
        let is_replay = purpose == Use::Replay;
        let file = if is_replay { given::seekable(path).map_err(Error::fatal)? } else { open_for_append(path)? };
        // A device may have no end.
        if purpose == Use::Cache && !file.metadata()?.is_file() {
            return Err(Error::config("a cache must be a regular file").in_file(path).fatal());
        }
        let mut index = Index::default();
        if purpose != Use::Record {
            index.update(&file, is_replay)?;
        }
        if index.skipped > 0 && index.last.is_empty() {
            return Err(Error::config("no line of the file is a recording").in_file(path).fatal());
        }
        if index.skipped > 0 {
            warn(&format!("{}: skipped lines that are not complete recordings: {}", path.display(), index.skipped));
        }
        let (path, index) = (path.to_owned(), Mutex::new(index));
        Ok(Self { path, file, purpose, index, answered: Condvar::new() })
    }

    /// True if all answers come from the file.
    pub(crate) fn is_replayed(&self) -> bool {
        self.purpose == Use::Replay
    }

    /// The backend of the first recording.
    pub(crate) fn backend(&self) -> Result<String> {
        self.index().backend.clone().ok_or_else(|| {
            Error::not_found("the file has no recordings").in_file(&self.path).hint("make one with --record").fatal()
        })
    }

    /// The key of a request. That of a cache includes the server, because two servers may have different models of
    /// one name.
    pub(super) fn key(&self, endpoint: &Endpoint, body: &[u8]) -> String {
        let scope = if self.purpose == Use::Cache { endpoint.base().unwrap_or(&endpoint.name) } else { "" };
        keys::hash(&[endpoint.api.name().as_bytes(), b"\n", scope.as_bytes(), body].concat())
    }

    /// Waits until no other thread asks for this answer.
    pub(super) fn claim<'a>(&'a self, key: &'a str) -> Claim<'a> {
        let mut index = self.index();
        while self.purpose == Use::Cache && !index.asked.insert(key.to_owned()) {
            index = self.answered.wait(index).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { recordings: self, key }
    }

    /// Finds the answer to a request. Fails if a replay has none.
    pub(super) fn find(&self, key: &str) -> Result<Option<Message>> {
        let mut index = self.index();
        if self.purpose == Use::Cache {
            index.update(&self.file, false)?;
        }
        let part = part_of(key);
        let earlier = index.earlier.get_mut(&part).and_then(VecDeque::pop_front);
        let offset = earlier.or_else(|| index.last.get(&part).copied());
        let found = offset.map(|offset| self.at(offset, key)).transpose()?.flatten();
        if found.is_none() && self.is_replayed() { Err(self.miss(key)) } else { Ok(found) }
    }

    /// The answer at an offset. A line that is no longer there is a miss.
    fn at(&self, offset: u64, key: &str) -> Result<Option<Message>> {
        let mut line = Vec::new();
        lines_from(&self.file, offset)?.read_until(b'\n', &mut line)?;
        let recording = serde_json::from_slice::<Recording<'_>>(&line).ok().filter(|recording| recording.key == key);
        Ok(recording.and_then(|recording| serde_json::from_str(recording.message.get()).ok()))
    }

    /// Adds an answer.
    pub(super) fn add(&self, key: &str, backend: &str, request: &[u8], message: &Message) -> Result<()> {
        let encoding = |e: serde_json::Error| Error::new(Code::Unknown, format!("encoding a recording: {e}"));
        // A replay takes these members from its own prompt.
        let bare = Message { input: Vec::new(), row: None, session_id: None, agent: None, ..message.clone() };
        let message = to_raw_value(&bare).map_err(encoding)?;
        let request = serde_json::from_slice::<&RawValue>(request).map_err(encoding)?;
        let mut line = serde_json::to_vec(&Recording { key, backend, request, message: &message }).map_err(encoding)?;
        line.push(b'\n');
        // A signal waits until an answer that is paid for is stored.
        let _effect = cp_common::signals::effect();
        append(&locked(&self.path, || open_for_append(&self.path))?, &self.path, line)
    }

    /// The error for a request without a recording.
    fn miss(&self, key: &str) -> Error {
        let name = self.path.display().to_string();
        Error::not_found(format!("{name} has no recording of this request"))
            .with("file", name)
            .with("key", key)
            .hint("the request has changed since it was recorded: record it again with --record")
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Reads the lines that were added to the file. Of several answers under one key, only a replay keeps the earlier.
    fn update(&mut self, file: &File, is_replay: bool) -> Result<()> {
        let (mut reader, mut line) = (lines_from(file, self.covered)?, Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            match serde_json::from_slice::<Recording<'_>>(&line) {
                Ok(recording) => {
                    self.backend.get_or_insert_with(|| recording.backend.to_owned());
                    let part = part_of(recording.key);
                    let earlier = self.last.insert(part, self.covered);
                    if let Some(offset) = earlier.filter(|_| is_replay) {
                        self.earlier.entry(part).or_default().push_back(offset);
                    }
                }
                // The writer of an incomplete line was killed, or may still complete it.
                Err(_) if !line.ends_with(b"\n") => return Ok(()),
                Err(_) => self.skipped += 1,
            }
            self.covered += line.len() as u64;
            line.clear();
        }
        Ok(())
    }
}

/// The part of a key that is indexed: the first 64 bits of the hash. A text without one is the key of no request.
fn part_of(key: &str) -> u64 {
    let digits = key.strip_prefix("sha256:").and_then(|hash| hash.get(..16));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

fn lines_from(mut file: &File, offset: u64) -> Result<BufReader<&File>> {
    file.seek(SeekFrom::Start(offset))?;
    Ok(BufReader::with_capacity(1 << 16, file))
}

/// Opens a file that answers are added to, and creates it if it is absent.
fn open_for_append(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    opened.map_err(|e| {
        let hint = "answers are added to the file: name one that can be written, or use --replay to only read it";
        Error::io("opening", e).in_file(path).hint(hint).fatal()
    })
}

/// Appends a line to a locked file. If the last line is incomplete, a new one is begun.
fn append(mut file: &File, path: &Path, mut line: Vec<u8>) -> Result<()> {
    let wrong = |e| Error::io("recording", e).in_file(path).fatal();
    let found = file.metadata().map_err(wrong)?;
    let mut last = [b'\n'];
    if found.is_file() && found.len() > 0 {
        file.read_exact_at(&mut last, found.len() - 1).map_err(wrong)?;
    }
    if last != [b'\n'] {
        line.insert(0, b'\n');
    }
    file.write_all(&line).map_err(wrong)
}
