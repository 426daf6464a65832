//! The plan of one run: everything the helper needs, sent as JSON over a socket and never in argv.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::place::Node;

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
    /// The text of the script: what was hashed is what runs, whatever becomes of the file.
    pub script_text: Option<Vec<u8>>,
    /// The working directory, as it was when it was decided about.
    pub cwd: Identity,
    /// Which files may be executed.
    pub profile: Profile,
    /// Whether the command is a shell that runs a line: each program that it starts is decided about, and the layers that contain
    /// it are required.
    pub line: bool,
    /// The programs that a line may start under the strict profile, beside the first: their canonical files.
    pub programs: Vec<PathBuf>,
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

impl Plan {
    /// Whether a path is a program that this run may execute, wherever it lies.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        path == self.exe.path || self.programs.iter().any(|program| program == path)
    }

    /// Whether programs that are made in the private `/tmp` run there. They do not where a declared directory lies in `/tmp`, because a rule
    /// of Landlock for a directory holds for all that is mounted in it.
    pub(super) fn runs_from_tmp(&self) -> bool {
        let View { read, write, execute, .. } = &self.view;
        let mut declared = read.iter().chain(write).chain(execute);
        self.profile == Profile::Build && !declared.any(|path| path.starts_with(TMP))
    }
}

/// The directory for temporary files, which each run has for itself.
pub(crate) const TMP: &str = "/tmp";

/// What a command sees of the file system, and what it may do there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct View {
    /// Files and directories the command may read, beyond the system's.
    pub read: Vec<PathBuf>,
    /// Files and directories it may write.
    pub write: Vec<PathBuf>,
    /// Files and directories it may execute, beyond the system's.
    pub execute: Vec<PathBuf>,
    /// What is read-only inside something writable. The way to it is pinned: no directory on it can be renamed.
    #[serde(with = "any_bytes")]
    pub protect: Vec<PathBuf>,
    /// Directories of this program in repositories. They are covered where the run has mounts of its own.
    #[serde(with = "any_bytes")]
    pub kept: Vec<PathBuf>,
    /// What is hidden inside something readable. The way to it is pinned too.
    #[serde(with = "any_bytes")]
    pub mask: Vec<PathBuf>,
    /// What is read-only, or hidden, wherever it lies, because of its name: the next run looks for it again.
    #[serde(with = "any_bytes")]
    pub protect_found: Vec<PathBuf>,
    #[serde(with = "any_bytes")]
    pub mask_found: Vec<PathBuf>,
    /// Which files and directories the paths were, when they were decided about.
    pub nodes: BTreeMap<PathBuf, Node>,
    /// Links by which programs know the declared paths: where each lies, and what it says.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Whether the command must not start where a layer is missing that confines what it reads, hides what is masked, or kills it.
    pub refuse_degraded: bool,
    /// The directory that lasts for the session and is the command's `/tmp`; none means an empty one that lasts for the command.
    pub session_tmp: Option<PathBuf>,
    /// Where the scratch directory goes when there is no mount namespace to make `/tmp` private.
    pub scratch: PathBuf,
}

/// A path as JSON whatever bytes it has: each byte a character.
pub(crate) mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn text(path: &Path) -> String {
        path.as_os_str().as_bytes().iter().map(|byte| char::from(*byte)).collect()
    }

    pub(super) fn path(text: &str) -> PathBuf {
        OsString::from_vec(text.chars().filter_map(|byte| u8::try_from(byte).ok()).collect()).into()
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(path(&String::deserialize(deserializer)?))
    }
}

/// The same for some paths.
pub(crate) mod any_bytes {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::path_bytes::{path, text};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| text(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.iter().map(|text| path(text)).collect())
    }
}

/// A file or directory, and what distinguishes it from another at the same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The canonical path.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// The device it lies on.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// Its size, modification and change time in nanoseconds, for a file or link; a directory changes all the time.
    pub content: Option<(u64, i64, i64)>,
}

impl Identity {
    /// The identity of a file or directory, from its attributes.
    pub(crate) fn of(path: &Path, meta: &fs::Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        let content = (meta.is_file() || meta.is_symlink()).then(|| {
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
    /// The one program, or those of a line, and their libraries; nothing else is executable.
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
    /// In a policy's list: a line may run without the execve listener.
    NoListener,
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
            Self::NoListener => "no_listener",
        }
    }
}
