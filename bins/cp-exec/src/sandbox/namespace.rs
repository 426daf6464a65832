//! Sockets of the network namespace of a run. A socket belongs to the namespace in which it was made, so the init makes
//! them and sends them to the supervisor, which serves them from outside.

use std::io;
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cp_egress::{RESOLVER, Sockets};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::plan::Plan;
use super::report::Report;
use super::{sys, wire};

/// The connections that wait for the supervisor at one address.
const BACKLOG: i32 = 128;

/// The length of a buffer for an address.
const SHORT: usize = 64;

/// The time in which the init must answer a request.
const ANSWER: Duration = Duration::from_secs(1);

/// The end of the init: it makes sockets for the supervisor.
pub(super) struct Namespace(OwnedFd);

impl Namespace {
    /// Makes the first sockets, so that they exist before the command starts, and reports them.
    pub(super) fn open(plan: &Plan, report: BorrowedFd<'_>) -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (udp, tcp) = (bound(RESOLVER, SocketType::DGRAM)?, listening(RESOLVER)?);
        wire::send(ours.as_fd(), b"resolver", &[udp.as_fd(), tcp.as_fd()])?;
        // The socket may hold only some messages, and the supervisor reads them after the report.
        wire::send_report(report, &Report::Namespace, Some(theirs.as_fd()))?;
        drop(theirs);
        for place in plan.listed() {
            match sys::add_loopback_address(*place.ip()) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            wire::send(ours.as_fd(), b"listed", &[listening(place)?.as_fd()])?;
        }
        wire::send(ours.as_fd(), b"end", &[])?;
        Ok(Self(ours))
    }

    /// Answers a request for a listening socket. False if there can be no more.
    pub(super) fn serve(&mut self) -> bool {
        let mut text = [0; SHORT];
        let length = match wire::receive(self.0.as_fd(), &mut text, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok((length, _)) => length,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        };
        let place = serde_json::from_slice::<SocketAddrV4>(&text[..length]).map_err(io::Error::from);
        // The answer names the address, because the supervisor may have given up an earlier request.
        let socket = place.and_then(listening).ok();
        let sockets: Vec<BorrowedFd<'_>> = socket.iter().map(AsFd::as_fd).collect();
        wire::send(self.0.as_fd(), &text[..length], &sockets).is_ok()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn bound(place: SocketAddrV4, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &place)?;
    Ok(socket)
}

fn listening(place: SocketAddrV4) -> io::Result<OwnedFd> {
    let socket = bound(place, SocketType::STREAM)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The end of the supervisor.
pub(crate) struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Receives the first sockets.
    pub(crate) fn receive(socket: OwnedFd) -> io::Result<(Self, Sockets)> {
        let this = Self(socket);
        let Ok([udp, tcp]) = <[OwnedFd; 2]>::try_from(this.next()?.1) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut listed = Vec::new();
        while let Some(listener) = this.next()?.1.pop() {
            listed.push(TcpListener::from(listener));
        }
        Ok((this, Sockets { udp: UdpSocket::from(udp), tcp: tcp.into(), listed }))
    }

    /// Receives a message with its descriptors.
    fn next(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(ANSWER).map_err(io::Error::other)?;
        if rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut text = [0; SHORT];
        match wire::receive(self.0.as_fd(), &mut text, RecvFlags::DONTWAIT)? {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (length, descriptors) => Ok((text[..length].to_vec(), descriptors)),
        }
    }
}

impl cp_egress::Namespace for NetworkNamespace {
    fn listen(&self, address: SocketAddrV4) -> io::Result<TcpListener> {
        let request = serde_json::to_vec(&address)?;
        wire::send(self.0.as_fd(), &request, &[])?;
        loop {
            let (answer, mut sockets) = self.next()?;
            if answer == request {
                return sockets.pop().map(TcpListener::from).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            }
        }
    }
}
