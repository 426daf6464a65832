//! A directory of a place. Files are written with their parent directories, and read as text or as lines of JSON.

use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::outcome::records_of;
use crate::spawn::spawn;

/// A directory that a test writes to and reads from. It dereferences to [`Path`].
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the directory `below`, which need not exist.
    #[must_use]
    pub fn at(&self, below: impl AsRef<Path>) -> Self {
        Self(self.0.join(below))
    }

    /// Creates the directory `below` and its parents.
    #[track_caller]
    #[expect(clippy::return_self_not_must_use, reason = "made for those who look for it, too")]
    pub fn directory(&self, below: impl AsRef<Path>) -> Self {
        let path = self.0.join(below);
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// Writes a file and creates its parent directories.
    #[track_caller]
    pub fn write(&self, below: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(below);
        let above = path.parent().expect("a file lies in a directory");
        std::fs::create_dir_all(above).unwrap_or_else(|e| panic!("{}: {e}", above.display()));
        std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Writes a file that everybody may execute.
    ///
    /// Another process writes it, because a process that a test in another thread is forking would briefly inherit the
    /// open file, and the kernel does not execute a file that is open for writing.
    #[track_caller]
    pub fn executable(&self, below: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(below);
        self.directory(path.parent().expect("a file lies in a directory"));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "rm -f \"$0\" && cat >\"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut child = spawn(&mut command).expect("sh starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        stdin.write_all(text.as_ref()).expect("sh reads it");
        drop(stdin);
        assert!(child.wait().expect("sh ends").success(), "{} cannot be written", path.display());
        path
    }

    /// Returns the text of a file, which must exist.
    #[track_caller]
    pub fn read(&self, below: impl AsRef<Path>) -> String {
        String::from_utf8(self.bytes(below)).expect("the file is text")
    }

    /// Returns the bytes of a file, which must exist.
    #[track_caller]
    pub fn bytes(&self, below: impl AsRef<Path>) -> Vec<u8> {
        let path = self.0.join(below);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns the text of a file, or an empty text if another process has not written it yet.
    pub fn read_if_there(&self, below: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.0.join(below)).unwrap_or_default()
    }

    /// Returns the lines of a file as JSON, such as the entries of a ledger. Empty if the file does not exist.
    #[track_caller]
    pub fn records(&self, below: impl AsRef<Path>) -> Vec<Value> {
        records_of(self.read_if_there(below).as_bytes())
    }

    /// Returns the names in the directory, sorted. Empty if it does not exist.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Directory {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<std::ffi::OsStr> for Directory {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.0.as_os_str()
    }
}
