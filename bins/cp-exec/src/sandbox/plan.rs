//! What travels between the program and its helper: the plan in, reports out. JSON, on a socket, never in argv.

use std::path::PathBuf;

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
    /// Files and directories the command may read, beyond the system's.
    pub read: Vec<PathBuf>,
    /// Files and directories it may write.
    pub write: Vec<PathBuf>,
    /// Files and directories it may execute, beyond the system's.
    pub execute: Vec<PathBuf>,
    /// What is read-only inside something writable.
    pub protect: Vec<PathBuf>,
    /// What is hidden inside something readable.
    pub mask: Vec<PathBuf>,
    /// Whether the command must not start where the masks cannot be made.
    pub refuse_unmasked: bool,
    /// Where the scratch directory goes when there is no mount namespace to make `/tmp` private.
    pub scratch: PathBuf,
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

/// A file or directory and what tells it from another one at the same path.
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

/// The layers a command really ran under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Enforcement {
    /// The profile it ran under.
    pub profile: Option<Profile>,
    /// What Landlock does.
    pub landlock: Landlock,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether executing a file can give no rights.
    pub no_new_privs: bool,
    /// The namespaces it has for itself.
    pub namespaces: Vec<String>,
    /// Which network it sees.
    pub network: Option<Network>,
    /// The kind of control group that bounds it, or what stands in for one.
    pub cgroup: String,
    /// How the whole tree is killed: `pid_namespace`, `cgroup` or `subreaper`.
    pub kill: String,
    /// The user it runs as.
    pub uid: u32,
    /// Processes that the command left behind, and that were killed; null where nobody counted.
    pub killed_processes: Option<u32>,
    /// Layers that were asked for and could not be had, and what is not enforced by the kernel.
    pub missing: Vec<String>,
}

/// What Landlock does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Landlock {
    /// The version of its interface in use; 0 where the kernel has none.
    pub abi: u32,
    /// `full`, `partial` or `none`.
    pub status: String,
}

/// One message from the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The init of the sandbox lives; its descriptor comes along.
    Init,
    /// The layers are in place, and the command is about to be executed.
    Ready(Enforcement),
    /// The command did not start.
    Failed(Failure),
    /// The command ended.
    Exited(Status),
    /// The rest was killed, so many processes.
    Killed(u32),
}

/// Why the command did not start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The step that failed.
    pub step: String,
    /// What went wrong, for people.
    pub message: String,
    /// Whose fault it is.
    pub cause: Cause,
}

/// Whose fault it is that a command did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// A layer the policy requires is missing.
    Required,
    /// The file or directory is not the one that was decided about.
    Changed,
    /// The kernel would not execute the file.
    Exec,
    /// The sandbox could not be built.
    Setup,
}

/// How a process ended: one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The status it returned.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
}

/// One message to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ask everything to end.
    Terminate,
    /// Count what is left, and kill it.
    Kill,
}

impl Order {
    /// The order on the wire, one byte.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }
}
