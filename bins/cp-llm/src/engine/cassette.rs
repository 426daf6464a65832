//! Recordings of answers: what was asked, by the hash of the request, and what came. `--record` makes one, `--replay` answers from
//! one and sends nothing, `--cache` does both.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::context::given;
use cp_common::wire::Message;
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What a cassette is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Answers are added.
    Record,
    /// Answers are taken, each in its turn, and a miss is an error.
    Replay,
    /// Answers are taken, and added where there is none.
    Cache,
}

/// A file of recordings.
pub(crate) struct Cassette {
    path: PathBuf,
    file: File,
    mode: Use,
    index: Mutex<HashMap<String, VecDeque<Span>>>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    offset: u64,
    length: usize,
}

#[derive(Serialize, Deserialize)]
struct Recording<'a> {
    key: &'a str,
    backend: &'a str,
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    message: &'a RawValue,
}

/// How many differences to the nearest recording are printed.
const DIFFERENCES: usize = 5;

impl Cassette {
    /// Opens a cassette, and makes it where it is written to.
    pub(crate) fn open(path: &Path, mode: Use) -> Result<Self> {
        let writes = mode != Use::Replay;
        if let (true, Some(directory)) = (mode == Use::Cache, path.parent()) {
            cp_common::home::make_directory(directory)?;
        }
        let file = if writes {
            let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
            opened.map_err(|e| {
                let code = if e.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Io };
                Error::new(code, Error::from(e).message()).in_file(path).fatal()
            })?
        } else {
            given::seekable(path).map_err(Error::fatal)?
        };
        let cassette = Self { path: path.to_owned(), file, mode, index: Mutex::default() };
        if mode != Use::Record {
            cassette.read_index()?;
        }
        Ok(cassette)
    }

    fn read_index(&self) -> Result<()> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        self.each(|number, span, line| {
            match serde_json::from_slice::<Recording<'_>>(line) {
                Ok(recording) => index.entry(recording.key.to_owned()).or_default().push_back(span),
                // The writer was killed in the middle of the last line.
                Err(_) if !line.ends_with(b"\n") => {}
                Err(e) => {
                    return Err(Error::config(format!("not a recording: {e}"))
                        .at_line(number)
                        .in_file(&self.path)
                        .fatal());
                }
            }
            Ok(true)
        })
    }

    /// Reads the file from its start, line by line, until the visitor has had enough.
    fn each(&self, mut visit: impl FnMut(u64, Span, &[u8]) -> Result<bool>) -> Result<()> {
        let mut reader = BufReader::new(At { file: &self.file, offset: 0 });
        let (mut offset, mut line) = (0, Vec::new());
        for number in 1.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if length == 0 || !visit(number, Span { offset, length }, &line)? {
                break;
            }
            offset += length as u64;
        }
        Ok(())
    }

    /// The recorded answer to a request, if there is one. Replayed answers to equal requests come in the order they were recorded;
    /// the last one stays.
    pub(super) fn find(&self, key: &str) -> Result<Option<Message>> {
        let span = {
            let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(spans) = index.get_mut(key) else { return Ok(None) };
            if self.mode == Use::Replay && spans.len() > 1 { spans.pop_front() } else { spans.back().copied() }
        };
        let Some(span) = span else { return Ok(None) };
        let mut line = vec![0; span.length];
        self.file.read_exact_at(&mut line, span.offset)?;
        let message = serde_json::from_slice::<Recording<'_>>(&line)
            .and_then(|recording| serde_json::from_str(recording.message.get()))
            .map_err(|e| {
                Error::new(Code::Integrity, format!("the recording changed while it was read: {e}")).in_file(&self.path)
            })?;
        Ok(Some(message))
    }

    /// The backend of the first recording.
    pub(crate) fn backend(&self) -> Result<String> {
        let mut found = None;
        self.each(|_, _, line| {
            found = serde_json::from_slice::<Recording<'_>>(line).ok().map(|recording| recording.backend.to_owned());
            Ok(found.is_none())
        })?;
        found.ok_or_else(|| {
            Error::not_found("the file has no recordings").in_file(&self.path).hint("make one with --record").fatal()
        })
    }

    /// Whether answers come from nowhere else: a miss is an error.
    pub(crate) fn is_replayed(&self) -> bool {
        self.mode == Use::Replay
    }

    /// Whether answers of earlier runs stand for new ones.
    pub(super) fn is_cache(&self) -> bool {
        self.mode == Use::Cache
    }

    /// The name that the ledger has for an answer from here.
    pub(super) fn name(&self) -> &'static str {
        match self.mode {
            Use::Record => "record",
            Use::Replay => "replay",
            Use::Cache => "cache",
        }
    }

    /// Adds an answer, where answers are added.
    pub(super) fn keep(&self, key: &str, backend: &str, request: &[u8], message: &Message) -> Result<()> {
        if self.mode == Use::Replay {
            return Ok(());
        }
        let encoding = |e: serde_json::Error| Error::new(Code::Unknown, format!("encoding a recording: {e}"));
        // The turns, the row and the names are the prompt's and come from it again.
        let bare = Message { input: Vec::new(), row: None, session_id: None, agent: None, ..message.clone() };
        let message = serde_json::value::to_raw_value(&bare).map_err(encoding)?;
        let request = serde_json::from_slice::<&RawValue>(request).map_err(encoding)?;
        let mut line = serde_json::to_vec(&Recording { key, backend, request, message: &message }).map_err(encoding)?;
        line.push(b'\n');
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        // One write at the end of the file, which other processes may share.
        let written = (&self.file).write(&line).map_err(|e| Error::io("recording", e).in_file(&self.path).fatal())?;
        if written < line.len() {
            return Err(Error::new(Code::Io, "the disk is full: the last recording is incomplete")
                .in_file(&self.path)
                .fatal());
        }
        if self.mode == Use::Cache {
            let end = self.file.metadata()?.len();
            let span = Span { offset: end.saturating_sub(line.len() as u64), length: line.len() };
            let mut back = vec![0; line.len()];
            // Another process may have written behind us; then the next run finds the line.
            if self.file.read_exact_at(&mut back, span.offset).is_ok() && back == line {
                index.entry(key.to_owned()).or_default().push_back(span);
            }
        }
        Ok(())
    }

    /// The error for a request that was never recorded: with the nearest recording, and where it differs.
    pub(super) fn miss(&self, key: &str, request: &[u8]) -> Error {
        let asked: Value = serde_json::from_slice(request).unwrap_or_default();
        let mut nearest: Option<(String, Differences)> = None;
        // What cannot be read any more is not the nearest.
        let _ = self.each(|_, _, line| {
            if let Ok(recording) = serde_json::from_slice::<Recording<'_>>(line) {
                let recorded: Value = serde_json::from_str(recording.request.get()).unwrap_or_default();
                let differences = Differences::between(&recorded, &asked);
                if nearest.as_ref().is_none_or(|(_, fewest)| differences.count < fewest.count) {
                    nearest = Some((recording.key.to_owned(), differences));
                }
            }
            Ok(nearest.as_ref().is_none_or(|(_, fewest)| fewest.count > 1))
        });
        let file = self.path.display().to_string();
        let error =
            Error::not_found(format!("{file} has no recording of this request")).with("file", file).with("key", key);
        match nearest {
            None => error.hint("the file has no recordings: make one with --record"),
            Some((nearest, differences)) => error
                .with("nearest", nearest)
                .with("differences", differences.count)
                .with("difference", differences.first)
                .with("_untrusted", vec!["/difference"])
                .hint("the request differs from the nearest recording as shown; record it again with --record"),
        }
    }
}

/// Where a recorded request and another one differ.
#[derive(Default)]
struct Differences {
    count: usize,
    /// The first few, described.
    first: Vec<Value>,
}

impl Differences {
    fn between(recorded: &Value, asked: &Value) -> Self {
        let mut differences = Self::default();
        differences.add("", recorded, asked);
        differences
    }

    fn add(&mut self, path: &str, recorded: &Value, asked: &Value) {
        match (recorded, asked) {
            (Value::Object(a), Value::Object(b)) => {
                for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                    let member = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                    self.add(&format!("{path}/{name}"), &member(a), &member(b));
                }
            }
            (Value::Array(a), Value::Array(b)) => {
                for n in 0..a.len().max(b.len()) {
                    let element = |list: &[Value]| list.get(n).cloned().unwrap_or_default();
                    self.add(&format!("{path}/{n}"), &element(a), &element(b));
                }
            }
            (a, b) if a == b => {}
            (a, b) => {
                self.count += 1;
                if self.first.len() < DIFFERENCES {
                    self.first.push(json!({"path": path, "recorded": short(a), "asked": short(b)}));
                }
            }
        }
    }
}

fn short(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > 80 => {
            Value::from(text.chars().take(80).collect::<String>() + "…")
        }
        Value::Object(_) | Value::Array(_) => short(&Value::from(value.to_string())),
        other => other.clone(),
    }
}

/// Reads a file from an offset of its own, so that appending does not move it.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl std::io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.file.read_at(buffer, self.offset)?;
        self.offset += length as u64;
        Ok(length)
    }
}
