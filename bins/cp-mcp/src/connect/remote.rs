//! A server over HTTP behind the gate. Messages are sent in the order of the client; requests wait for their responses
//! in parallel, each in its own thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cp_common::Result;
use cp_http::{Stop, stopped_by};
use cp_mcp_wire::{Failure, METHOD_NOT_FOUND};
use serde_json::{Value, json};

use super::link::Link;
use crate::gate::{Behind, Outbox, Outgoing, Server};
use crate::stdio::{locked, spawn};

/// The most requests that wait for a response at the same time.
pub(super) const MOST: usize = 64;
/// The time limit for ending a session.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most time for which the stream of server messages is read.
const LISTENING: Duration = Duration::from_hours(24 * 365);

impl Link {
    /// A connection, which the first message opens.
    pub(super) fn open(self) -> Result<Behind> {
        let own = Arc::new(self);
        let link = Arc::clone(&own);
        // Each active request has one of the slots.
        let (slot, slots) = sync_channel(MOST);
        let slots = Arc::new(Mutex::new(slots));
        Ok((Outbox::open(move |message| link.dispatch(message, &slot, &slots))?, Box::new(own)))
    }

    /// Sends a message: a request in a thread, and what others depend on at once. False if there can be no thread.
    fn dispatch(self: &Arc<Self>, message: Outgoing, slot: &SyncSender<()>, slots: &Arc<Mutex<Receiver<()>>>) -> bool {
        if message.method == "server/discover" {
            // With this code a client that looks for the version without a handshake shakes hands.
            let why = "a server over HTTP is reached with a handshake (initialize)";
            return self.refuse(&message, &Failure::new(METHOD_NOT_FOUND, why)).is_ok();
        }
        if message.id.is_none() || message.method == "initialize" {
            self.exchange(&message);
            if message.method == "notifications/initialized" {
                self.listen(message);
            }
            return true;
        }
        let (link, slots) = (Arc::clone(self), Arc::clone(slots));
        let work = move || {
            link.exchange(&message);
            let _ = locked(&slots).recv();
        };
        slot.send(()).is_ok() && spawn("request", work).is_ok()
    }

    /// Reads what the server sends by itself, if it has a stream for that, until the end of the connection.
    fn listen(self: &Arc<Self>, opened_by: Outgoing) {
        let (stop, link) = (Stop::default(), Arc::clone(self));
        std::mem::replace(&mut locked(&self.session).listening, stop.clone()).stop();
        // Without a thread only these messages are lost.
        let _ = spawn("listener", move || {
            stopped_by(&stop);
            let client = link.client.within(LISTENING);
            let Ok(reply) = client.get(&link.url, &link.headed(), u64::MAX) else { return };
            let media = reply.header("content-type").unwrap_or_default();
            if reply.status == 200 && media.starts_with("text/event-stream") {
                let _ = link.taken(reply, &opened_by);
            }
        });
    }
}

impl Server for Arc<Link> {
    fn close(&mut self) {
        locked(&self.session).listening.stop();
        if locked(&self.session).id.is_some() {
            // A server may not support this.
            let _ = self.client.within(FAREWELL).delete(&self.url, &self.headed());
        }
    }

    fn described(&self) -> Value {
        json!({ "name": self.name, "url": self.url.split('?').next() })
    }
}
