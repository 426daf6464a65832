//! Reports of the helper about a run, and orders to the init.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::{Layer, Network, Profile};
use crate::serde_paths::path_bytes;

/// The layers under which a command ran.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the record")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Enforcement {
    /// The profile of the run.
    pub profile: Option<Profile>,
    /// The enforcement of Landlock.
    pub landlock: Landlock,
    /// True if system calls are filtered.
    pub seccomp: bool,
    /// True if each program is decided about when it starts.
    #[serde(default)]
    pub listener: bool,
    /// True if execution cannot grant rights.
    pub no_new_privs: bool,
    /// The private namespaces.
    pub namespaces: Vec<String>,
    /// The network that the command sees.
    pub network: Option<Network>,
    /// The kind of control group of the run, or its replacement.
    pub cgroup: String,
    /// The way in which all processes are killed: `pid_namespace`, `cgroup` or `subreaper`.
    pub kill: String,
    /// The user of the command.
    pub uid: u32,
    /// True if this program was itself in a sandbox or a container, which may allow fewer layers than the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outer_sandbox: bool,
    /// Processes that outlived the command and were killed; null if they were not counted.
    pub killed_processes: Option<u32>,
    /// Files of the run that other programs would have executed later, with their new paths.
    #[serde(default)]
    pub guard: Vec<Quarantined>,
    /// Repositories that the run created and that contain nothing that git would execute.
    #[serde(default)]
    pub repositories_made: Vec<String>,
    /// Layers that were requested but are not available, and rules that the kernel does not enforce.
    pub missing: Vec<String>,
}

/// A file that a run created or changed and that was quarantined after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Quarantined {
    /// The original path.
    pub path: String,
    /// The reason; null if the name shows it.
    pub reason: Option<String>,
    /// The path in quarantine.
    pub moved_to: Option<String>,
    /// The error if it could not be moved.
    pub error: Option<String>,
}

impl Enforcement {
    /// True if the run has namespaces of its own, and with them its own view of the files.
    pub(crate) fn is_private(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// True if the command has a private namespace of this kind.
    pub(crate) fn has(&self, layer: Layer) -> bool {
        self.namespaces.iter().any(|name| name == layer.name())
    }
}

/// The enforcement of Landlock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Landlock {
    /// The ABI version in use; 0 if the kernel does not support Landlock.
    pub abi: u32,
    /// `full`, `partial` or `none`.
    pub status: String,
}

/// A message of the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The init of the sandbox was started, with this pid. Sent with its pidfd.
    Init(u32),
    /// Programs inside may connect to the supervisor. Sent with the listening socket.
    Clients,
    /// The first sockets of the network namespace wait at this socket, and requests for more are served there. Sent
    /// with its descriptor.
    Namespace,
    /// The execve listener is installed. Sent with its descriptor.
    Listener,
    /// The command has a controlling terminal. Sent with the other side of its pseudo-terminal.
    Terminal,
    /// The layers are in place, and the command is about to be executed.
    Ready(Box<Enforcement>),
    /// The command did not start.
    Failed(Failure),
    /// The command was stopped, as by Ctrl-Z.
    Stopped,
    /// A path is read-only as ordered, or the reason why not.
    Covered(Result<(), String>),
    /// The command ended.
    Exited(Status),
    /// The remaining processes were killed; their number.
    Killed(u32),
}

/// The reason why the command did not start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The step that failed.
    pub step: String,
    /// The error message.
    pub message: String,
    /// The cause of the failure.
    pub cause: Cause,
}

impl Failure {
    /// A failure to build the sandbox. If the kernel does not support a call, or an outer sandbox refuses it, the
    /// machine does not provide the layer.
    pub(super) fn setup(step: &str, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        let is_refused = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
        let cause = if is_refused { Cause::Required } else { Cause::Setup };
        Self { step: step.to_owned(), message: format!("{step}: {error}"), cause }
    }

    /// The same failure, in a step that builds a layer.
    pub(super) fn of_layer(self, layer: Layer) -> Self {
        match self.cause {
            Cause::Required => {
                let message = format!("this machine does not provide the layer `{}`: {}", layer.name(), self.message);
                Self { step: layer.name().to_owned(), message, ..self }
            }
            _ => self,
        }
    }

    /// A file or directory that is not the one that was decided about.
    pub(super) fn changed(path: &Path, why: &str) -> Self {
        Self { step: "identity".to_owned(), message: format!("{}: {why}", path.display()), cause: Cause::Changed }
    }
}

/// The cause of a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// A layer that the run requires is missing.
    Required,
    /// The file or directory is not the one that was decided about.
    Changed,
    /// The kernel failed to execute the file.
    Exec,
    /// The sandbox could not be built.
    Setup,
}

/// The exit status of a process: one of the two members is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The exit code.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
}

/// A message to the init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Send SIGTERM to all processes.
    Terminate,
    /// Put the stopped command back into the foreground of its terminal, and continue it.
    Continue,
    /// Stop all processes.
    Freeze,
    /// Make a path read-only, and report whether that succeeded.
    Cover(#[serde(with = "path_bytes")] PathBuf),
    /// Continue the processes that [`Order::Freeze`] stopped.
    Thaw,
    /// Count the remaining processes and kill them.
    Kill,
}
