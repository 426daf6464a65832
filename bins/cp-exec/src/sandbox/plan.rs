//! The plan of one run: the input of the helper, sent as JSON over a socket and never in argv.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};

use crate::file_id::FileId;
use crate::nofollow::{Link, Node};
use crate::serde_paths::{any_bytes, path_bytes};

/// Everything that the helper needs to build the sandbox and start one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The arguments of the command, its own name first.
    pub argv: Vec<String>,
    /// The environment except HOME and TMPDIR, which depend on the scratch directory.
    pub env: Vec<(String, String)>,
    /// The file to execute, with its identity at the time of the decision.
    pub exe: Identity,
    /// The script that this file interprets, with its identity at the time of the decision, and its text that was
    /// hashed. The text is executed even if the file changes.
    pub script: Option<(Identity, Vec<u8>)>,
    /// The working directory, with its identity at the time of the decision.
    pub cwd: Identity,
    /// The files that may be executed.
    pub profile: Profile,
    /// The programs that a line may start under the strict profile, in addition to its shell: their canonical files.
    #[serde(with = "any_bytes")]
    pub programs: Vec<PathBuf>,
    /// The network that the command sees.
    pub network: cp_egress::Network,
    /// False if the command gets local sockets only, whatever its network is.
    pub sockets: bool,
    /// The files that the command sees.
    pub view: View,
    /// The resource limits of the command.
    pub limits: Limits,
    /// Layers without which the command must not start.
    pub require: Vec<Layer>,
    /// The control group of this run, which the command joins before it starts.
    pub cgroup: Option<PathBuf>,
    /// True if the command has a pseudo-terminal as its controlling terminal. Without one it has none.
    pub has_terminal: bool,
}

impl Plan {
    /// True if a path is a program that this run may execute.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        path == self.exe.path || self.programs.iter().any(|program| program == path)
    }

    /// The kind of the network.
    pub(crate) fn network_kind(&self) -> Network {
        match self.network {
            _ if !self.sockets => Network::None,
            cp_egress::Network::Loopback => Network::Loopback,
            cp_egress::Network::Host => Network::Host,
            cp_egress::Network::Names(_) => Network::Names,
        }
    }

    /// True if programs in the private `/tmp` are executable. They are not if a declared directory lies in `/tmp`,
    /// because a Landlock rule for a directory applies to everything mounted in it.
    pub(super) fn runs_from_tmp(&self) -> bool {
        let is_shown = |place: &Place| place.operation <= Operation::Execute && place.path.starts_with(TMP);
        self.profile == Profile::Build && !self.view.places.iter().any(is_shown)
    }

    /// The value of TMPDIR in a private view. In the build profile programs in it are executable, because build tools
    /// compile programs there and run them.
    pub(super) fn tmpdir(&self) -> &'static Path {
        let separate = self.profile == Profile::Build && !self.runs_from_tmp();
        Path::new(if separate { RUNNABLE } else { TMP })
    }
}

/// The directory of this program in the view.
pub(crate) const OWN_FILES: &str = "/run/cp-exec";

/// The home directory of each run that has a view of its own.
pub(crate) const HOME: &str = "/tmp/home";

/// The directory for temporary files, which is private to each run.
pub(crate) const TMP: &str = "/tmp";

/// The directory in [`TMP`] whose programs are executable if those of the whole `/tmp` are not.
pub(super) const RUNNABLE: &str = "/tmp/run";

/// The view of the file system, with the permitted access.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct View {
    /// What is done with paths of the machine, in addition to the system's.
    pub places: Vec<Place>,
    /// Writable directories with the state of an agent, whose changes are not recorded.
    #[serde(with = "any_bytes")]
    pub state: Vec<PathBuf>,
    /// Links through which programs use the declared paths.
    pub links: Vec<Link>,
    /// The directory of the session that is the command's `/tmp`; `None` means an empty one for this command.
    pub session_tmp: Option<PathBuf>,
    /// Files of this program in [`OWN_FILES`]: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// The scratch directory that is used without a mount namespace, in which `/tmp` would be private.
    #[serde(with = "path_bytes")]
    pub scratch: PathBuf,
}

/// What is done with a path. A path may be read, written and executed; of the others the last one in this order wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operation {
    Read,
    Write,
    Execute,
    /// It is writable inside a read-only path.
    Writable,
    /// It is read-only inside a writable path.
    ReadOnly,
    /// It is empty, but readable, because programs that search a whole tree fail at an unreadable directory.
    Empty,
    /// It is empty and without permissions.
    Hidden,
}

/// An operation on a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    pub operation: Operation,
    /// True if no directory above it can be renamed. A path that was found by its name is found again by the next run.
    pub is_pinned: bool,
    /// Device and inode at the time of the decision, if the sandbox must find the same file.
    pub node: Option<Node>,
}

impl Place {
    pub(crate) fn new(path: &Path, operation: Operation, is_pinned: bool) -> Self {
        // A path of a module may end in a slash.
        Self { path: path.components().collect(), operation, is_pinned, node: None }
    }
}

/// True if a path is a tree or lies in it. Their bytes are compared, because thousands are for each run: both are absolute,
/// and without `.`, `..` and superfluous slashes.
pub(super) fn lies_in(path: &Path, tree: &Path) -> bool {
    let (path, tree) = (path.as_os_str().as_encoded_bytes(), tree.as_os_str().as_encoded_bytes());
    path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || tree == b"/")
}

impl View {
    pub(crate) fn add(&mut self, operation: Operation, is_pinned: bool, paths: impl IntoIterator<Item = PathBuf>) {
        self.places.extend(paths.into_iter().map(|path| Place::new(&path, operation, is_pinned)));
    }

    /// The paths of an operation, in the order in which they were added.
    pub(crate) fn of(&self, operation: Operation) -> impl Iterator<Item = &PathBuf> {
        self.places.iter().filter(move |place| place.operation == operation).map(|place| &place.path)
    }

    /// Device and inode of a path at the time of the decision.
    pub(super) fn node_of(&self, path: &Path) -> Option<Node> {
        self.places.iter().find_map(|place| place.node.filter(|_| place.path.as_os_str() == path.as_os_str()))
    }

    /// True if a path is, or lies in, one of an operation.
    pub(crate) fn is_within(&self, operation: Operation, path: &Path) -> bool {
        self.of(operation).any(|root| lies_in(path, root))
    }
}

/// A file or directory, identified independently of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The canonical path.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    pub node: Node,
    /// What changes with the content of a file or link. A directory has none, because it changes often.
    pub content: Option<FileId>,
}

impl Identity {
    /// The identity of a file or directory, from its attributes.
    pub(crate) fn of(path: &Path, meta: &fs::Metadata) -> Self {
        let id = FileId::from(meta);
        let content = (meta.is_file() || meta.is_symlink()).then_some(id);
        Self { path: path.to_owned(), node: id.node(), content }
    }
}

/// The programs that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Profile {
    /// The one program, or the programs of a line, and their libraries.
    Strict,
    /// System programs and the declared execute paths, so that a build tool can start child processes.
    Build,
}

/// The network that a command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    /// Local sockets only.
    None,
    /// A private loopback interface.
    Loopback,
    /// A private loopback interface, on which the destinations of the plan are served.
    Names,
    /// The network of this machine.
    Host,
}

/// The resource limits of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Seconds of processor time for each process.
    pub cpu_seconds: u64,
    /// Processes at once.
    pub processes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes in the private `/tmp`.
    pub scratch_bytes: u64,
}

/// A layer of enforcement that a policy can require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layer {
    /// All namespaces of a run: its own view of files, processes, network and others.
    Namespaces,
    /// Files, TCP and signals are restricted by the kernel's Landlock.
    Landlock,
    /// System calls are filtered.
    Seccomp,
    /// A control group for processes and memory.
    Cgroup,
    /// Each program is decided about when it starts.
    Listener,
}

impl fmt::Display for Layer {
    /// The name in a policy and on the ledger.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_holds_the_paths_in_it_only() {
        for (place, inside, outside) in [
            ("/a/b/", vec!["/a/b", "/a/b/c"], vec!["/a", "/a/bc", "/b"]),
            ("/a//b/./", vec!["/a/b", "/a/b/c"], vec!["/a/b.", "/a/bc"]),
            ("/", vec!["/", "/a"], vec![]),
        ] {
            let mut view = View::default();
            view.add(Operation::Write, true, [PathBuf::from(place)]);
            let holds = |path: &&str| view.is_within(Operation::Write, Path::new(path));
            assert!(inside.iter().all(holds) && !outside.iter().any(holds), "{place}");
        }
    }
}
