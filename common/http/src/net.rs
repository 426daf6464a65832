//! Sockets whose waits a signal ends. The calling thread waits in short slices, which are the timeouts of the socket, so
//! a stalled server or a slow resolver does not keep an interrupted program alive, and no second thread is needed.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time::Duration::NotHappening;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

/// The interval for checking signals. A signal that reaches the waiting thread ends the interval at once.
const SLICE: Duration = Duration::from_millis(50);

thread_local! {
    /// An earlier end for the waits of this thread.
    static EARLY_END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Limits the waits of this thread, in addition to the timeouts of the request.
pub(super) fn limit_waits(left: Option<Duration>) {
    EARLY_END.set(left.map(|left| Instant::now() + left));
}

/// Sleeps. Returns false if a signal ended the wait.
pub fn pause(time: Duration) -> bool {
    let wait = Wait { end: Some(Instant::now() + time), reason: ureq::Timeout::Global };
    while wait.check().is_ok() {
        std::thread::sleep(wait.left().unwrap_or_default().min(SLICE));
    }
    !cp_common::signals::interrupted()
}

/// The time for which the addresses of a name are used again. A name is resolved for each request, even if a connection
/// is open.
const LASTING: Duration = Duration::from_secs(10);

/// Resolves names in a thread, which is abandoned if it takes too long.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<HashMap<Uri, (Instant, ResolvedSocketAddrs)>>);

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, addresses)) = found().get(uri).filter(|(at, _)| at.elapsed() < LASTING) {
            return Ok(addresses.clone());
        }
        let wait = Wait::new(timeout);
        let (sender, answer) = mpsc::sync_channel(1);
        let (asked, config, endless) = (uri.clone(), config.clone(), NextTimeout { after: NotHappening, ..timeout });
        std::thread::spawn(move || drop(sender.send(DefaultResolver::default().resolve(&asked, &config, endless))));
        let resolved = loop {
            wait.check()?;
            match answer.recv_timeout(SLICE) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                resolved => break resolved.ok().and_then(Result::ok).ok_or(Error::HostNotFound)?,
            }
        };
        found().insert(uri.clone(), (Instant::now(), resolved.clone()));
        Ok(resolved)
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
            let share = u32::try_from(details.addrs.len() - tried).unwrap_or(1);
            let end = wait.left().map(|left| Instant::now() + left / share);
            match connected(address, &Wait { end, reason: ureq::Timeout::Connect }) {
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

fn connected(address: &SocketAddr, wait: &Wait) -> Result<TcpStream, Error> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let stream = TcpStream::from(socket.map_err(io::Error::from)?);
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))?;
    stream.set_nodelay(true)?;
    // After a slice the same call continues to wait.
    wait.each_slice(|| rustix::net::connect(&stream, address))?;
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
            let written = wait.each_slice(|| rustix::net::send(&self.stream, output, SendFlags::NOSIGNAL))?;
            output = &output[written..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let buffer = self.buffers.input_append_buf();
        let wait = Wait::new(timeout.for_read());
        let amount = wait.each_slice(|| rustix::net::recv(&self.stream, &mut *buffer, RecvFlags::empty()))?.0;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Between responses no bytes may arrive. Bytes or the end of the stream mean that the connection cannot be
        // reused.
        let received = rustix::net::recv(&self.stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(received, Err(Errno::WOULDBLOCK))
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
    fn each_slice<T>(&self, mut operation: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Error> {
        loop {
            self.check()?;
            match operation() {
                Err(Errno::WOULDBLOCK | Errno::INTR | Errno::INPROGRESS | Errno::ALREADY) => {}
                done => return done.map_err(|e| io::Error::from(e).into()),
            }
        }
    }

    /// Fails if the time is up or a signal arrived.
    fn check(&self) -> Result<(), Error> {
        if cp_common::signals::interrupted() {
            return Err(Error::Io(io::Error::other("interrupted")));
        }
        if self.left() == Some(Duration::ZERO) { Err(Error::Timeout(self.reason)) } else { Ok(()) }
    }
}
