//! Answers that stand for new ones. Many processes share the file, and none of them holds it: each look at it is made anew, under its
//! lock, so what others have added is found, and a file that was merged or replaced is read as it is now.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Error, Result};

use super::index::Index;
use super::recording::open;

/// A file of answers, with an index beside it.
pub(crate) struct Cache {
    path: PathBuf,
}

/// The right to ask for an answer: who wants the same one waits, here and in other processes. The file that shows it goes with it, and where
/// the process is killed the next who asks the same takes it.
pub(in crate::engine) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Cache {
    pub(super) fn open(path: &Path, warn: &dyn Fn(&str)) -> Result<Self> {
        let cache = Self { path: path.to_owned() };
        let file = cache.file()?;
        let (entries, skipped) = Index::of(path, &file)?.counts();
        if skipped > 0 && entries == 0 {
            return Err(Error::config("not a cache: no line of it is a recording").in_file(path).fatal());
        }
        if skipped > 0 {
            warn(&format!("{}: lines that are no whole recordings, and are passed over: {skipped}", path.display()));
        }
        Ok(cache)
    }

    /// The answer to a request, by the first key that has one; of several under one key, the last.
    pub(super) fn find(&self, keys: &[String]) -> Result<Option<Message>> {
        let file = self.file()?;
        let mut index = Index::of(&self.path, &file)?;
        for key in keys {
            if let Some(message) = index.find(key)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    pub(super) fn claim(&self, key: &str) -> Result<Claim> {
        let name: String = key.chars().skip_while(|c| *c != ':').skip(1).take(16).collect();
        let path = super::index::beside(&self.path, &name);
        let file = locked(&path, || {
            let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            opened.map_err(|e| Error::io("the claim of an answer", e).in_file(&path).fatal())
        })?;
        Ok(Claim { path, _file: file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<File> {
        locked(&self.path, || open(&self.path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
