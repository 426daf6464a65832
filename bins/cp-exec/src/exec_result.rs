//! `exec_result`: the outcome of a command.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::wire::{Receipt, Reply, bytes_of};
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The outcome of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["stdout", "stderr", "streams", "denied", "connections", "files_changed"])))]
pub(crate) struct ExecResult {
    /// The words of the command.
    pub argv: Vec<String>,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
    /// The exit status, if the command exited.
    pub return_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// True if the deadline ended the command.
    pub timed_out: bool,
    /// True if output was discarded.
    pub truncated: bool,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// The executed file.
    pub exe: Executable,
    /// The layers of the sandbox that were in force.
    pub enforcement: Box<RawValue>,
    /// Details about streams that were truncated or are not UTF-8.
    pub streams: Box<RawValue>,
    /// Number of programs that the command started.
    pub steps: u64,
    /// Programs that the command was not allowed to start, at most the first 100.
    pub denied: Vec<DeniedStep>,
    /// Connections to destinations of the policy; null if there were none.
    pub connections: Option<Connections>,
    /// Files that the command created, changed and removed in writable directories; null if there were none.
    pub files_changed: Option<FilesChanged>,
    /// Receipt of the ledger entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted")]
    pub untrusted: Vec<String>,
}

/// Files that a command created, changed and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FilesChanged {
    /// Number of new paths.
    pub created: u64,
    /// Number of paths with changed content or permissions.
    pub changed: u64,
    /// Number of removed paths.
    pub removed: u64,
    /// The first changes, in order of path.
    pub files: Vec<FileChange>,
    /// True if `files` is incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl FilesChanged {
    /// All changes, with their numbers.
    pub(crate) fn of(files: Vec<FileChange>) -> Self {
        let mut changed = Self::default();
        for file in &files {
            changed.count(file.change);
        }
        Self { files, ..changed }
    }

    /// Counts a change.
    pub(crate) fn count(&mut self, change: ChangeKind) {
        *match change {
            ChangeKind::Created => &mut self.created,
            ChangeKind::Changed | ChangeKind::Mode => &mut self.changed,
            ChangeKind::Removed => &mut self.removed,
        } += 1;
    }
}

/// One path that a command changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FileChange {
    /// The absolute path.
    pub path: String,
    /// Base64 of the path, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// The kind of change.
    pub change: ChangeKind,
    /// The state before; null if the path did not exist.
    pub before: Option<FileState>,
    /// The state after; null if the path no longer exists.
    pub after: Option<FileState>,
}

impl FileChange {
    /// The change from one state of a path to another.
    pub(crate) fn new(path: &Path, before: Option<FileState>, after: Option<FileState>) -> Self {
        let change = match (&before, &after) {
            (None, _) => ChangeKind::Created,
            (_, None) => ChangeKind::Removed,
            (Some(before), Some(after)) if before.differs_in_mode(after) => ChangeKind::Mode,
            _ => ChangeKind::Changed,
        };
        Self { path: path.display().to_string(), path_bytes: bytes_of(path), change, before, after }
    }

    /// The path, also if it is not UTF-8.
    pub(crate) fn path(&self) -> PathBuf {
        let bytes = self.path_bytes.as_ref().and_then(|bytes| BASE64_STANDARD.decode(bytes).ok());
        bytes.map_or_else(|| PathBuf::from(&self.path), |bytes| OsString::from_vec(bytes).into())
    }

    /// The file types before and after.
    pub(crate) fn kinds(&self) -> [Option<FileKind>; 2] {
        [&self.before, &self.after].map(|state| state.as_ref().map(|state| state.kind))
    }

    /// The hashes before and after.
    pub(crate) fn hashes(&self) -> [Option<Hash>; 2] {
        [&self.before, &self.after].map(|state| state.as_ref().and_then(FileState::hash))
    }
}

/// The kind of change of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// The path did not exist before.
    Created,
    /// The file was written, or its type changed.
    Changed,
    /// The path no longer exists.
    Removed,
    /// Only the permissions changed.
    Mode,
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FileState {
    /// The file type.
    pub kind: FileKind,
    /// The permissions in octal.
    pub permissions: String,
    /// The hash of a regular file; absent if the content was not kept or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl FileState {
    pub(crate) fn new(kind: FileKind, mode: u32, hash: Option<Hash>, target: Option<String>) -> Self {
        Self { kind, permissions: format!("{mode:o}"), sha256: hash.map(|hash| hash.to_string()), target }
    }

    /// True if only the permissions differ.
    fn differs_in_mode(&self, other: &Self) -> bool {
        self.permissions != other.permissions
            && (self.kind, &self.sha256, &self.target) == (other.kind, &other.sha256, &other.target)
    }

    pub(crate) fn hash(&self) -> Option<Hash> {
        Hash::parse(self.sha256.as_deref()?)
    }

    pub(crate) fn mode(&self) -> Result<u32> {
        u32::from_str_radix(&self.permissions, 8).map_err(|_| Error::new(Code::Integrity, "permissions are not octal"))
    }
}

/// The type of a file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Immutable, IntoBytes, KnownLayout, TryFromBytes,
)]
#[repr(u8)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// A program that a command was not allowed to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeniedStep {
    /// The words of the denied command.
    pub argv: Vec<String>,
    /// The rule that denied it.
    pub rule: String,
    /// The reason.
    pub reason: String,
    /// The approval that it waits for; null if the denial is final.
    pub approval: Option<String>,
}

/// Connections of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Connections {
    /// Number of allowed connections.
    pub allowed: u64,
    /// Number of refused connections and of questions about names that are not allowed.
    pub refused: u64,
    /// Bytes that the command received.
    pub bytes_in: u64,
    /// Bytes that the command sent.
    pub bytes_out: u64,
    /// The first refusals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_refused: Vec<RefusedConnection>,
}

/// Equal refusals of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RefusedConnection {
    /// The name.
    pub name: String,
    /// The port; null for a question about the name.
    pub port: Option<u16>,
    /// The address of the name outside of the sandbox, if it was resolved.
    pub address: Option<String>,
    /// The rule that refused it: `network`, `private_address` or `limit`.
    pub rule: String,
    /// The command that would allow it for this project; null for a name that cannot be listed.
    pub allow: Option<String>,
    /// Number of refusals.
    pub count: u64,
}

/// An executed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Executable {
    /// Its path, absolute and without links.
    pub path: String,
    /// The hash of its bytes, `sha256:` and 64 hex digits.
    pub sha256: String,
}

impl Reply for ExecResult {
    fn text(&self) -> String {
        [self.stdout.trim_end(), self.stderr.trim_end()]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
}
