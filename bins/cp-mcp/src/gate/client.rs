//! Lines of the client: what is passed on, held back or refused.

use std::time::Instant;

use cp_common::json::check;
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{Failure, Initialize, Message, Meta, PARSE_ERROR, parse, read as read_line};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::calls::{Call, Entry, Made, refused};
use super::clean::Members;
use super::line::{answer, id_of, message, refusal};
use super::{Gate, Own, Pending, STARTS, Server};
use crate::inbox::Post;

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    /// Takes a line of the client.
    pub(super) fn client_says(&mut self, line: &[u8]) -> Result<()> {
        if matches!(self.own, Some(Own::Handshake)) {
            return self.hold(line);
        }
        // What two readers could take for two things is passed to nobody.
        let read = check(line).map_err(|fault| (None, Failure::new(PARSE_ERROR, format!("not JSON: {fault}"))));
        match read.and_then(|()| read_line(line)) {
            Ok(Message::Request { id, method, params }) => self.request(line, id, &method, params),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancelled(params)?;
                }
                let text = message(None, &method, params);
                // One that has left needs no word.
                let _ = self.send(&text);
                Ok(())
            }
            Ok(Message::Answer { id, outcome }) => {
                let _ = self.send(&answer(id, &outcome));
                Ok(())
            }
            Err((id, failure)) => self.say(&answer(id.unwrap_or(RawValue::NULL), &Err(failure))),
        }
    }

    /// Keeps a line until what we ask ourselves is answered.
    fn hold(&mut self, line: &[u8]) -> Result<()> {
        if self.held.iter().map(Vec::len).sum::<usize>() > LINE_LIMIT {
            return Err(Error::new(Code::Server, format!("the server {} does not answer", self.name)).fatal());
        }
        self.held.push_back(line.to_vec());
        Ok(())
    }

    /// Goes on with the lines that waited.
    pub(super) fn release(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        held.iter().try_for_each(|line| self.client_says(line))
    }

    fn request(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        match self.passed(line, id, method, params) {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => self.say(&refusal(id, method, &error)),
            Ok(()) => Ok(()),
        }
    }

    fn passed(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        let key = id_of(id);
        if self.pending.contains_key(&key) {
            return Err(Error::validation("the id is that of a request without an answer"));
        }
        if method == "initialize" {
            self.handshake = None;
        }
        if self.server.is_none() {
            if self.starts >= STARTS {
                return Err(Error::new(Code::Server, format!("the server {} leaves each time", self.name)));
            }
            self.start()?;
        }
        self.know(method, params)?;
        let is_about_tools = ["tools/list", "tools/call"].contains(&method);
        let is_listed = self.listing.is_some() && (self.is_fresh || method == "tools/call");
        if self.own.is_none() && is_about_tools && !is_listed {
            self.list(params)?;
        }
        if self.own.is_some() {
            return self.hold(line);
        }
        let mut call = None;
        match method {
            "initialize" => self.handshake = params.map(ToOwned::to_owned),
            "tools/list" => {
                let Some(listing) = self.listing.take() else { return Ok(()) };
                let listed = listing.answer(&self.redactor)?;
                self.listing = Some(listing);
                return self.say(&answer(id, &Ok(&listed)));
            }
            "tools/call" => {
                let asked = Call::of(params)?;
                let decided = self.decide(&asked);
                let Call { tool, arguments, .. } = &asked;
                let (server, client, error) = (self.name, &self.client, decided.as_ref().err());
                let entry = Entry { server, client, tool, arguments, refused: error.map(refused) };
                let receipt = match decided {
                    Ok(()) => self.journal.intend("mcp.call", &entry)?,
                    Err(error) => return self.journal.note("mcp.refused", &entry).and(Err(error)),
                };
                call = Some(Made { call: asked, receipt, began: Instant::now() });
            }
            _ => {}
        }
        let sent = self.send(&message(Some(id), method, params));
        if sent.is_err() {
            self.concluded(call.as_ref(), true, None)?;
        }
        sent?;
        self.pending.insert(key, Pending { id: id.to_owned(), method: method.to_owned(), call });
        Ok(())
    }

    /// Notes who the client is, as soon as it says so.
    fn know(&mut self, method: &str, params: Option<&RawValue>) -> Result<()> {
        #[derive(Deserialize)]
        struct Said {
            #[serde(rename = "_meta")]
            meta: Meta,
        }
        if self.client.is_some() && method != "initialize" {
            return Ok(());
        }
        let params = params.map_or("null", RawValue::get);
        let (client, protocol) = if method == "initialize" {
            let Ok(said) = serde_json::from_str::<Initialize>(params) else { return Ok(()) };
            (said.client_info, said.protocol_version)
        } else {
            let Ok(Said { meta }) = serde_json::from_str(params) else { return Ok(()) };
            (meta.client, meta.version)
        };
        let (server, client) = (self.name, self.client.insert(client));
        let said = json!({ "server": server, "client": client, "protocol": protocol });
        self.journal.note("mcp.session", &said).map(drop)
    }

    /// A request that the client gives up: what comes of it is not waited for.
    fn cancelled(&mut self, params: Option<&RawValue>) -> Result<()> {
        let members: Members = serde_json::from_str(params.map_or("null", RawValue::get)).unwrap_or_default();
        let Some(key) = members.get("requestId").map(|id| id_of(id)) else { return Ok(()) };
        self.held.retain(|line| !matches!(parse(line), Some(Message::Request { id, .. }) if id_of(id) == key));
        let Some(pending) = self.pending.remove(&key) else { return Ok(()) };
        self.concluded(pending.call.as_ref(), true, None)
    }
}
