//! Clients of a run: hooks of an agent inside its sandbox that report tool calls to the supervisor. A connection
//! carries one [`ToolCall`], and as its answer null or an error.
//!
//! All operations are non-blocking and bounded, so a slow client delays neither the run nor other clients.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::HostCall;

/// The most open connections. One more closes the oldest.
const OPEN: usize = 16;
/// The longest message, in bytes.
const LONGEST: usize = 1 << 20;
/// The time after which a connection is closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A tool call of an agent inside, as its hook reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    #[serde(flatten)]
    pub host_call: HostCall,
    pub tool: String,
    /// True if the list of tools decides about the tool, because its input names neither a command nor a file.
    pub is_listed: bool,
    /// True if the tool may run without the list.
    pub by_default: bool,
    /// The data of the entry: before the call its input, and after the call its output.
    pub data: Value,
    /// True after the call.
    pub is_result: bool,
}

/// The listening socket and the open connections.
pub(super) struct Clients {
    listener: UnixListener,
    open: VecDeque<Connection>,
}

struct Connection {
    stream: UnixStream,
    since: Instant,
    received: Vec<u8>,
}

type Answerer<'a> = &'a mut dyn FnMut(&[u8]) -> Vec<u8>;

impl Clients {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Self { listener, open: VecDeque::new() })
    }

    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
        let open = self.open.iter().map(|open| PollFd::from_borrowed_fd(open.stream.as_fd(), PollFlags::IN));
        std::iter::once(listener).chain(open)
    }

    /// Receives and answers messages without blocking.
    pub(super) fn serve(&mut self, answer: Answerer<'_>) {
        self.open.retain_mut(|connection| connection.since.elapsed() < PATIENCE && connection.advance(answer));
        // One at a time, so that other events of the run are handled in between.
        let Ok((stream, _)) = self.listener.accept() else { return };
        let mut connection = Connection { stream, since: Instant::now(), received: Vec::new() };
        if connection.stream.set_nonblocking(true).is_ok() && connection.advance(answer) {
            self.open.push_back(connection);
        }
        if self.open.len() > OPEN {
            self.open.pop_front();
        }
    }
}

impl Connection {
    /// Receives a message, which ends when the client shuts down its side, and answers it. False after the answer or a
    /// failure.
    fn advance(&mut self, answer: Answerer<'_>) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    // An answer is short, and the client has got nothing else, so that the kernel takes it at once.
                    drop(self.stream.write(&answer(&self.received)));
                    return false;
                }
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
            if self.received.len() > LONGEST {
                return false;
            }
        }
    }
}
