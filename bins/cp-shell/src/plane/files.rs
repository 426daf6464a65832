//! Reading the files of a tree: each read is declared with the real path and the hash of the bytes that were read.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cp_common::confirm::hex;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::plane::Failure;
use crate::plane::table::Table;

/// The largest file that is read whole.
const WHOLE: u64 = 64 << 20;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Read {
    /// Its real path.
    pub(crate) path: String,
    /// The hash of the bytes that were read, `sha256:` and 64 hex digits.
    pub(crate) hash: String,
}

/// The files below a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    reads: RefCell<Vec<Read>>,
}

impl Files {
    /// Those below `root`, a real path.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, reads: RefCell::default() }
    }

    /// The root, a real path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What was read since this was asked last.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        self.reads.take()
    }

    /// Declares a read.
    fn declare(&self, path: &Path, hash: String) {
        let read = Read { path: path.display().to_string(), hash };
        let mut reads = self.reads.borrow_mut();
        if !reads.contains(&read) {
            reads.push(read);
        }
    }

    /// The real path of a file below the root and the open file; none if there is no such file.
    fn open(&self, below: &Path) -> Result<Option<(PathBuf, File)>, Failure> {
        let path = match self.root.join(below).canonicalize() {
            Ok(path) => path,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(failed(below, &e)),
        };
        if !path.starts_with(&self.root) {
            return Err(Failure::handler(format!("{} leads outside of the tree", below.display()))
                .with("file", below.display().to_string()));
        }
        // Not blocking: a pipe in the place of a file must not make a request hang.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default())
            .open(&path)
            .map_err(|e| failed(below, &e))?;
        let kind = file.metadata().map_err(|e| failed(below, &e))?;
        if !kind.is_file() {
            return Err(
                Failure::handler(format!("{} is no file", below.display())).with("file", below.display().to_string())
            );
        }
        Ok(Some((path, file)))
    }

    /// The bytes of a file; none if there is no such file.
    pub(crate) fn bytes(&self, below: impl AsRef<Path>) -> Result<Option<Rc<[u8]>>, Failure> {
        let below = below.as_ref();
        let Some((path, mut file)) = self.open(below)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.by_ref().take(WHOLE + 1).read_to_end(&mut bytes).map_err(|e| failed(below, &e))?;
        if bytes.len() as u64 > WHOLE {
            return Err(Failure::handler(format!("{} is larger than {} MiB", below.display(), WHOLE >> 20)));
        }
        self.declare(&path, hash_of(&bytes));
        Ok(Some(bytes.into()))
    }

    /// The text of a file; none if there is no such file.
    pub(crate) fn text(&self, below: impl AsRef<Path>) -> Result<Option<String>, Failure> {
        let below = below.as_ref();
        let Some(bytes) = self.bytes(below)? else { return Ok(None) };
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(e) => Err(damaged(below, &format!("not UTF-8: byte {}", e.valid_up_to()))),
        }
    }

    /// The JSON of a file; none if there is no such file.
    pub(crate) fn json(&self, below: impl AsRef<Path>) -> Result<Option<Value>, Failure> {
        let below = below.as_ref();
        let Some(bytes) = self.bytes(below)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| damaged(below, &format!("not JSON: {e}")))
    }

    /// The rows of a registry; none at all if there is no such file.
    pub(crate) fn table(&self, below: impl AsRef<Path>) -> Result<Table, Failure> {
        let text = self.text(below)?;
        Ok(text.map_or_else(Table::default, |text| Table::parse(&text)))
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub(crate) fn names(&self, below: impl AsRef<Path>) -> Result<Vec<String>, Failure> {
        let below = below.as_ref();
        let listing = match self.root.join(below).read_dir() {
            Ok(listing) => listing,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
            Err(e) => return Err(failed(below, &e)),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|e| failed(below, &e))?;
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }
}

/// The hash of bytes.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn failed(below: &Path, error: &std::io::Error) -> Failure {
    let error = cp_common::Error::io("reading", std::io::Error::from(error.kind()));
    Failure::handler(format!("{}: {error}", below.display())).with("file", below.display().to_string())
}

/// A file of the tree that is not as it should be.
pub(crate) fn damaged(below: &Path, how: &str) -> Failure {
    Failure::handler(format!("{}: {how}", below.display()))
        .with("file", below.display().to_string())
        .hint("restore the file, or correct it")
}
