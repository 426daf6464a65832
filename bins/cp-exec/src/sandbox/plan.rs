//! The plan of one run: everything the helper needs, sent as JSON over a socket and never in argv.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Everything the helper needs to build the sandbox and start one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The words the command gets, its own name first.
    pub argv: Vec<String>,
    /// The whole environment but HOME and TMPDIR, which depend on the scratch directory obtained.
    pub env: Vec<(String, String)>,
    /// The file to execute, as it was when it was decided about.
    pub exe: Identity,
    /// The script that the file interprets, as it was when it was decided about.
    pub script: Option<Identity>,
    /// The working directory, as it was when it was decided about.
    pub cwd: Identity,
    /// Which files may be executed.
    pub profile: Profile,
    /// Which network the command sees.
    pub network: Network,
    /// Which files it sees.
    pub view: View,
    /// What the command may use up.
    pub limits: Limits,
    /// The user and group to become; none keeps those of this process.
    pub run_as: Option<(u32, u32)>,
    /// Layers without which the command must not start.
    pub require: Vec<Layer>,
    /// Whether to make a control group for the run.
    pub wants_cgroup: bool,
    /// Control groups already made for this run, to be joined before the command starts.
    pub cgroups: Vec<PathBuf>,
}

/// What a command sees of the file system, and what it may do there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct View {
    /// Files and directories the command may read, beyond the system's.
    pub read: Vec<PathBuf>,
    /// Files and directories it may write.
    pub write: Vec<PathBuf>,
    /// Files and directories it may execute, beyond the system's.
    pub execute: Vec<PathBuf>,
    /// What is read-only inside something writable.
    pub protect: Vec<PathBuf>,
    /// Repositories that get a layer of this run.
    pub repositories: Vec<PathBuf>,
    /// What is hidden inside something readable.
    pub mask: Vec<PathBuf>,
    /// Whether the command must not start where the masks cannot be made.
    pub refuse_unmasked: bool,
    /// Where the scratch directory goes when there is no mount namespace to make `/tmp` private.
    pub scratch: PathBuf,
}

/// A file or directory, and what distinguishes it from another at the same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The canonical path.
    pub path: PathBuf,
    /// The device it lies on.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// Its size, modification and change time in nanoseconds, for a file; a directory changes all the time.
    pub content: Option<(u64, i64, i64)>,
}

impl Identity {
    /// The identity of a file or directory, from its attributes.
    pub(crate) fn of(path: &Path, meta: &fs::Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        let content = meta.is_file().then(|| {
            (meta.len(), nanoseconds(meta.mtime(), meta.mtime_nsec()), nanoseconds(meta.ctime(), meta.ctime_nsec()))
        });
        Self { path: path.to_owned(), dev: meta.dev(), ino: meta.ino(), content }
    }
}

/// How much may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Profile {
    /// The one program and its libraries; nothing writable is executable.
    Strict,
    /// System programs and the declared execute paths, so that a build tool can start its children.
    Build,
}

/// The network a command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    /// No socket but local ones.
    None,
    /// An interface of its own that reaches nobody else.
    Loopback,
    /// The network of this machine.
    Host,
}

/// What one command may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Seconds of processor time for each process.
    pub cpu_seconds: u64,
    /// Bytes in one file.
    pub file_bytes: u64,
    /// Descriptors open at once.
    pub open_files: u64,
    /// Processes at once.
    pub processes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes in the private `/tmp`.
    pub scratch_bytes: u64,
}

/// A part of the enforcement that a policy can insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layer {
    /// A program cannot gain rights by being executed.
    NoNewPrivs,
    /// System calls are filtered.
    Seccomp,
    /// Files, TCP and signals are restricted by the kernel's Landlock.
    Landlock,
    /// A user namespace.
    User,
    /// A process namespace, which makes killing complete.
    Pid,
    /// A mount namespace.
    Mount,
    /// A network namespace.
    Network,
    /// A namespace for System V objects.
    Ipc,
    /// A namespace for the host name.
    Uts,
    /// A control group for processes and memory.
    Cgroup,
    /// Another user than the one who runs cp-exec.
    RunAs,
}

impl Layer {
    /// The name in a policy and on the record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoNewPrivs => "no_new_privs",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::User => "user",
            Self::Pid => "pid",
            Self::Mount => "mount",
            Self::Network => "network",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
            Self::RunAs => "run_as",
        }
    }
}
