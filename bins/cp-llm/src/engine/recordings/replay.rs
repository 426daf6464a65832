//! `--replay`: equal requests get the recorded answers in order, and a request without a recording is an error that shows the nearest one.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::context::given;
use cp_common::wire::Message;
use cp_common::{Code, Error, Result};
use serde_json::{Map, Value, json};

use super::{Recording, Span, for_each_line};

/// A file of recordings that answers are taken from.
pub(crate) struct Replay {
    path: PathBuf,
    file: File,
    index: Mutex<HashMap<String, VecDeque<Span>>>,
}

impl Replay {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = given::seekable(path).map_err(Error::fatal)?;
        let (mut index, mut number) = (HashMap::<String, VecDeque<Span>>::new(), 0);
        for_each_line(&file, 0, |span, line| {
            number += 1;
            match serde_json::from_slice::<Recording<'_>>(line) {
                Ok(recording) => index.entry(recording.key.to_owned()).or_default().push_back(span),
                // The writer was killed in the middle of the last line.
                Err(_) if !line.ends_with(b"\n") => {}
                Err(e) => {
                    let error = Error::config(format!("not a recording: {e}"));
                    return Err(error.at_line(number).in_file(path).fatal());
                }
            }
            Ok(true)
        })?;
        Ok(Self { path: path.to_owned(), file, index: Mutex::new(index) })
    }

    /// Finds the answer to a request. Equal requests get their answers in the order of recording; the last answer repeats.
    pub(super) fn find(&self, key: &str) -> Result<Option<Message>> {
        let span = {
            let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            index.get_mut(key).and_then(|spans| if spans.len() > 1 { spans.pop_front() } else { spans.back().copied() })
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
        for_each_line(&self.file, 0, |_, line| {
            found = serde_json::from_slice::<Recording<'_>>(line).ok().map(|recording| recording.backend.to_owned());
            Ok(found.is_none())
        })?;
        found.ok_or_else(|| {
            Error::not_found("the file has no recordings").in_file(&self.path).hint("make one with --record").fatal()
        })
    }

    /// The error for a request without a recording, with the differences from the most similar one.
    pub(super) fn miss(&self, key: &str, request: &[u8]) -> Error {
        let asked: Value = serde_json::from_slice(request).unwrap_or_default();
        let mut nearest: Option<(String, Differences)> = None;
        // A read error leaves out the comparison.
        let _ = for_each_line(&self.file, 0, |_, line| {
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

/// The most differences that are described.
const DIFFERENCES: usize = 5;

/// The differences between a recorded request and another one.
#[derive(Default)]
pub(super) struct Differences {
    pub count: usize,
    /// Descriptions of the first differences.
    pub first: Vec<Value>,
}

impl Differences {
    pub(super) fn between(recorded: &Value, asked: &Value) -> Self {
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
