//! Clients of a run: hooks of an agent inside its sandbox that report tool calls to the supervisor. A connection
//! carries one [`ToolCall`], and as its answer null or an error, each as one message.
//!
//! All operations are non-blocking and bounded, so a slow client delays neither the run nor other clients.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use cp_common::{Error, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::HostCall;
use crate::sandbox::{receive, send};

/// The most open connections. One more closes the oldest.
const OPEN: usize = 16;

/// A tool call of an agent inside, as its hook reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    #[serde(flatten)]
    pub host_call: HostCall,
    pub tool: String,
    /// For a tool that the list of tools decides about, because its input names neither a command nor a file: whether
    /// it may run without the list.
    pub by_default: Option<bool>,
    /// What its entry says about the input.
    pub data: Value,
}

/// The listening socket and the open connections.
pub(super) struct Clients {
    pub listener: OwnedFd,
    pub open: VecDeque<OwnedFd>,
}

impl Clients {
    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        std::iter::once(&self.listener).chain(&self.open).map(|socket| PollFd::new(socket, PollFlags::IN))
    }

    /// Receives and answers messages without blocking.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(ToolCall) -> Result<()>) {
        self.open.retain(|client| match receive(client.as_fd()) {
            Ok(Some((call, _))) => {
                let error = answer(call).err().map(|error: Error| error.to_value());
                drop(send(client.as_fd(), &error, &[]));
                false
            }
            Ok(None) => false,
            Err(e) => e.kind() == ErrorKind::WouldBlock,
        });
        // One at a time, so that other events of the run are handled in between.
        self.open.extend(accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK));
        if self.open.len() > OPEN {
            self.open.pop_front();
        }
    }
}
