//! `exec_result`: what a command did.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Receipt, Reply};

/// What a command did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["stdout", "stderr", "streams", "denied", "files_changed"])))]
pub struct ExecResult {
    /// The words it was started with.
    pub argv: Vec<String>,
    /// What it wrote on standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// What it wrote on standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
    /// Its exit status, where it left by itself.
    pub return_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ran into the deadline.
    pub timed_out: bool,
    /// Whether output was left out.
    pub truncated: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// The file that was executed.
    pub exe: Executable,
    /// The layers of the sandbox that were in force.
    pub enforcement: Box<RawValue>,
    /// More about streams that were cut or are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Box<RawValue>>,
    /// How many programs it started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u64,
    /// Programs that it was kept from starting, at most the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<DeniedStep>,
    /// The files that it created, changed and removed where it may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<FilesChanged>,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

/// Files that a command created, changed and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilesChanged {
    /// How many paths are new.
    pub created: u64,
    /// How many paths have another content or other permissions.
    pub changed: u64,
    /// How many paths are gone.
    pub removed: u64,
    /// The first of them, by path.
    pub files: Vec<FileChange>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One path that a command changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// The path, absolute.
    pub path: String,
    /// Its bytes in base64 where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// What happened to it.
    pub change: ChangeKind,
    /// What it was; null where nothing was there.
    pub before: Option<FileState>,
    /// What it is; null where nothing is there.
    pub after: Option<FileState>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Nothing was there.
    Created,
    /// It has another content, or is of another kind.
    Changed,
    /// Nothing is there any more.
    Removed,
    /// Only its permissions are others.
    Mode,
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileState {
    /// What it is.
    pub kind: FileKind,
    /// Its permissions in octal.
    pub permissions: String,
    /// The hash of a regular file; absent where it was not kept or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The text of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What a path can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// A program that a command was kept from starting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeniedStep {
    /// The words it would have been started with.
    pub argv: Vec<String>,
    /// The rule that decided.
    pub rule: String,
    /// The reason.
    pub reason: String,
    /// The approval that it awaits; null where it is refused for good.
    pub approval: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A file that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Executable {
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
