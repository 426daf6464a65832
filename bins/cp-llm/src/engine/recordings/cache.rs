//! `--cache`: a file of answers that processes share. The offsets of its answers are kept in memory. Each lookup reads the lines that were added
//! since the last one, so it finds the answers of other processes and notices a file that was merged or replaced.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Error, Result};

use super::{ReadAt, Recording, for_each_line, open_for_append};

/// A file of answers.
pub(crate) struct Cache {
    path: PathBuf,
    index: Mutex<Index>,
}

/// The exclusive right to ask for an answer. Other threads and processes that need the same answer wait. The lock file is removed with the claim;
/// the lock of a killed process is released by the kernel.
pub(in crate::engine) struct Claim {
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
    /// The number of bytes that were read, and the end of the last line, which identifies the file.
    covered: u64,
    tail: Vec<u8>,
}

/// The longest end of a line that identifies the file.
const TAIL_LENGTH: usize = 64;

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

    /// Finds the answer under the first key that has one. The last of several answers counts.
    pub(super) fn find(&self, keys: &[String]) -> Result<Option<Message>> {
        let file = open_for_append(&self.path)?;
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.update(&file)?;
        for key in keys {
            if let Some(message) = index.find(key, &file)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    pub(super) fn claim(&self, key: &str) -> Result<Claim> {
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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Index {
    /// Reads the lines that were added to the file, or all lines if it is another file.
    fn update(&mut self, file: &File) -> Result<()> {
        let (mut tail, start) = (vec![0; self.tail.len()], self.covered - self.tail.len() as u64);
        if file.read_exact_at(&mut tail, start).is_err() || tail != self.tail {
            *self = Self::default();
        }
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
            self.tail = line[line.len().saturating_sub(TAIL_LENGTH)..].to_vec();
            Ok(true)
        })
    }

    /// Finds the last answer under a key. A recording without a valid message is a miss.
    fn find(&mut self, key: &str, file: &File) -> Result<Option<Message>> {
        let Some(offset) = self.offsets.get(key).copied() else { return Ok(None) };
        let mut line = Vec::new();
        BufReader::new(ReadAt { file, offset }).read_until(b'\n', &mut line)?;
        match serde_json::from_slice::<Recording<'_>>(&line) {
            Ok(recording) if recording.key == key => Ok(serde_json::from_str(recording.message.get()).ok()),
            // The file was replaced, and its tail is the same by chance.
            _ => {
                *self = Self::default();
                self.update(file)?;
                if self.offsets.get(key).is_none_or(|new| *new == offset) { Ok(None) } else { self.find(key, file) }
            }
        }
    }
}
