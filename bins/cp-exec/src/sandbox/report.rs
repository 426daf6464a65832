//! Reports of the helper about a run, and orders to it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::{Layer, Network, Profile};

/// The layers a command really ran under.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the record")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Enforcement {
    /// The profile it ran under.
    pub profile: Option<Profile>,
    /// What Landlock does.
    pub landlock: Landlock,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether each program is decided about when it is started.
    #[serde(default)]
    pub listener: bool,
    /// Whether executing a file can give no rights.
    pub no_new_privs: bool,
    /// The namespaces it has for itself.
    pub namespaces: Vec<String>,
    /// Which network it sees.
    pub network: Option<Network>,
    /// The kind of control group that bounds it, or its replacement.
    pub cgroup: String,
    /// How the whole tree is killed: `pid_namespace`, `cgroup` or `subreaper`.
    pub kill: String,
    /// The user it runs as.
    pub uid: u32,
    /// Whether this program was itself in a sandbox or a container, which may give fewer layers than the machine has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outer_sandbox: bool,
    /// Processes that the command left behind, and that were killed; null where nobody counted.
    pub killed_processes: Option<u32>,
    /// What the run left behind that would have run later, and where it is now.
    #[serde(default)]
    pub guard: Vec<Quarantined>,
    /// New files and directories whose names begin with a dot, that git does not ignore and that are not guarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new_hidden: Vec<String>,
    /// Repositories that the run made, in which nothing was found that would run later.
    #[serde(default)]
    pub repositories_made: Vec<String>,
    /// What is new in the history or the index of a repository, and would run later or hide changes. It is not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
    /// Layers that were asked for and could not be had, and what is not enforced by the kernel.
    pub missing: Vec<String>,
}

/// Something that a run left behind, and that was undone after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Quarantined {
    /// Where it was.
    pub path: String,
    /// What is wrong with it, where its name does not say so.
    pub reason: Option<String>,
    /// Where it is kept.
    pub moved_to: Option<String>,
    /// Why it could not be moved.
    pub error: Option<String>,
}

impl Enforcement {
    /// Whether the command has a namespace of this kind for itself.
    pub(crate) fn has(&self, layer: Layer) -> bool {
        self.namespaces.iter().any(|name| name == layer.name())
    }
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
    /// Programs inside may connect to the supervisor; the listening socket comes along.
    Clients,
    /// The execve listener is installed; its descriptor comes along.
    Listener,
    /// The layers are in place, and the command is about to be executed.
    Ready(Box<Enforcement>),
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

impl Failure {
    /// A failure to build the sandbox. A call that the kernel does not have, or that an outer sandbox refuses, is a layer that this
    /// machine does not provide.
    pub(super) fn setup(step: &str, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        let is_refused = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
        let cause = if is_refused { Cause::Required } else { Cause::Setup };
        Self { step: step.to_owned(), message: format!("{step}: {error}"), cause }
    }

    /// The same failure of a step that builds a layer.
    pub(super) fn of_layer(self, layer: Layer) -> Self {
        match self.cause {
            Cause::Required => {
                let message = format!("this machine does not provide the layer `{}`: {}", layer.name(), self.message);
                Self { step: layer.name().to_owned(), message, ..self }
            }
            _ => self,
        }
    }

    /// A file or directory that is not what was decided about.
    pub(super) fn changed(path: &Path, why: &str) -> Self {
        Self { step: "identity".to_owned(), message: format!("{}: {why}", path.display()), cause: Cause::Changed }
    }
}

/// Whose fault it is that a command did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// A layer that the run requires is missing.
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
    /// Count the remaining processes and kill them.
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
