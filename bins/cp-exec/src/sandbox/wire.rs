//! Messages between the program and its helper: one datagram each, some with descriptors.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::process::Signal;

use super::plan::{Network, Plan};
use super::report::{Failure, Order, Report};
use super::sys;

/// The longest report or order in one datagram. A longer report, and the plan, are sent as a file in memory.
const LONGEST: usize = 16 * 1024;

/// The length of a buffer for a network.
const SHORT: usize = 32;

/// The datagram of a report that is sent as a file.
const IN_FILE: &[u8] = b"file";

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

pub(super) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    if got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message came without its end or its descriptors; too many files may be open"));
    }
    let fds = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    Ok((got.bytes, fds))
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
    /// The network of the run, which determines its namespaces.
    pub network: Network,
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
    let network = serde_json::to_vec(&plan.network_kind())?;
    send(control, &network, &[socket, file.as_fd(), stdin, stdout, stderr])
}

/// Receives the request for a run without blocking; `None` if the program has ended.
pub(super) fn receive_run(control: BorrowedFd<'_>) -> io::Result<Option<RunRequest>> {
    let mut text = [0; SHORT];
    let (length, fds) = receive(control, &mut text, RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Ok(None);
    }
    let network = serde_json::from_slice(&text[..length])?;
    let Ok([socket, plan, stdin, stdout, stderr]) = <[OwnedFd; 5]>::try_from(fds) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(Some(RunRequest { network, socket, plan, streams: [stdin, stdout, stderr] }))
}

impl RunRequest {
    /// Reads the plan from its beginning.
    pub(super) fn read_plan(&self) -> io::Result<Plan> {
        let mut text = Vec::new();
        std::fs::File::from(self.plan.try_clone()?).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Sends a report, optionally with a descriptor.
pub(super) fn send_report(socket: BorrowedFd<'_>, report: &Report, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(report)?;
    if bytes.len() <= LONGEST {
        return send(socket, &bytes, fd.as_slice());
    }
    let file = memory_file("report", &bytes)?;
    let fds: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd()).chain(fd).collect();
    send(socket, IN_FILE, &fds)
}

/// Receives a report without blocking.
pub(crate) fn receive_report(socket: BorrowedFd<'_>) -> io::Result<Received> {
    let mut bytes = [0; LONGEST];
    match receive(socket, &mut bytes, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Ok(Received::End),
        Ok((length, fds)) => {
            let mut fds = fds.into_iter();
            let mut text = bytes[..length].to_vec();
            if text == IN_FILE {
                text.clear();
                let file = fds.next().ok_or(io::ErrorKind::UnexpectedEof)?;
                std::fs::File::from(file).read_to_end(&mut text)?;
            }
            Ok(Received::Report(serde_json::from_slice(&text)?, fds.next()))
        }
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
    let mut text = [0; LONGEST];
    let (length, _) = receive(socket, &mut text, RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&text[..length])?)
}

/// Makes the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> Result<(), rustix::io::Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Reports a failure and exits, in a child that cannot return.
pub(super) fn report_and_exit(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    // If the report cannot be sent, the supervisor has ended.
    drop(send_report(socket, &Report::Failed(failure), None));
    sys::leave(125)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::sandbox::report::Enforcement;

    #[test]
    fn report_of_any_length_arrives_with_descriptor() {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for sentences in [1, 100_000] {
            let missing = vec!["a layer that is missing".to_owned(); sentences];
            let report = Report::Ready(Box::new(Enforcement { missing, ..Enforcement::default() }));
            let file = memory_file("along", b"x").unwrap();
            send_report(theirs.as_fd(), &report, Some(file.as_fd())).unwrap();
            let Received::Report(Report::Ready(got), Some(_)) = receive_report(ours.as_fd()).unwrap() else {
                panic!("{sentences} sentences");
            };
            assert_eq!(got.missing.len(), sentences);
        }
        assert!(matches!(receive_report(ours.as_fd()).unwrap(), Received::Nothing));
        send(theirs.as_fd(), b"{\"ready\":", &[]).unwrap();
        assert!(receive_report(ours.as_fd()).is_err(), "half a report is an error, and not the end");
    }

    #[test]
    fn too_many_descriptors_fail() {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let file = memory_file("along", b"x").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [file.as_fd(); 16];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        rustix::net::sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert!(receive(ours.as_fd(), &mut [0; 8], RecvFlags::DONTWAIT).is_err());
    }
}
