//! A bundle as a directory: a line that counts its files, then for each a line with its name and length, and its bytes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Component, Path, PathBuf};

use cp_common::{Code, Error, Result, signals};
use cp_ledger::read::source::{beginning_of, open_source};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// The first line of a bundle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    format: String,
    files: u64,
}

/// The line before the bytes of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// Its name below the directory that the bundle stands for.
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

impl Start {
    pub(crate) fn of(files: usize) -> Self {
        Self { format: "cp-bundle/1".to_owned(), files: files as u64 }
    }
}

/// How every bundle begins.
const BEGINNING: &[u8] = b"{\"format\":\"cp-bundle/1\",";

/// The longest line between the files, in bytes.
const LONGEST: u64 = 64 << 10;

/// A record as its line.
pub(crate) fn line_of(record: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record).map_err(|e| Error::validation(e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

/// A bundle that was unpacked. Its directory is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Unpacked {
    bundle: PathBuf,
    directory: TempDir,
}

impl Unpacked {
    /// Unpacks a file or standard input; none if it is not a bundle.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        if beginning_of(path, BEGINNING.len())? != BEGINNING {
            return Ok(None);
        }
        let directory =
            TempDir::with_prefix("cp-log-").map_err(|e| Error::io("cannot unpack the bundle", e).in_file(path))?;
        let reader = BufReader::with_capacity(256 << 10, open_source(path)?.reader());
        let mut input = Input { reader, bundle: path, offset: 0 };
        let head: Start = input.line()?;
        for _ in 0..head.files {
            let part: Part = input.line()?;
            input.file(&part, directory.path())?;
        }
        if !input.peek()?.is_empty() {
            return Err(input.damaged("there is something after the last file"));
        }
        Ok(Some(Self { bundle: path.to_owned(), directory }))
    }

    /// The directory with its files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The name of one of its files for people: the bundle, and the name in it.
    pub(crate) fn name_of(&self, file: &Path) -> PathBuf {
        file.strip_prefix(self.directory()).map_or_else(|_| file.to_owned(), |name| self.bundle.join(name))
    }
}

/// A bundle that is read.
struct Input<'a> {
    reader: BufReader<Box<dyn Read + Send>>,
    bundle: &'a Path,
    offset: u64,
}

impl Input<'_> {
    fn damaged(&self, what: &str) -> Error {
        Error::new(Code::Integrity, format!("byte {} of the bundle: {what}", self.offset))
            .with("offset", self.offset)
            .in_file(self.bundle)
            .hint("ask for the bundle again")
            .fatal()
    }

    /// The bytes that come next; none at the end.
    fn peek(&mut self) -> Result<&[u8]> {
        signals::check()?;
        self.reader.fill_buf().map_err(|e| Error::io("cannot read", e).in_file(self.bundle))
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST).read_until(b'\n', &mut line);
        read.map_err(|e| Error::io("cannot read", e).in_file(self.bundle))?;
        let found = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        let found = found.ok_or_else(|| self.damaged("the name and the length of the next file are not here"))?;
        self.offset += line.len() as u64;
        Ok(found)
    }

    /// Writes the next bytes to a file, which must be below the directory and new.
    fn file(&mut self, part: &Part, directory: &Path) -> Result<()> {
        let path = Path::new(&part.path);
        let is_plain = path.components().all(|one| matches!(one, Component::Normal(_)));
        if !is_plain || path.file_name().is_none() {
            return Err(self.damaged(&format!("`{}` is not the name of a file below a directory", part.path)));
        }
        let to = directory.join(path);
        let made = std::fs::create_dir_all(to.parent().unwrap_or(directory)).and_then(|()| File::create_new(&to));
        let mut file = made.map_err(|e| self.damaged(&format!("`{}` cannot be unpacked: {e}", part.path)))?;
        let mut left = part.bytes;
        while left > 0 {
            let ready = self.peek()?;
            if ready.is_empty() {
                return Err(self.damaged(&format!("`{}` is cut: {left} bytes are missing", part.path)));
            }
            let count = ready.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let written = file.write_all(&ready[..count]);
            written.map_err(|e| Error::io("cannot unpack the bundle", e).in_file(self.bundle).fatal())?;
            self.reader.consume(count);
            (self.offset, left) = (self.offset + count as u64, left - count as u64);
        }
        Ok(())
    }
}
