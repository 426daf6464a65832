//! Sockets whose waits a signal ends. The calling thread waits in short slices, which are the timeouts of the socket, so
//! a stalled server or a slow resolver does not keep an interrupted program alive, and no second thread is needed.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

/// The interval for checking signals. A signal that reaches the waiting thread ends the interval at once.
const SLICE: Duration = Duration::from_millis(50);

thread_local! {
    /// An earlier end for the waits of this thread.
    static EARLY_END: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Ends the waits from another thread.
    static STOP: RefCell<Stop> = RefCell::default();
}

/// Ends the waits of all threads that were given it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the waits.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets `stop` end the waits of this thread.
pub fn stopped_by(stop: &Stop) {
    STOP.set(stop.clone());
}

/// Limits the waits of this thread, in addition to the timeouts of the request.
pub(super) fn limit_waits(left: Option<Duration>) {
    EARLY_END.set(left.map(|left| Instant::now() + left));
}

/// Sleeps. Returns false if a signal or another thread ended the wait.
pub fn pause(time: Duration) -> bool {
    let end = Instant::now() + time;
    while !is_ended() {
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return true,
            left => std::thread::sleep(left.min(SLICE)),
        }
    }
    false
}

/// True if a signal or another thread has ended the waits of this thread.
pub fn is_ended() -> bool {
    cp_common::signals::interrupted() || STOP.with_borrow(Stop::is_stopped)
}

/// Resolves names in a thread, which is abandoned if it takes too long.
#[derive(Debug)]
pub(super) struct Names;

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(Error::BadUri(uri.to_string()));
        };
        let target = DefaultResolver::host_and_port(scheme, authority).ok_or_else(|| Error::BadUri(uri.to_string()))?;
        let found = match target.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => look_up(target, timeout)?,
        };
        let mut addresses = self.empty();
        // The list has room for sixteen.
        for address in config.ip_family().keep_wanted(found.into_iter()).take(16) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

fn look_up(target: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
    let wait = Wait::new(timeout);
    let (sender, answer) = mpsc::sync_channel(1);
    std::thread::spawn(move || sender.send(target.to_socket_addrs().map(Iterator::collect)));
    loop {
        wait.check()?;
        match answer.recv_timeout(SLICE) {
            Ok(found) => return found.map_err(|_| Error::HostNotFound),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Error::HostNotFound),
        }
    }
}

/// Opens TCP connections.
#[derive(Debug)]
pub(super) struct Sockets;

impl<In: Transport> Connector<In> for Sockets {
    type Out = Either<In, Socket>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        // The tunnel of a proxy is already open.
        if let Some(tunnel) = chained {
            return Ok(Some(Either::A(tunnel)));
        }
        let mut failure = Error::HostNotFound;
        let wait = Wait::new(details.timeout);
        for (tried, address) in details.addrs.iter().enumerate() {
            let share = details.addrs.len() - tried;
            match connected(address, &wait, u32::try_from(share).unwrap_or(1)) {
                Ok(stream) => {
                    let buffers =
                        LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
                    return Ok(Some(Either::B(Socket { stream, buffers })));
                }
                Err(e) => failure = e,
            }
            wait.check()?;
        }
        Err(failure)
    }
}

/// Connects within a share of the remaining time.
fn connected(address: &SocketAddr, wait: &Wait, share: u32) -> Result<TcpStream, Error> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let stream = TcpStream::from(socket.map_err(io::Error::from)?);
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))?;
    stream.set_nodelay(true)?;
    let end = wait.left().map(|left| Instant::now() + left / share);
    // After a slice the same call continues to wait.
    while let Err(e) = rustix::net::connect(&stream, address) {
        if !matches!(e, Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) {
            return Err(io::Error::from(e).into());
        }
        wait.check()?;
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(Error::Timeout(ureq::Timeout::Connect));
        }
    }
    Ok(stream)
}

/// A connection whose reads and writes end after a slice.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let wait = Wait::new(timeout.for_write());
        let mut output = &self.buffers.output()[..amount];
        while !output.is_empty() {
            let written = wait.each_slice(|| self.stream.write(output))?;
            output = &output[written..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let buffer = self.buffers.input_append_buf();
        let amount = Wait::new(timeout.for_read()).each_slice(|| self.stream.read(buffer))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Between responses no bytes may arrive. Bytes or the end of the stream mean that the connection cannot be
        // reused.
        let mut byte = [0];
        matches!(
            rustix::net::recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT),
            Err(Errno::WOULDBLOCK)
        )
    }
}

/// A wait with a time limit, divided into slices.
struct Wait {
    end: Option<Instant>,
    reason: ureq::Timeout,
}

impl Wait {
    fn new(timeout: NextTimeout) -> Self {
        let end = if timeout.after.is_not_happening() { None } else { Instant::now().checked_add(*timeout.after) };
        let end = [end, EARLY_END.get()].into_iter().flatten().min();
        Self { end, reason: timeout.reason }
    }

    fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Repeats an operation of a socket until it does not end with a slice.
    fn each_slice(&self, mut operation: impl FnMut() -> io::Result<usize>) -> Result<usize, Error> {
        loop {
            self.check()?;
            match operation() {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                done => return done.map_err(Error::from),
            }
        }
    }

    /// Fails if the time is up or a signal arrived.
    fn check(&self) -> Result<(), Error> {
        if is_ended() {
            return Err(Error::Io(io::Error::other("interrupted")));
        }
        if self.left() == Some(Duration::ZERO) { Err(Error::Timeout(self.reason)) } else { Ok(()) }
    }
}
