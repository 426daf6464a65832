//! The thread that answers questions about names and accepts connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Resource;

use crate::destination::Destination;
use crate::dns;
use crate::forward::{forward, reset};
use crate::names::{Lookup, Names};
use crate::pump::LINGER;
use crate::record::{Connection, Recorder, Unsent, left};

/// The address of the resolver inside the sandbox.
pub const RESOLVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 53), 53);

/// The most connections at once.
const CONNECTIONS: usize = 256;
/// The most questions over TCP at once. One more closes the oldest.
const QUESTIONS: usize = 8;
/// The time after which a question over TCP is closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most messages or connections of one socket before the others are served.
const TURNS: usize = 64;
/// The stack of a thread, large enough for the resolver of the C library.
const STACK: usize = 256 * 1024;
/// The most records that wait for the writer.
const RECORDS: usize = 256;
/// The pause after the kernel refused a connection, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(20);

/// The network namespace of a sandbox.
pub trait Namespace: Send + 'static {
    /// Creates a listening socket in the namespace.
    fn listen(&self, address: SocketAddrV4) -> io::Result<TcpListener>;

    /// Explains the refusal of a name to the program at this address, before the answer. Only the first of equal
    /// refusals is explained.
    fn explain_refusal(&self, client: SocketAddr, refusal: &Connection);
}

/// The resolver and the forwarder of one run.
#[derive(Debug)]
pub struct Egress {
    records: Receiver<Connection>,
    unsent: Arc<Mutex<Unsent>>,
    /// The write end of a pipe whose end is the end of the run.
    ending: Option<OwnedFd>,
}

impl Egress {
    /// Starts to serve a namespace, in which these sockets are the resolver at [`RESOLVER`].
    pub fn start(
        destinations: &[Destination],
        (udp, tcp): (UdpSocket, TcpListener),
        namespace: impl Namespace,
    ) -> io::Result<Self> {
        let (read, ending) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (sender, records) = mpsc::sync_channel(RECORDS);
        let unsent = Arc::default();
        let recorder = Recorder { sender, unsent: Arc::clone(&unsent) };
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let mut server = Server {
            names: Names::new(destinations.to_vec()),
            udp,
            tcp,
            listeners: Vec::new(),
            questions: Vec::new(),
            namespace: Box::new(namespace),
            ending: Arc::new(read),
            active: Arc::default(),
            most: most_connections(rustix::process::getrlimit(Resource::Nofile).current),
            recorder,
        };
        for destination in destinations {
            if let Some(address) = destination.address() {
                server.listen(address, destination.ports())?;
            }
        }
        Builder::new().name("egress".to_owned()).stack_size(STACK).spawn(move || server.serve())?;
        Ok(Self { records, unsent, ending: Some(ending) })
    }

    /// The records since the last call. `is_over`: the processes of the sandbox have ended, and so do all connections.
    /// Bytes that a program has sent are delivered for at most a second. A thread that resolves a name ends after it.
    pub fn records(&mut self, is_over: bool) -> Vec<Connection> {
        let mut all: Vec<Connection> = self.records.try_iter().collect();
        if is_over {
            self.ending = None;
            let until = Instant::now() + LINGER + LINGER / 2;
            while let Ok(record) = self.records.recv_timeout(until.saturating_duration_since(Instant::now())) {
                all.push(record);
            }
            all.extend(left(&self.unsent));
        }
        all
    }
}

/// A question over TCP.
struct Asking {
    stream: TcpStream,
    received: Vec<u8>,
    since: Instant,
}

struct Server {
    names: Names,
    udp: UdpSocket,
    tcp: TcpListener,
    listeners: Vec<TcpListener>,
    questions: Vec<Asking>,
    namespace: Box<dyn Namespace>,
    ending: Arc<OwnedFd>,
    /// Each active connection has a clone.
    active: Arc<()>,
    /// The most connections at once.
    most: usize,
    recorder: Recorder,
}

impl Server {
    fn serve(mut self) {
        loop {
            let is_ending = self.wait();
            self.answer_datagrams();
            self.answer_streams();
            self.accept_connections();
            if is_ending {
                return;
            }
        }
    }

    /// Waits for a socket. True if the run has ended.
    fn wait(&self) -> bool {
        let is_full = self.is_full();
        let own = [self.ending.as_fd(), self.udp.as_fd(), self.tcp.as_fd()].into_iter();
        let questions = self.questions.iter().map(|asking| asking.stream.as_fd());
        let listeners = self.listeners.iter().filter(|_| !is_full).map(AsFd::as_fd);
        let all = own.chain(questions).chain(listeners);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // The end of a connection or of a wait for a question wakes nothing.
        let limit = is_full.then_some(PAUSE).or((!self.questions.is_empty()).then_some(PATIENCE));
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        !fds[0].revents().is_empty()
    }

    fn is_full(&self) -> bool {
        Arc::strong_count(&self.active) > self.most
    }

    fn answer_datagrams(&mut self) {
        let mut message = [0; dns::LONGEST];
        for _ in 0..TURNS {
            let Ok((length, from)) = self.udp.recv_from(&mut message) else { return };
            if let Some(reply) = self.answer(&message[..length], from) {
                // A program that does not take its answer asks again.
                let _ = self.udp.send_to(&reply, from);
            }
        }
    }

    fn answer_streams(&mut self) {
        for _ in 0..QUESTIONS {
            let Ok((stream, _)) = self.tcp.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                if self.questions.len() >= QUESTIONS {
                    self.questions.remove(0);
                }
                self.questions.push(Asking { stream, received: Vec::new(), since: Instant::now() });
            }
        }
        let asking = std::mem::take(&mut self.questions);
        self.questions = asking.into_iter().filter_map(|asking| self.answer_stream(asking)).collect();
    }

    /// Reads a question, and answers it if it is complete. `None` if the connection is closed.
    fn answer_stream(&mut self, mut asking: Asking) -> Option<Asking> {
        let mut bytes = [0; dns::LONGEST];
        match asking.stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(length) => asking.received.extend(&bytes[..length]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && asking.since.elapsed() < PATIENCE => {
                return Some(asking);
            }
            Err(_) => return None,
        }
        while let Some((prefix, rest)) = asking.received.split_at_checked(2) {
            let length = usize::from(u16::from_be_bytes([prefix[0], prefix[1]]));
            if length > dns::LONGEST {
                return None;
            }
            let Some(message) = rest.get(..length) else { break };
            let reply = self.answer(message, asking.stream.peer_addr().ok()?)?;
            let size = u16::try_from(reply.len()).ok()?;
            // A reply fits into the buffer of the socket, unless the program takes none.
            asking.stream.write_all(&[&size.to_be_bytes(), reply.as_slice()].concat()).ok()?;
            asking.received.drain(..2 + length);
            asking.since = Instant::now();
        }
        Some(asking)
    }

    /// Answers a message, and records a question about a name that is not allowed.
    fn answer(&mut self, message: &[u8], client: SocketAddr) -> Option<Vec<u8>> {
        let question = match dns::parse(message) {
            Ok(question) => question,
            Err(reply) => return reply,
        };
        let refuse = |rule, code| {
            let refusal = Connection::refused(Some(question.name.clone()), rule);
            if self.recorder.refuse(refusal.clone()) {
                self.namespace.explain_refusal(client, &refusal);
            }
            Err(code)
        };
        let answer = match self.names.look_up(&question.name) {
            Lookup::Known(address) => Ok(address),
            Lookup::New(address) => {
                let listening = self.listen(address, &self.names.ports(&question.name));
                listening.inspect(|()| self.names.add(&question.name)).map(|()| address).map_err(|_| dns::FAILURE)
            }
            Lookup::Unlisted => refuse("network", dns::NO_NAME),
            Lookup::Full => refuse("limit", dns::FAILURE),
        };
        Some(question.encode(answer))
    }

    /// Listens at each of these ports of an address.
    fn listen(&mut self, address: Ipv4Addr, ports: &[u16]) -> io::Result<()> {
        let mut listeners = Vec::new();
        for port in ports {
            let listener = self.namespace.listen(SocketAddrV4::new(address, *port))?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
        self.listeners.extend(listeners);
        Ok(())
    }

    fn accept_connections(&self) {
        for listener in &self.listeners {
            for _ in 0..TURNS {
                if self.is_full() {
                    return;
                }
                match listener.accept() {
                    Ok((client, _)) => self.begin(client),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        thread::sleep(PAUSE);
                        break;
                    }
                }
            }
        }
    }

    /// Starts the thread of a connection.
    fn begin(&self, client: TcpStream) {
        let prepared = client.set_nonblocking(true).and_then(|()| client.set_nodelay(true));
        let local = prepared.and_then(|()| client.local_addr());
        let route = match local {
            Ok(SocketAddr::V4(local)) => self.names.route(local),
            _ => None,
        };
        let Some(route) = route else { return reset(&client) };
        let record = Connection::allowed(&route.name, route.port, &route.rule);
        let number = self.recorder.open(record.clone());
        let (ending, recorder, active) = (Arc::clone(&self.ending), self.recorder.clone(), Arc::clone(&self.active));
        let mut served = record.clone();
        let run = move || {
            forward(&client, &route, &ending, &mut served);
            recorder.close(number, served);
            drop((client, active));
        };
        // If the thread cannot be started, its client was dropped with it.
        if let Err(e) = Builder::new().name("egress".to_owned()).stack_size(STACK).spawn(run) {
            self.recorder.close(number, Connection { error: Some(e.to_string()), ..record });
        }
    }
}

/// The most connections at once under a limit of open files. Each needs two sockets and two pipes.
fn most_connections(open_files: Option<u64>) -> usize {
    /// Open files for listeners and for the rest of the program.
    const OTHERS: u64 = 512;
    let most = open_files.map_or(u64::MAX, |open_files| open_files.saturating_sub(OTHERS) / 6);
    usize::try_from(most).unwrap_or(CONNECTIONS).clamp(1, CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_to_the_rest_of_the_program() {
        for (open_files, most) in [(None, CONNECTIONS), (Some(20_000), CONNECTIONS), (Some(1024), 85), (Some(256), 1)] {
            assert_eq!(most_connections(open_files), most, "{open_files:?}");
        }
    }
}
