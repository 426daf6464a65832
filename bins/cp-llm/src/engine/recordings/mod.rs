//! Recordings of answers, found by the hash of the request. `--record` adds answers to a file, `--replay` answers from it and sends nothing, `--cache`
//! does both.
//!
//! Processes share a cache. The offsets of its answers are kept in memory; each lookup reads the lines that were added since the last one, so it finds
//! the answers of other processes. An answer that is no longer at its offset is a miss.

mod replay;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Result as IoResult, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Code, Error, Result, keys};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

pub(crate) use self::replay::Replay;
use crate::backend::endpoint::Endpoint;

/// A file of recordings, and how it is used.
pub(crate) enum Recordings {
    /// Add answers.
    Record(PathBuf),
    /// Take answers in order. A miss is an error.
    Replay(Replay),
    /// Take answers, and add them after a miss.
    Cache(Cache),
}

impl Recordings {
    /// Opens a file that answers are added to, and creates it if it is absent.
    pub(crate) fn record(path: &Path) -> Result<Self> {
        open_for_append(path).map(|_| Self::Record(path.to_owned()))
    }

    /// The key of a request. That of a cache includes the server, because two servers may have different models of
    /// one name.
    pub(super) fn key(&self, endpoint: &Endpoint, body: &[u8]) -> String {
        let scope = if self.is_cache() { format!("{}\n", endpoint.cache_scope()) } else { String::new() };
        keys::hash(&[scope.as_bytes(), endpoint.api.name().as_bytes(), b"\n", body].concat())
    }

    /// Finds the answer to a request.
    pub(super) fn find(&self, key: &str) -> Result<Option<Message>> {
        match self {
            Self::Record(_) => Ok(None),
            Self::Replay(replay) => replay.find(key),
            Self::Cache(cache) => cache.find(key),
        }
    }

    /// Claims the right to ask for an answer that is not in the cache.
    pub(super) fn claim(&self, key: &str) -> Result<Option<Claim>> {
        if let Self::Cache(cache) = self { cache.claim(key).map(Some) } else { Ok(None) }
    }

    /// True if all answers come from the file.
    pub(crate) fn is_replayed(&self) -> bool {
        matches!(self, Self::Replay(_))
    }

    fn is_cache(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    /// The name of this use in the ledger.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Record(_) => "record",
            Self::Replay(_) => "replay",
            Self::Cache(_) => "cache",
        }
    }

    /// Adds an answer, unless the file is only replayed.
    pub(super) fn add(&self, key: &str, backend: &str, request: &[u8], message: &Message) -> Result<()> {
        let path = match self {
            Self::Replay(_) => return Ok(()),
            Self::Record(path) => path,
            Self::Cache(cache) => &cache.path,
        };
        let line = line(key, backend, request, message)?;
        // A signal waits until an answer that is paid for is stored.
        let _effect = cp_common::signals::effect();
        append(&locked(path, || open_for_append(path))?, path, line)
    }

    /// The error for a request without a recording in a replay.
    pub(super) fn miss(&self, key: &str, request: &[u8]) -> Option<Error> {
        if let Self::Replay(replay) = self { Some(replay.miss(key, request)) } else { None }
    }
}

/// A file of answers.
pub(crate) struct Cache {
    path: PathBuf,
    index: Mutex<Index>,
}

/// The exclusive right to ask for an answer. Other threads and processes that need the same answer wait. The lock file is removed with the claim;
/// the lock of a killed process is released by the kernel.
pub(super) struct Claim {
    path: PathBuf,
    _file: File,
}

/// The offsets of the answers in the part of a cache that was read.
#[derive(Default)]
struct Index {
    /// The offset of the last answer under each key.
    offsets: HashMap<String, u64>,
    /// The number of lines that are not recordings.
    skipped: u64,
    /// The number of bytes that were read.
    covered: u64,
}

impl Cache {
    pub(crate) fn open(path: &Path, warn: &dyn Fn(&str)) -> Result<Self> {
        let mut index = Index::default();
        index.update(&open_for_append(path)?)?;
        if index.skipped > 0 && index.offsets.is_empty() {
            return Err(Error::config("not a cache: no line of it is a recording").in_file(path).fatal());
        }
        if index.skipped > 0 {
            warn(&format!("{}: skipped lines that are not complete recordings: {}", path.display(), index.skipped));
        }
        Ok(Self { path: path.to_owned(), index: Mutex::new(index) })
    }

    /// Finds the last answer under a key. A recording without a valid message is a miss.
    fn find(&self, key: &str) -> Result<Option<Message>> {
        let file = open_for_append(&self.path)?;
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.update(&file)?;
        let Some(offset) = index.offsets.get(key).copied() else { return Ok(None) };
        let mut line = Vec::new();
        BufReader::new(ReadAt { file: &file, offset }).read_until(b'\n', &mut line)?;
        let recording = serde_json::from_slice::<Recording<'_>>(&line).ok().filter(|recording| recording.key == key);
        Ok(recording.and_then(|recording| serde_json::from_str(recording.message.get()).ok()))
    }

    fn claim(&self, key: &str) -> Result<Claim> {
        let name: String = key.chars().skip_while(|c| *c != ':').skip(1).take(16).collect();
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{name}"));
        let path = PathBuf::from(path);
        let file = locked(&path, || {
            let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            opened.map_err(|e| Error::io("the claim of an answer", e).in_file(&path).fatal())
        })?;
        Ok(Claim { path, _file: file })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Index {
    /// Reads the lines that were added to the file.
    fn update(&mut self, file: &File) -> Result<()> {
        for_each_line(file, self.covered, |span, line| {
            // The writer of an incomplete line may still complete it.
            if !line.ends_with(b"\n") {
                return Ok(false);
            }
            match serde_json::from_slice::<Recording<'_>>(line) {
                Ok(recording) if recording.key.starts_with("sha256:") => {
                    self.offsets.insert(recording.key.to_owned(), span.offset);
                }
                _ => self.skipped += 1,
            }
            self.covered = span.offset + span.length as u64;
            Ok(true)
        })
    }
}

/// A request and its answer.
#[derive(Serialize, Deserialize)]
pub(super) struct Recording<'a> {
    pub key: &'a str,
    pub backend: &'a str,
    #[serde(borrow)]
    pub request: &'a RawValue,
    #[serde(borrow)]
    pub message: &'a RawValue,
}

/// The position of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub offset: u64,
    pub length: usize,
}

/// Encodes the line of an answer.
pub(super) fn line(key: &str, backend: &str, request: &[u8], message: &Message) -> Result<Vec<u8>> {
    let encoding = |e: serde_json::Error| Error::new(Code::Unknown, format!("encoding a recording: {e}"));
    // A replay takes these members from its own prompt.
    let bare = Message { input: Vec::new(), row: None, session_id: None, agent: None, ..message.clone() };
    let message = to_raw_value(&bare).map_err(encoding)?;
    let request = serde_json::from_slice::<&RawValue>(request).map_err(encoding)?;
    let mut line = serde_json::to_vec(&Recording { key, backend, request, message: &message }).map_err(encoding)?;
    line.push(b'\n');
    Ok(line)
}

/// Opens a file that answers are added to, and creates it if it is absent.
fn open_for_append(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(|e| {
        let kind = e.kind();
        let code = if kind == ErrorKind::NotFound { Code::NotFound } else { Code::Io };
        let error = Error::new(code, Error::from(e).message()).in_file(path).fatal();
        match kind {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                error.hint("answers are added to the file: copy it, or use --replay to only read it")
            }
            _ => error,
        }
    })
}

/// Appends a line to a locked file. If the last line is incomplete, a new one is begun.
pub(super) fn append(file: &File, path: &Path, mut line: Vec<u8>) -> Result<()> {
    let wrong = |e| Error::io("recording", e).in_file(path).fatal();
    let found = file.metadata().map_err(wrong)?;
    let mut last = [b'\n'];
    if found.is_file() && found.len() > 0 {
        file.read_exact_at(&mut last, found.len() - 1).map_err(wrong)?;
    }
    if last != [b'\n'] {
        line.insert(0, b'\n');
    }
    let mut file = file;
    let written = file.write(&line).map_err(wrong)?;
    if written < line.len() {
        return Err(Error::new(Code::Io, "the disk is full: the last recording is incomplete").in_file(path).fatal());
    }
    Ok(())
}

/// Passes the lines from an offset on to a visitor until it returns false.
pub(super) fn for_each_line(
    file: &File,
    mut offset: u64,
    mut visit: impl FnMut(Span, &[u8]) -> Result<bool>,
) -> Result<()> {
    let (mut reader, mut line) = (BufReader::with_capacity(1 << 16, ReadAt { file, offset }), Vec::new());
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 || !visit(Span { offset, length }, &line)? {
            return Ok(());
        }
        offset += length as u64;
    }
}

/// Reads a file from its own offset, which appending to the file does not change.
pub(super) struct ReadAt<'a> {
    pub file: &'a File,
    pub offset: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let length = self.file.read_at(buffer, self.offset)?;
        self.offset += length as u64;
        Ok(length)
    }
}
