//! Messages between the program and its helper: reports about a run, and orders to its init. Each is one datagram, some
//! with descriptors.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cp_common::output::printable_line;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::{Layer, Network};
use super::sys;
use crate::serde_paths::path_bytes;

/// The layers under which a command ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a layer or a fact of its own")]
pub(crate) struct Enforcement {
    /// The enforcement of Landlock.
    pub landlock: Landlock,
    /// True if system calls are filtered.
    pub seccomp: bool,
    /// True if each program is decided about when it starts.
    pub listener: bool,
    /// The private namespaces.
    pub namespaces: Vec<String>,
    /// The network that the command sees.
    pub network: Option<Network>,
    /// True if the run has a control group. If not, processes and their memory are limited one by one.
    pub cgroup: bool,
    /// True if this program was itself in a sandbox or a container, which may allow fewer layers than the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outer_sandbox: bool,
    /// Processes that outlived the command and were killed; null if they were not counted.
    pub killed_processes: Option<u32>,
    /// Files of the run that other programs would have executed later, with their new paths.
    pub guard: Vec<Quarantined>,
    /// Repositories that the run created and that contain nothing that git would execute.
    pub repositories_made: Vec<String>,
    /// Layers that were requested but are not available, and rules that the kernel does not enforce.
    pub missing: Vec<String>,
}

/// A file that a run created or changed and that was quarantined after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl fmt::Display for Quarantined {
    /// The path, the reason, and where the file is now, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.as_deref().unwrap_or("other programs execute what has this name");
        let place = match (&self.moved_to, &self.error) {
            (Some(place), _) => format!("; it is now {place}"),
            (None, Some(error)) => format!("; it was not moved: {error}"),
            (None, None) => String::new(),
        };
        f.write_str(&printable_line(&format!("{}: {reason}{place}", self.path)))
    }
}

impl Enforcement {
    /// True if the run has namespaces of its own, and with them its own view of the files.
    pub(crate) fn is_private(&self) -> bool {
        !self.namespaces.is_empty()
    }
}

/// The enforcement of Landlock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The init of the sandbox was started. Sent with its pidfd.
    Init,
    /// Programs inside may connect to the supervisor. Sent with the listening socket.
    Clients,
    /// The network namespace is there. Sent with a socket at which the init serves requests for listening sockets, the
    /// sockets of the resolver, and the namespace.
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
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    /// The machine does not provide a layer, or refuses a step of the setup: its name, and the message.
    Missing(String, String),
    /// The file or directory is not the one that was decided about.
    Changed(String),
    /// The kernel failed to execute the file.
    Exec(String),
    /// The sandbox could not be built.
    Setup(String),
}

impl Failure {
    /// A layer is missing that the run requires.
    pub(super) fn missing(layer: Layer) -> Self {
        let message = format!("the run requires the layer `{layer}`, which this machine does not provide");
        Self::Missing(layer.to_string(), message)
    }

    /// The same failure. If the kernel refused the step, the machine does not provide the namespaces.
    pub(super) fn of_namespaces(self) -> Self {
        let Self::Missing(_, message) = self else { return self };
        let message = format!("this machine does not provide namespaces: {message}");
        Self::Missing(Layer::Namespaces.to_string(), message)
    }

    pub(super) fn into_message(self) -> String {
        let (Self::Missing(_, message) | Self::Changed(message) | Self::Exec(message) | Self::Setup(message)) = self;
        message
    }

    /// A file or directory that is not the one that was decided about.
    pub(super) fn changed(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Changed(format!("{}: {why}", path.display()))
    }
}

/// Names the step of the setup in which an error occurred.
pub(super) trait At<T> {
    fn at(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| {
            let error = error.into();
            let message = format!("{step}: {error}");
            // The kernel does not support the call, or an outer sandbox refuses it.
            match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => Failure::Missing(step.to_owned(), message),
                _ => Failure::Setup(message),
            }
        })
    }
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
    /// Send SIGINT to all processes.
    Interrupt,
    /// Continue the stopped command, whose group is still in the foreground of its terminal.
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

/// The longest datagram: a path of any bytes as JSON is shorter. The plan is sent as a file in memory.
const LONGEST: usize = 64 * 1024;

/// Sends a message, with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = serde_json::to_vec(message)?;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message without blocking, with its descriptors. `None` if the other side has ended.
pub(crate) fn receive<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Err(Errno::CONNRESET) => return Ok(None),
        got => got?,
    };
    if got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message came without its end or its descriptors; too many files may be open"));
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    if got.bytes == 0 { Ok(None) } else { Ok(Some((serde_json::from_slice(&bytes[..got.bytes])?, fds))) }
}

/// Creates a file in memory, sealed against execution if the kernel supports the seal.
pub(crate) fn memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC;
    let created = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    let mut file = std::fs::File::from(created);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reports a failure and exits, in a child that cannot return.
pub(super) fn report_and_exit(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    // If the report cannot be sent, the supervisor has ended.
    drop(send(socket, &Report::Failed(failure), &[]));
    sys::leave(125)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn report_arrives_with_descriptor_and_half_a_report_is_an_error() {
        let (ours, theirs) = pair();
        let file = memory_file("along", b"x").unwrap();
        // The longest path, of bytes that JSON escapes.
        let path = Failure::Changed("\u{1}".repeat(libc::PATH_MAX.unsigned_abs() as usize));
        send(theirs.as_fd(), &Report::Failed(path), &[file.as_fd()]).unwrap();
        let (report, fds) = receive(ours.as_fd()).unwrap().unwrap();
        assert!(matches!(report, Report::Failed(Failure::Changed(_))) && fds.len() == 1);
        assert_eq!(receive::<Report>(ours.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        rustix::net::send(&theirs, b"{\"ready\":", SendFlags::empty()).unwrap();
        assert!(receive::<Report>(ours.as_fd()).unwrap_err().kind() != io::ErrorKind::WouldBlock);
        drop(theirs);
        assert!(receive::<Report>(ours.as_fd()).unwrap().is_none());
    }

    #[test]
    fn too_many_descriptors_fail() {
        let (ours, theirs) = pair();
        let file = memory_file("along", b"x").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [file.as_fd(); 16];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        rustix::net::sendmsg(&theirs, &[IoSlice::new(b"\"stopped\"")], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert!(receive::<Report>(ours.as_fd()).is_err());
    }
}
