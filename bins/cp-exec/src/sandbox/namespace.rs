//! Sockets of the network namespace of a run. A socket belongs to the namespace in which it was made, so the init makes
//! them and sends them to the supervisor, which serves them from outside.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use cp_egress::RESOLVER;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::listener::{error_of, write_at_once};
use super::report::{self, Report};
use super::{processes, sys};
use crate::nofollow::{self, Node};

/// The time in which the init must answer a request. It answers the first ones after it has built the view.
const ANSWER: Duration = Duration::from_secs(5);

/// The end of the init: it makes sockets for the supervisor.
pub(super) struct Namespace(pub(super) OwnedFd);

impl Namespace {
    /// Makes the sockets of the resolver, so that they exist before the command starts, and reports them.
    pub(super) fn open(supervisor: BorrowedFd<'_>) -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (udp, tcp) = (UdpSocket::bind(RESOLVER)?, TcpListener::bind(RESOLVER)?);
        let namespace = File::open("/proc/self/ns/net")?;
        let sent = [theirs.as_fd(), udp.as_fd(), tcp.as_fd(), namespace.as_fd()];
        report::send(supervisor, &Report::Namespace, &sent)?;
        Ok(Self(ours))
    }

    /// Answers a request for a listening socket. False if there can be no more.
    pub(super) fn serve(&self) -> bool {
        let place: SocketAddrV4 = match report::receive(self.0.as_fd()) {
            Ok(Some((place, _))) => place,
            Ok(None) => return false,
            Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
        };
        let socket = listener_at(place).ok();
        // The answer names the address, because the supervisor may have given up an earlier request.
        report::send(self.0.as_fd(), &place, socket.as_ref().map(AsFd::as_fd).as_slice()).is_ok()
    }
}

/// Listens at an address, which the loopback interface gets if the policy lists it.
fn listener_at(place: SocketAddrV4) -> io::Result<TcpListener> {
    if !place.ip().is_loopback() {
        sys::add_loopback_address(*place.ip())
            .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
    }
    TcpListener::bind(place)
}

/// The end of the supervisor.
pub(crate) struct NetworkNamespace {
    socket: OwnedFd,
    /// The namespace, by device and inode.
    namespace: Node,
    /// The standard streams of the run, by device and inode.
    shown: Vec<Node>,
}

impl NetworkNamespace {
    /// Takes over what the init reported, with the sockets of the resolver.
    pub(crate) fn of(reported: Vec<OwnedFd>, shown: Vec<Node>) -> io::Result<(Self, (UdpSocket, TcpListener))> {
        let [socket, udp, tcp, namespace] =
            <[OwnedFd; 4]>::try_from(reported).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok((Self { socket, namespace: nofollow::node(&namespace)?, shown }, (udp.into(), tcp.into())))
    }

    /// Makes a listening socket in the namespace.
    pub(crate) fn listen(&self, address: SocketAddrV4) -> io::Result<TcpListener> {
        report::send(self.socket.as_fd(), &address, &[])?;
        loop {
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            let timeout = Timespec::try_from(ANSWER).map_err(io::Error::other)?;
            if rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout)))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let received: Option<(SocketAddrV4, Vec<OwnedFd>)> = report::receive(self.socket.as_fd())?;
            let (answer, mut sockets) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
            if answer == address {
                return sockets.pop().map(TcpListener::from).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            }
        }
    }

    /// Writes a line to the standard error of the process whose socket has this address, for whoever reads its output.
    /// Terminals and the run's own streams are left to the supervisor.
    pub(crate) fn tell(&self, client: SocketAddr, line: &str) {
        let Some((error, meta)) = self.error_of(client) else { return };
        if !rustix::termios::isatty(&error) && !self.shown.contains(&(meta.dev(), meta.ino())) {
            // A stream that is full or closed is left alone.
            drop(write_at_once(&error, &meta, line.as_bytes()));
        }
    }

    /// The standard error of the process whose socket has this address.
    fn error_of(&self, client: SocketAddr) -> Option<(File, fs::Metadata)> {
        let is_in = |pid: &i32| {
            let namespace = fs::metadata(format!("/proc/{pid}/ns/net"));
            namespace.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.namespace)
        };
        let inside: Vec<i32> = processes().map(|(pid, _)| pid).filter(is_in).collect();
        let socket = socket_of(*inside.first()?, client)?;
        let holds = |pid: &i32| {
            let mut descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            descriptors.any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == socket))
        };
        error_of(inside.into_iter().find(holds)?).ok()
    }
}

/// The link of the socket with this port in the namespace of a process.
fn socket_of(pid: i32, client: SocketAddr) -> Option<PathBuf> {
    let port = format!(":{:04X}", client.port());
    let tables = ["udp", "tcp"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).find_map(|row| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&port);
        is_it.then_some(PathBuf::from(format!("socket:[{}]", fields.get(9)?)))
    })
}
