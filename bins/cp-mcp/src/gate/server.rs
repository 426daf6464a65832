//! Messages of the server: responses to requests, and its own requests and notifications.

use cp_common::{Code, Error, Result};
use cp_mcp_wire::{CallResult, Failure, METHOD_NOT_FOUND, Message, parse};
use serde_json::value::RawValue;

use super::calls::continuation_key;
use super::message::{Id, Line, Members, Outgoing, Reply, check_media, id_of, raw, read, redact, redact_members};
use super::tools::Pages;
use super::{Gate, Origin, Request, Server};
use crate::stdio::Post;

/// The request by which a server asks the model of its client.
const SAMPLING: &str = "sampling/createMessage";
/// The code of clients for a sampling request that the user rejects.
const REJECTED: i64 = -1;

impl<S: Server, F: FnMut(Post) -> Result<S>> Gate<S, F> {
    /// Handles a line of the server. Responses to unknown requests are ignored.
    pub(super) fn receive_from_server(&mut self, line: &[u8]) -> Result<()> {
        let line = match read(line) {
            Line::Message(line) => line,
            Line::Invalid(id, reason) => return self.fail_unreadable(id, &reason),
            Line::Noise => {
                self.hear_noise(line);
                return Ok(());
            }
        };
        match parse(&line) {
            Some(Message::Answer { id, outcome }) => return self.receive_response(&id_of(id), outcome),
            Some(Message::Request { id, method, params }) => {
                let pong = raw(&serde_json::Map::new())?;
                let outcome = match method.as_str() {
                    SAMPLING if !self.table.sampling => Err(Failure::new(REJECTED, self.no_sampling())),
                    "ping" if self.caller.is_some() => Ok(&*pong),
                    _ if self.caller.is_some() => Err(Failure::new(METHOD_NOT_FOUND, "not supported")),
                    _ => {
                        self.replies.push(Reply::Passed(Outgoing::request(Some(id), &method, params)));
                        return Ok(());
                    }
                };
                let _ = self.send(Outgoing::response(id, &outcome));
            }
            Some(Message::Notification { method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let redacted = params.and_then(|params| redact_members(&self.redactor, params));
                let passed = Outgoing::request(None, &method, redacted.as_deref().or(params));
                self.replies.push(Reply::Passed(passed));
            }
            None => {}
        }
        Ok(())
    }

    /// Fails the request whose response cannot be read. A response without an id belongs to the only request, if there
    /// is one.
    fn fail_unreadable(&mut self, id: Option<Id>, reason: &str) -> Result<()> {
        let only = || self.in_flight.keys().next().filter(|_| self.in_flight.len() == 1).cloned();
        let Some(request) = id.or_else(only).and_then(|id| self.in_flight.remove(&id)) else { return Ok(()) };
        let message = format!("the response of the server {} cannot be read: {reason}", self.name);
        self.fail(&request, &Error::new(Code::Server, message))
    }

    /// Ends a request with an error: the client gets it, for the gate's own request as the answer to those that wait
    /// for its response.
    pub(super) fn fail(&mut self, request: &Request, error: &Error) -> Result<()> {
        let Origin::Client(call) = &request.origin else {
            return self.refuse_held(|gate, id, method| gate.refuse(id, method, error));
        };
        self.record_result(call.as_ref(), true, None)?;
        self.refuse(&request.id, &request.method, error);
        Ok(())
    }

    fn no_sampling(&self) -> String {
        format!("sampling = true in [mcp.{}] of the policy lets the server ask your model", self.name)
    }

    fn receive_response(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let Some(mut request) = self.in_flight.remove(id) else {
            // Some servers return a number as a string, or a string as a number.
            let other = id.strip_prefix('"').and_then(|id| id.strip_suffix('"'));
            let other = other.map_or_else(|| format!("\"{id}\""), str::to_owned);
            if !self.in_flight.contains_key(&other) {
                return Ok(());
            }
            let reason = format!("its id is {id}, which has another type than the id of the request");
            return self.fail_unreadable(Some(other), &reason);
        };
        match std::mem::replace(&mut request.origin, Origin::Handshake) {
            Origin::Client(call) => {
                self.starts = 0;
                request.origin = Origin::Client(call);
                self.pass_response(&request, outcome)
            }
            Origin::Handshake => {
                let _ = self.send(Outgoing::request(None, "notifications/initialized", None));
                self.release()
            }
            Origin::List(members, pages) => self.page(members, pages, outcome),
        }
    }

    /// Passes a response on to the client, with secrets redacted.
    fn pass_response(&mut self, request: &Request, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let Request { id, origin: Origin::Client(call), .. } = request else { return Ok(()) };
        let redactor = &self.redactor;
        let result = match outcome {
            Ok(result) => result,
            Err(failure) => {
                let redacted = raw(&failure).ok().and_then(|raw| redact(redactor, &raw));
                let failure = redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(failure);
                self.record_result(call.as_ref(), true, None)?;
                self.answer(id, Err(failure));
                return Ok(());
            }
        };
        let redacted = redact_members(redactor, result);
        let result = redacted.as_deref().unwrap_or(result);
        if let Some(started) = call {
            let read: CallResult = serde_json::from_str(result.get()).unwrap_or_default();
            if read.requests(SAMPLING) && !self.table.sampling {
                return self.fail(request, &Error::new(Code::Forbidden, self.no_sampling()));
            }
            if let Err(error) = check_media(&read) {
                return self.fail(request, &error);
            }
            self.states.extend(read.request_state.map(|state| continuation_key(&started.call, &state)));
            self.record_result(Some(started), read.is_error, Some(result))?;
        }
        self.answer(id, Ok(result));
        Ok(())
    }

    fn page(&mut self, mut members: Members, mut pages: Pages, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let added = match outcome {
            Ok(page) => pages.add(page),
            Err(failure) => return self.refuse_held(|gate, id, _| gate.answer(id, Err(failure.clone()))),
        };
        let listed = match added {
            Ok(Some(cursor)) => {
                members.insert("cursor".to_owned(), raw(&cursor)?);
                return self.next_page(members, pages);
            }
            Ok(None) => self.accept_listing(pages.into_listing()),
            Err(error) => Err(error),
        };
        match listed {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => self.refuse_held(|gate, id, method| gate.refuse(id, method, &error)),
            Ok(()) => {
                self.is_fresh = true;
                let released = self.release();
                self.is_fresh = false;
                released
            }
        }
    }

    /// Refuses the held tool requests, and handles the other held lines.
    fn refuse_held(&mut self, refuse: impl Fn(&mut Self, &RawValue, &str)) -> Result<()> {
        for line in std::mem::take(&mut self.held) {
            match parse(&line) {
                Some(Message::Request { id, method, .. }) if method.starts_with("tools/") => {
                    refuse(self, id, &method);
                }
                _ => self.receive_from_client(&line)?,
            }
        }
        Ok(())
    }

    /// Fails all requests, because the server has exited.
    pub(super) fn server_exited(&mut self, left: Result<()>) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut error = server.end(left);
        drop(server);
        if self.starts == 0 {
            // The server has worked before, so a hint about its start would mislead.
            error = Error::new(error.code(), error.message());
        }
        self.warnings.push(error.message().to_owned());
        self.count_noise();
        self.listing = None;
        std::mem::take(&mut self.in_flight).into_values().try_for_each(|request| self.fail(&request, &error))
    }
}
