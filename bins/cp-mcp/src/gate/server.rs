//! Messages of the server: responses to requests, and its own requests and notifications.

use cp_common::{Code, Error, Result};
use cp_mcp_wire::{CallResult, Failure, METHOD_NOT_FOUND, Message, failure, parse, result};
use serde_json::json;
use serde_json::value::RawValue;

use super::calls::continuation_key;
use super::message::{Id, Line, Outgoing, check_media, described, failed, id_of, raw, read, redact, redact_members};
use super::{Answer, Gate, Request};

/// The request by which a server asks the model of its client.
const SAMPLING: &str = "sampling/createMessage";
/// The code of clients for a sampling request that the user rejects.
const REJECTED: i64 = -1;

impl Gate {
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
                    "ping" if self.own.is_some() => Ok(&*pong),
                    _ if self.own.is_some() => Err(Failure::new(METHOD_NOT_FOUND, "not supported")),
                    _ => {
                        self.lines.push(Outgoing::request(Some(id), &method, params).line);
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
                self.lines.push(Outgoing::request(None, &method, redacted.as_deref().or(params)).line);
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

    /// Ends a request with an error.
    pub(super) fn fail(&mut self, request: &Request, error: &Error) -> Result<()> {
        self.record_result(request.call.as_ref(), true, None)?;
        self.deliver(request, Err(Error::from_value(&error.to_value())));
        Ok(())
    }

    fn deliver(&mut self, request: &Request, answer: Answer) {
        match answer {
            answer if request.is_own => self.answered = Some(answer),
            Ok(outcome) => self.answer(&request.id, &outcome.as_deref().map_err(Clone::clone)),
            Err(error) => self.refuse(&request.id, &request.method, &error),
        }
    }

    /// Answers a request of the client.
    pub(super) fn answer(&mut self, id: &RawValue, outcome: &Result<&RawValue, Failure>) {
        self.lines.push(Outgoing::response(id, outcome).line);
    }

    /// Refuses a request of the client. A refused tool call is a failed result, because the model reads only results.
    pub(super) fn refuse(&mut self, id: &RawValue, method: &str, error: &Error) {
        let line = match method {
            "tools/call" => {
                let content = json!([{ "type": "text", "text": described(error) }]);
                result(id, &json!({ "content": content, "isError": true }))
            }
            _ => failure(id, &failed(error)),
        };
        self.lines.extend(line);
    }

    fn no_sampling(&self) -> String {
        format!("sampling = true in [mcp.{}] of the policy lets the server ask your model", self.name)
    }

    fn receive_response(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let Some(request) = self.in_flight.remove(id) else {
            // Some servers return a number as a string, or a string as a number.
            let other = id.strip_prefix('"').and_then(|id| id.strip_suffix('"'));
            let other = other.map_or_else(|| format!("\"{id}\""), str::to_owned);
            if !self.in_flight.contains_key(&other) {
                return Ok(());
            }
            let reason = format!("its id is {id}, which has another type than the id of the request");
            return self.fail_unreadable(Some(other), &reason);
        };
        self.has_answered = true;
        // The parts of a list are redacted when it is complete.
        let redactor = (request.method != "tools/list").then_some(&self.redactor);
        let outcome = match outcome {
            Ok(result) => {
                Ok(redactor.and_then(|redactor| redact_members(redactor, result)).unwrap_or(result.to_owned()))
            }
            Err(failure) => {
                let redacted = raw(&failure).ok().and_then(|raw| redact(&self.redactor, &raw));
                Err(redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(failure))
            }
        };
        if let (Ok(result), Some(started)) = (&outcome, &request.call) {
            let read: CallResult = serde_json::from_str(result.get()).unwrap_or_default();
            if read.requests(SAMPLING) && !self.table.sampling {
                return self.fail(&request, &Error::new(Code::Forbidden, self.no_sampling()));
            }
            if let Err(error) = check_media(&read) {
                return self.fail(&request, &error);
            }
            self.states.extend(read.request_state.map(|state| continuation_key(&started.call, &state)));
            self.record_result(Some(started), read.is_error, Some(result))?;
        } else {
            self.record_result(request.call.as_ref(), true, None)?;
        }
        self.deliver(&request, Ok(outcome));
        Ok(())
    }

    /// Fails all requests, because the server has exited.
    pub(super) fn server_exited(&mut self, left: Result<()>) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut error = server.end(left);
        drop(server);
        if self.has_answered {
            // The server has worked before, so a hint about its start would mislead.
            error = Error::new(error.code(), error.message());
        }
        self.warnings.push(error.message().to_owned());
        self.count_noise();
        self.listing = None;
        std::mem::take(&mut self.in_flight).into_values().try_for_each(|request| self.fail(&request, &error))
    }
}
