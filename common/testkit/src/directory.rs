//! A directory of a place: files are written with their parents and read back as text or as lines of JSON.

use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::outcome::records_of;

/// A directory that a test writes to and reads from. It is a [`Path`] too.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The directory `below`, which need not be there.
    #[must_use]
    pub fn at(&self, below: impl AsRef<Path>) -> Self {
        Self(self.0.join(below))
    }

    /// Makes the directory `below`, and what is above it.
    #[track_caller]
    #[expect(clippy::return_self_not_must_use, reason = "made for those who look for it, too")]
    pub fn directory(&self, below: impl AsRef<Path>) -> Self {
        let path = self.0.join(below);
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// Writes a file, and makes the directories above it.
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
    /// Another process writes it. A process that a test in another thread is starting would hold a file that this one
    /// has open for a moment, and the kernel executes nothing that somebody may still write to.
    #[track_caller]
    pub fn executable(&self, below: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(below);
        self.directory(path.parent().expect("a file lies in a directory"));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "rm -f \"$0\" && cat >\"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut child = command.spawn().expect("sh starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        stdin.write_all(text.as_ref()).expect("sh reads it");
        drop(stdin);
        assert!(child.wait().expect("sh ends").success(), "{} cannot be written", path.display());
        path
    }

    /// The text of a file, which must be there.
    #[track_caller]
    pub fn read(&self, below: impl AsRef<Path>) -> String {
        String::from_utf8(self.bytes(below)).expect("the file is text")
    }

    /// The bytes of a file, which must be there.
    #[track_caller]
    pub fn bytes(&self, below: impl AsRef<Path>) -> Vec<u8> {
        let path = self.0.join(below);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The text of a file that another process may not have written yet: empty until then.
    pub fn read_if_there(&self, below: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.0.join(below)).unwrap_or_default()
    }

    /// The lines of a file as JSON: of a ledger, its entries. Empty if the file does not exist.
    #[track_caller]
    pub fn records(&self, below: impl AsRef<Path>) -> Vec<Value> {
        records_of(self.read_if_there(below).as_bytes())
    }

    /// The names of what lies in it, in order. None where it is not there.
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
