//! Messages of the server: responses to requests, and its own requests and notifications.

use cp_common::{Code, Error, Result};
use cp_mcp_wire::{CallResult, Failure, METHOD_NOT_FOUND, Message, parse};
use serde_json::value::{RawValue, to_raw_value};

use super::calls::continuation_key;
use super::message::{Id, Line, Members, check_media, id_of, message, redact, redact_members, response};
use super::tools::Pages;
use super::{Gate, Own, Pending, Server};
use crate::stdio::Post;

/// The request by which a server asks the model of its client.
const SAMPLING: &str = "sampling/createMessage";
/// The code of clients for a sampling request that the user rejects.
const REJECTED: i64 = -1;

impl<S: Server, F: FnMut(Post) -> Result<S>> Gate<S, F> {
    /// Handles a line of the server. Banners and responses to unknown requests are ignored.
    pub(super) fn receive_from_server(&mut self, line: &[u8]) -> Result<()> {
        let line = match self.lines.read(line) {
            Line::Message(line) => line,
            Line::Invalid(id, reason) => return self.fail_unreadable(id, &reason),
            Line::Other => return Ok(()),
        };
        match parse(&line) {
            Some(Message::Answer { id, outcome }) => self.receive_response(&id_of(id), outcome),
            Some(Message::Request { id, method, .. }) if method == SAMPLING && !self.table.sampling => {
                let failure = Failure::new(REJECTED, self.no_sampling());
                let _ = self.send(&response(id, &Err(failure)));
                Ok(())
            }
            Some(Message::Request { id, method, .. }) if self.caller.is_some() => {
                let pong = RawValue::from_string("{}".to_owned()).unwrap_or_default();
                let unsupported = || Failure::new(METHOD_NOT_FOUND, "not supported");
                let outcome = if method == "ping" { Ok(&*pong) } else { Err(unsupported()) };
                let _ = self.send(&response(id, &outcome));
                Ok(())
            }
            Some(Message::Request { id, method, params }) => {
                self.write_to_client(&message(Some(id), &method, params));
                Ok(())
            }
            Some(Message::Notification { method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let redacted = params.and_then(|params| redact_members(&self.redactor, params));
                self.write_to_client(&message(None, &method, redacted.as_deref().or(params)));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fails the request whose response cannot be read. A response without an id belongs to the only pending request,
    /// if there is one.
    fn fail_unreadable(&mut self, id: Option<Id>, reason: &str) -> Result<()> {
        let only = || self.pending.keys().next().filter(|_| self.pending.len() == 1 && self.own.is_none()).cloned();
        let Some(id) = id.or_else(only) else { return Ok(()) };
        let message = format!("the response of the server {} cannot be read: {reason}", self.name);
        let error = Error::new(Code::Server, message);
        match self.pending.remove(&id) {
            Some(pending) => self.fail(&pending, &error),
            None if self.is_own(&id) => self.fail_own(&error),
            None => Ok(()),
        }
    }

    /// Answers a request of the client with an error.
    pub(super) fn fail(&mut self, Pending { id, method, call, .. }: &Pending, error: &Error) -> Result<()> {
        self.record_result(call.as_ref(), true, None)?;
        self.refuse(id, method, error);
        Ok(())
    }

    /// Gives up the request of the gate itself, and fails the tool requests that wait for its response.
    pub(super) fn fail_own(&mut self, error: &Error) -> Result<()> {
        self.own = None;
        self.refuse_held(|gate, id, method| gate.refuse(id, method, error))
    }

    fn is_own(&self, id: &str) -> bool {
        self.own.is_some() && id.trim_matches('"') == self.own_id.to_string()
    }

    fn no_sampling(&self) -> String {
        format!("sampling = true in [mcp.{}] of the policy lets the server ask your model", self.name)
    }

    fn receive_response(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        if let Some(pending) = self.pending.remove(id) {
            self.starts = 0;
            return self.pass_response(&pending, outcome);
        }
        let is_own = self.is_own(id);
        match self.own.take_if(|_| is_own).map(|(own, _)| own) {
            Some(Own::Handshake) => {
                let _ = self.send(&message(None, "notifications/initialized", None));
                self.release()
            }
            Some(Own::List(members, pages)) => self.page(members, pages, outcome),
            None => {
                // Some servers return a number as a string, or a string as a number.
                let other = id.strip_prefix('"').and_then(|id| id.strip_suffix('"'));
                let other = other.map_or_else(|| format!("\"{id}\""), str::to_owned);
                if !self.pending.contains_key(&other) {
                    return Ok(());
                }
                let reason = format!("its id is {id}, which has another type than the id of the request");
                self.fail_unreadable(Some(other), &reason)
            }
        }
    }

    /// Passes a response on to the client, with secrets redacted.
    fn pass_response(&mut self, pending: &Pending, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let Pending { id, call, .. } = pending;
        let redactor = &self.redactor;
        let result = match outcome {
            Ok(result) => result,
            Err(failure) => {
                let redacted = to_raw_value(&failure).ok().and_then(|raw| redact(redactor, &raw));
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
                return self.fail(pending, &Error::new(Code::Forbidden, self.no_sampling()));
            }
            if let Err(error) = check_media(&read) {
                return self.fail(pending, &error);
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
                let cursor = to_raw_value(&cursor).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
                members.insert("cursor".to_owned(), cursor);
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

    /// Fails all pending requests, because the server has exited.
    pub(super) fn server_exited(&mut self, left: Result<()>) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut error = server.end(left);
        drop(server);
        if self.starts == 0 {
            // The server has worked before, so a hint about its start would mislead.
            error = Error::new(error.code(), error.message());
        }
        self.warnings.push(error.message().to_owned());
        self.listing = None;
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.fail(&pending, &error)?;
        }
        self.fail_own(&error)
    }
}
