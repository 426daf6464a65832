//! Messages of the client: passed on, held back or refused.

use std::time::Instant;

use cp_common::json::check;
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Error, Result};
use cp_mcp_wire::{Failure, Initialize, Message, Meta, PARSE_ERROR, parse, read as read_line};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::calls::{Call, Entry, StartedCall, refused};
use super::message::{Members, Outgoing, id_of};
use super::{Gate, Origin, Request, STARTS, Server};
use crate::stdio::Post;

impl<S: Server, F: FnMut(Post) -> Result<S>> Gate<S, F> {
    /// Handles a line of the client.
    pub(super) fn receive_from_client(&mut self, line: &[u8]) -> Result<()> {
        if self.in_flight.values().any(|request| matches!(request.origin, Origin::Handshake)) {
            return self.hold(line);
        }
        // An ambiguous line is not passed on, because the server could interpret it differently.
        let read = check(line).map_err(|fault| (None, Failure::new(PARSE_ERROR, format!("not JSON: {fault}"))));
        match read.and_then(|()| read_line(line)) {
            Ok(Message::Request { id, method, params }) => self.handle_request(line, id, &method, params),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancelled(params)?;
                }
                // A server that has exited needs no notification.
                let _ = self.send(Outgoing::request(None, &method, params));
                Ok(())
            }
            Ok(Message::Answer { id, outcome }) => {
                let _ = self.send(Outgoing::response(id, &outcome));
                Ok(())
            }
            Err((id, failure)) => {
                self.answer(id.unwrap_or(RawValue::NULL), Err(failure));
                Ok(())
            }
        }
    }

    /// Holds a line until the gate's own request is answered.
    fn hold(&mut self, line: &[u8]) -> Result<()> {
        if self.held.iter().map(Vec::len).sum::<usize>() > LINE_LIMIT {
            return Err(Error::new(Code::Server, format!("the server {} does not answer", self.name)).fatal());
        }
        self.held.push(line.to_vec());
        Ok(())
    }

    /// Handles the held lines.
    pub(super) fn release(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        held.iter().try_for_each(|line| self.receive_from_client(line))
    }

    fn handle_request(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        match self.pass_request(line, id, method, params) {
            Err(error) if !error.is_fatal() => self.refuse(id, method, &error),
            done => return done,
        }
        Ok(())
    }

    fn pass_request(&mut self, line: &[u8], id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<()> {
        if self.in_flight.contains_key(&id_of(id)) {
            return Err(Error::validation("a request with this id is still pending"));
        }
        if method == "initialize" {
            self.handshake = None;
        }
        if self.server.is_none() {
            if self.starts >= STARTS {
                return Err(Error::new(Code::Server, format!("the server {} exits after each start", self.name)));
            }
            self.start()?;
        }
        self.record_client(method, params)?;
        let is_about_tools = ["tools/list", "tools/call"].contains(&method);
        let is_listed = self.listing.is_some() && (self.is_fresh || method == "tools/call");
        if !self.is_busy() && is_about_tools && !is_listed {
            self.list(params)?;
        }
        if self.is_busy() {
            return self.hold(line);
        }
        let mut call = None;
        match method {
            "initialize" => self.handshake = params.map(ToOwned::to_owned),
            "tools/list" => {
                let Some(listing) = self.listing.take() else { return Ok(()) };
                let listed = listing.result(&self.redactor)?;
                self.listing = Some(listing);
                self.answer(id, Ok(&listed));
                return Ok(());
            }
            "tools/call" => {
                let requested = Call::of(params)?;
                let decided = self.decide(&requested);
                let Call { tool, arguments, .. } = &requested;
                let (server, client, error) = (self.name.as_str(), &self.client, decided.as_ref().err());
                let call_id = self.caller.as_ref().and_then(|caller| caller.call.as_deref());
                let entry = Entry { server, client, tool, arguments, call_id, refused: error.map(refused) };
                let receipt = match decided {
                    Ok(()) => self.journal.intend("mcp.call", &entry)?,
                    // The call is made again after the approval.
                    Err(error) if call_id.is_some() && error.code() == Code::HumanRequired => return Err(error),
                    Err(error) => return self.journal.note("mcp.refused", &entry).and(Err(error)),
                };
                self.caller.iter_mut().for_each(|caller| caller.receipt = Some(receipt.clone()));
                call = Some(StartedCall { call: requested, receipt, began: Instant::now() });
            }
            _ => {}
        }
        let sent = self.send(Outgoing::request(Some(id), method, params));
        if sent.is_err() {
            self.record_result(call.as_ref(), true, None)?;
        }
        sent?;
        self.await_response(id.to_owned(), method, Origin::Client(call));
        Ok(())
    }

    /// Records the client, as soon as a request names it.
    fn record_client(&mut self, method: &str, params: Option<&RawValue>) -> Result<()> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(rename = "_meta")]
            meta: Meta,
        }
        if self.caller.is_some() || self.client.is_some() && method != "initialize" {
            return Ok(());
        }
        let params = params.map_or("null", RawValue::get);
        let (client, protocol) = if method == "initialize" {
            let Ok(initialize) = serde_json::from_str::<Initialize>(params) else { return Ok(()) };
            (initialize.client_info, initialize.protocol_version)
        } else {
            let Ok(Params { meta }) = serde_json::from_str(params) else { return Ok(()) };
            (meta.client, meta.version)
        };
        let (server, client) = (&self.name, self.client.insert(client));
        let session = json!({ "server": server, "client": client, "protocol": protocol });
        self.journal.note("mcp.session", &session).map(drop)
    }

    /// Forgets a request that the client cancels; its response is ignored.
    fn cancelled(&mut self, params: Option<&RawValue>) -> Result<()> {
        let members: Members = serde_json::from_str(params.map_or("null", RawValue::get)).unwrap_or_default();
        let Some(key) = members.get("requestId").map(|id| id_of(id)) else { return Ok(()) };
        self.held.retain(|line| !matches!(parse(line), Some(Message::Request { id, .. }) if id_of(id) == key));
        self.server.iter_mut().for_each(|server| server.abandon(&key));
        // A request of the gate itself is not the client's.
        let is_clients = |_: &String, request: &mut Request| matches!(request.origin, Origin::Client(_));
        match self.in_flight.extract_if(key.clone()..=key, is_clients).next() {
            Some((_, Request { origin: Origin::Client(call), .. })) => self.record_result(call.as_ref(), true, None),
            _ => Ok(()),
        }
    }
}
