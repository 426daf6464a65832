//! Messages between the program and its helper: reports about a run, and orders to its init. Each is one datagram, some
//! with descriptors.

use std::io::{self, IoSlice, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::{Layer, Network, Plan, Profile};
use super::sys;
use crate::serde_paths::path_bytes;

/// The layers under which a command ran.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the record")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Enforcement {
    /// The profile of the run.
    pub profile: Option<Profile>,
    /// The enforcement of Landlock.
    pub landlock: Landlock,
    /// True if system calls are filtered.
    pub seccomp: bool,
    /// True if each program is decided about when it starts.
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
    /// `who` requires a layer that is missing.
    pub(super) fn missing(who: &str, layer: Layer) -> Self {
        let name = if layer == Layer::NoListener { "the execve listener" } else { layer.name() };
        let message = format!("{who} requires {name}, which this machine does not provide");
        Self::Missing(layer.name().to_owned(), message)
    }

    /// The same failure. If the kernel refused the step, the machine does not provide the namespaces.
    pub(super) fn of_namespaces(self) -> Self {
        let Self::Missing(_, message) = self else { return self };
        let message = format!("this machine does not provide namespaces: {message}");
        Self::Missing(Layer::Namespaces.name().to_owned(), message)
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

/// The longest datagram: a path of any bytes as JSON is shorter. The plan is sent as a file in memory.
const LONGEST: usize = 64 * 1024;

/// A message from the helper.
pub(crate) enum Received {
    /// A report, and the descriptor that was sent with it.
    Report(Report, Option<OwnedFd>),
    /// No message is available.
    Nothing,
    /// The helper and all of its processes have closed the socket.
    End,
}

pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a datagram without blocking. It is empty if the other side has ended.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    bytes.truncate(got.bytes);
    if got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message came without its end or its descriptors; too many files may be open"));
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((bytes, fds.flatten().collect()))
}

/// Receives a message without blocking, and the descriptor that was sent with it. `None` if the other side has ended.
fn receive_message<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let (bytes, fds) = receive(socket)?;
    if bytes.is_empty() { Ok(None) } else { Ok(Some((serde_json::from_slice(&bytes)?, fds.into_iter().next()))) }
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

/// The descriptors of the request for a run.
pub(super) struct RunRequest {
    /// True if the run uses the network of this machine, and gets no namespace for it.
    pub is_in_host_network: bool,
    /// The socket for reports and orders.
    pub socket: OwnedFd,
    /// The file in memory with the plan.
    pub plan: OwnedFd,
    /// The standard streams of the command.
    pub streams: [OwnedFd; 3],
}

/// Requests a run from the helper: sends its socket, its plan, and the standard streams of the command.
pub(crate) fn send_run(
    control: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    plan: &Plan,
    [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
) -> io::Result<()> {
    let file = memory_file("plan", &serde_json::to_vec(plan)?)?;
    let is_in_host_network = plan.network_kind() == Network::Host;
    send(control, &[u8::from(is_in_host_network)], &[socket, file.as_fd(), stdin, stdout, stderr])
}

/// Receives the request for a run without blocking; `None` if the program has ended.
pub(super) fn receive_run(control: BorrowedFd<'_>) -> io::Result<Option<RunRequest>> {
    let (bytes, fds) = receive(control)?;
    let Some(host) = bytes.first() else { return Ok(None) };
    let Ok([socket, plan, stdin, stdout, stderr]) = <[OwnedFd; 5]>::try_from(fds) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(Some(RunRequest { is_in_host_network: *host == 1, socket, plan, streams: [stdin, stdout, stderr] }))
}

/// Sends a report, optionally with a descriptor.
pub(super) fn send_report(socket: BorrowedFd<'_>, report: &Report, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send(socket, &serde_json::to_vec(report)?, fd.as_slice())
}

/// Reports a failure and exits, in a child that cannot return.
pub(super) fn report_and_exit(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    // If the report cannot be sent, the supervisor has ended.
    drop(send_report(socket, &Report::Failed(failure), None));
    sys::leave(125)
}

/// Receives a report without blocking.
pub(crate) fn receive_report(socket: BorrowedFd<'_>) -> io::Result<Received> {
    match receive_message(socket) {
        Ok(Some((report, fd))) => Ok(Received::Report(report, fd)),
        Ok(None) => Ok(Received::End),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(Received::End),
        Err(e) => Err(e),
    }
}

/// Sends an order to the init of the sandbox. An error means that the init has ended.
pub(crate) fn send_order(socket: BorrowedFd<'_>, order: &Order) {
    drop(serde_json::to_vec(order).map(|order| send(socket, &order, &[])));
}

/// Receives an order without blocking; `None` if the program has ended.
pub(super) fn receive_order(socket: BorrowedFd<'_>) -> io::Result<Option<Order>> {
    Ok(receive_message(socket)?.map(|(order, _)| order))
}

#[cfg(test)]
mod tests {
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
        send_report(theirs.as_fd(), &Report::Failed(path), Some(file.as_fd())).unwrap();
        let got = receive_report(ours.as_fd()).unwrap();
        assert!(matches!(got, Received::Report(Report::Failed(Failure::Changed(_)), Some(_))));
        assert!(matches!(receive_report(ours.as_fd()).unwrap(), Received::Nothing));
        send(theirs.as_fd(), b"{\"ready\":", &[]).unwrap();
        assert!(receive_report(ours.as_fd()).is_err());
    }

    #[test]
    fn too_many_descriptors_fail() {
        let (ours, theirs) = pair();
        let file = memory_file("along", b"x").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [file.as_fd(); 16];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        rustix::net::sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert!(receive(ours.as_fd()).is_err());
    }
}
