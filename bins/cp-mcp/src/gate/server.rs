//! Lines of the server: answers to what was asked, and what it says by itself.

use cp_common::{Context, Result};
use cp_mcp_wire::{Failure, Message, parse};
use serde_json::value::RawValue;

use super::line::{answer, id_of, message, refusal};
use super::{Gate, Own, Pending, Server};
use crate::inbox::Post;

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    /// Takes a line of the server. Banners and answers that nobody waits for pass by.
    pub(super) fn from_server(&mut self, line: &[u8]) -> Result<()> {
        match parse(line) {
            Some(Message::Answer { id, outcome }) => self.answered(&id_of(id), outcome),
            Some(Message::Request { id, method, params }) => self.say(&message(Some(id), &method, params)),
            Some(Message::Notification { method, params }) => self.say(&message(None, &method, params)),
            None => Ok(()),
        }
    }

    fn answered(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        if let Some(Pending { id, .. }) = self.pending.remove(id) {
            self.starts = 0;
            return self.say(&answer(&id, &outcome));
        }
        let is_own = id.strip_prefix('"').is_some_and(|id| id.starts_with(&self.prefix));
        match self.own.take_if(|_| is_own) {
            Some(Own::Handshake) => {
                let _ = self.send(&message(None, "notifications/initialized", None));
                self.release()
            }
            None => Ok(()),
        }
    }

    /// What the client waits for will not come.
    pub(super) fn server_left(&mut self, left: Result<()>) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let error = server.end(left);
        drop(server);
        self.context.warn(error.message());
        self.own = None;
        let pending = std::mem::take(&mut self.pending);
        for Pending { id, method } in pending.into_values() {
            self.say(&refusal(&id, &method, &error))?;
        }
        self.release()
    }
}
