//! Lines of the client: what is passed on, held back or refused.

use cp_common::json;
use cp_common::{Context, Error, Result};
use cp_mcp_wire::{Message, parse};
use serde_json::value::RawValue;

use super::line::{INVALID_REQUEST, PARSE_ERROR, answer, id_of, message, refusal, unreadable};
use super::{Gate, Pending, STARTS, Server};
use crate::inbox::Post;

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    /// Takes a line of the client.
    pub(super) fn from_client(&mut self, line: &[u8]) -> Result<()> {
        if self.own.is_some() {
            self.held.push_back(line.to_vec());
            return Ok(());
        }
        // What two readers could take for two things is passed to nobody.
        if let Err(fault) = json::check(line) {
            return self.say(&unreadable(PARSE_ERROR, &format!("not JSON: {fault}")));
        }
        match parse(line) {
            Some(Message::Request { id, method, params }) => self.request(line, id, &method, params),
            Some(Message::Notification { method, params }) => {
                let text = message(None, &method, params);
                // One that has left needs no word.
                let _ = self.send(&text);
                Ok(())
            }
            Some(Message::Answer { id, outcome }) => {
                let _ = self.send(&answer(id, &outcome));
                Ok(())
            }
            None => self.say(&unreadable(INVALID_REQUEST, "not a message of JSON-RPC, or a batch of them")),
        }
    }

    /// Refuses what cannot be read as a line.
    pub(super) fn refuse_line(&mut self, why: &str) -> Result<()> {
        self.say(&unreadable(INVALID_REQUEST, why))
    }

    /// Goes on with the lines that waited.
    pub(super) fn release(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        held.iter().try_for_each(|line| self.from_client(line))
    }

    fn request(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        match self.passed(line, id, method, params) {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => self.say(&refusal(id, method, &error)),
            Ok(()) => Ok(()),
        }
    }

    fn passed(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        if method == "initialize" {
            self.handshake = None;
        }
        if self.server.is_none() {
            if self.starts >= STARTS {
                return Err(Error::new(cp_common::Code::Server, format!("the server {} leaves each time", self.name)));
            }
            self.start()?;
            if self.own.is_some() {
                self.held.push_back(line.to_vec());
                return Ok(());
            }
        }
        let key = id_of(id);
        if self.pending.contains_key(&key) {
            return Err(Error::validation("the id is that of a request without an answer"));
        }
        if method == "initialize" {
            self.handshake = params.map(ToOwned::to_owned);
        }
        self.send(&message(Some(id), method, params))?;
        self.pending.insert(key, Pending { id: id.to_owned(), method: method.to_owned() });
        Ok(())
    }
}
