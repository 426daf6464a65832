//! Messages of the server: responses to requests, and its own requests and notifications.

use cp_common::keys::hash;
use cp_common::{Code, Error, Result};
use cp_mcp_wire::{CallResult, Failure, METHOD_NOT_FOUND, Message, failure, read, request, response, result};
use serde_json::json;
use serde_json::value::RawValue;

use super::message::{
    check_media, described, failed, failure_of, id_of, is_response, raw, redact, redact_members, refused, repaired,
};
use super::{Answer, Gate, Request};

/// The requests of a server that pass to the client. Others would use its model, which the owner pays for, or are not
/// known here.
const PASSED: [&str; 3] = ["ping", "roots/list", "elicitation/create"];

impl Gate {
    /// Handles a line of the server. Responses to unknown requests are ignored.
    pub(super) fn receive_from_server(&mut self, line: &[u8]) -> Result<()> {
        let line = repaired(line);
        match read(&line) {
            Ok(Message::Answer { id, outcome }) => return self.receive_response(&id_of(id), outcome),
            Ok(Message::Request { id: Some(id), method, params }) => {
                let pong = raw(&serde_json::Map::new())?;
                let outcome = match method.as_str() {
                    "ping" if self.is_client => Ok(&*pong),
                    known if !self.is_client && PASSED.contains(&known) => {
                        self.lines.push(request(Some(id), known, params.as_ref()));
                        return Ok(());
                    }
                    other => Err(Failure::new(METHOD_NOT_FOUND, not_passed(other))),
                };
                let _ = self.send(response(id, outcome.as_ref()));
            }
            Ok(Message::Request { id: None, method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let redacted = params.and_then(|params| redact_members(&self.redactor, params));
                self.lines.push(request(None, &method, redacted.as_deref().or(params).as_ref()));
            }
            Err((_, failure)) => {
                // A response that cannot be read belongs to the only request, if there is one.
                let is_only = self.in_flight.len() == 1 && is_response(&line);
                let Some((_, request)) = is_only.then(|| self.in_flight.pop_first()).flatten() else {
                    self.hear_noise(&line);
                    return Ok(());
                };
                let reason = failure.message;
                let message = format!("the response of the server {} cannot be read: {reason}", self.name);
                return self.end(&request, Err(Error::new(Code::Server, message)));
            }
        }
        Ok(())
    }

    /// Ends a request, whose call is recorded.
    pub(super) fn end(&mut self, request: &Request, answer: Answer) -> Result<()> {
        let read = |result: &RawValue| serde_json::from_str::<CallResult>(result.get()).is_ok_and(|read| read.is_error);
        let is_error = answer.as_deref().map_or(true, |result| request.call.is_some() && read(result));
        let hash = answer.as_ref().ok().map(|result| hash(result.get().as_bytes()));
        self.journal.end(request.call.as_ref(), is_error, hash.as_deref(), None)?;
        match answer {
            answer if request.is_own => self.answered = Some(answer),
            Ok(answer) => self.lines.push(result(&request.id, &answer)),
            Err(error) => self.refuse(&request.id, &request.method, &error),
        }
        Ok(())
    }

    /// Refuses a request of the client. A refused tool call is a failed result, because the model reads only results.
    pub(super) fn refuse(&mut self, id: &RawValue, method: &str, error: &Error) {
        self.lines.push(if method == "tools/call" && failure_of(error).is_none() {
            let content = json!([{ "type": "text", "text": described(error) }]);
            result(id, &json!({ "content": content, "isError": true }))
        } else {
            failure(id, &failed(error))
        });
    }

    fn receive_response(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        // Some servers return a number as a string.
        let number = id.trim_matches('"');
        let Some(request) = self.in_flight.remove(id).or_else(|| self.in_flight.remove(number)) else {
            return Ok(());
        };
        let answer = self.checked(&request, outcome);
        self.end(&request, answer)
    }

    /// A response without secrets; the error of a result that does not pass.
    fn checked(&self, request: &Request, outcome: Result<&RawValue, Failure>) -> Answer {
        let result = match outcome {
            // The parts of a list are redacted when it is complete.
            Ok(list) if request.method == "tools/list" => list.to_owned(),
            Ok(result) => redact_members(&self.redactor, result).unwrap_or_else(|| result.to_owned()),
            Err(failure) => {
                let redacted = redact(&self.redactor, &raw(&failure)?);
                let failure = redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(failure);
                return Err(refused(&self.name, &request.method, &failure));
            }
        };
        if request.call.is_some() {
            let read: CallResult = serde_json::from_str(result.get()).unwrap_or_default();
            if let Some(method) = read.methods().find(|method| !PASSED.contains(method)) {
                return Err(Error::new(Code::Forbidden, not_passed(method)));
            }
            check_media(&read)?;
        }
        Ok(result)
    }

    /// Fails all requests, because the server has exited.
    pub(super) fn server_exited(&mut self, why: Option<Error>) -> Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let mut error = (server.left)(why);
        server.close();
        if self.listing.is_some() {
            // The server has worked before, so a hint about its start would mislead.
            error = Error::new(error.code(), error.message());
        }
        self.warnings.push(error.message().to_owned());
        self.count_noise();
        self.listing = None;
        let mut left = std::mem::take(&mut self.in_flight).into_values();
        left.try_for_each(|request| self.end(&request, Err(Error::from_value(&error.to_value()))))
    }
}

fn not_passed(method: &str) -> String {
    format!("cp-mcp passes only {} of a server to its client, and not {method}", PASSED.join(", "))
}
