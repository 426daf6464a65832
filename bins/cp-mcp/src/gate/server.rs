//! Messages of the server: responses to requests, and its own requests and notifications.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cp_common::keys::hash;
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{CallResult, Failure, METHOD_NOT_FOUND, Message, failure, read, request, response, result};
use serde_json::json;
use serde_json::value::RawValue;

use super::message::{
    described, failed, failure_of, id_of, is_response, raw, redact, redact_members, refused, repaired,
};
use super::{Answer, Gate, Request};

/// The requests of a server that pass to the client. Others would use its model, which the owner pays for, or are not
/// known here.
const PASSED: [&str; 3] = ["ping", "roots/list", "elicitation/create"];

impl Gate {
    /// Handles a line of the server. Responses to unknown requests are ignored.
    pub(super) fn receive_from_server(&mut self, line: &[u8], context: &mut Context) -> Result<()> {
        let line = repaired(line);
        match read(&line) {
            Ok(Message::Answer { id, outcome }) => {
                let id = id_of(id);
                // Some servers return a number as a string.
                let request = self.in_flight.remove(&id).or_else(|| self.in_flight.remove(id.trim_matches('"')));
                let Some(request) = request else { return Ok(()) };
                return self.end(&request, self.answer(&request.method, outcome), context);
            }
            Ok(Message::Request { id: Some(id), method, params }) => {
                let pong = raw(&serde_json::Map::new())?;
                let outcome = match method.as_str() {
                    "ping" if self.is_client => Ok(&*pong),
                    known if !self.is_client && PASSED.contains(&known) => {
                        return self.write(&request(Some(id), known, params.as_ref()), context);
                    }
                    other => Err(Failure::new(METHOD_NOT_FOUND, not_passed(other))),
                };
                let _ = self.send(response(id, outcome.as_ref()));
            }
            Ok(Message::Request { id: None, method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let redacted = params.and_then(|params| redact_members(self.redactor, params));
                self.write(&request(None, &method, redacted.as_deref().or(params).as_ref()), context)?;
            }
            Err((_, failure)) => {
                // A response that cannot be read belongs to the only request, if there is one.
                let is_only = self.in_flight.len() == 1 && is_response(&line);
                let Some((_, request)) = is_only.then(|| self.in_flight.pop_first()).flatten() else {
                    self.hear_noise(&line, context);
                    return Ok(());
                };
                let message = format!("the response of the server {} cannot be read: {}", self.name, failure.message);
                return self.end(&request, Err(Error::new(Code::Server, message)), context);
            }
        }
        Ok(())
    }

    /// Ends a request, whose call is recorded.
    pub(super) fn end(&mut self, request: &Request, answer: Answer, context: &mut Context) -> Result<()> {
        let of_call = answer.as_ref().ok().filter(|_| request.call.is_some());
        let read = of_call.and_then(|result| serde_json::from_str::<CallResult>(result.get()).ok()).unwrap_or_default();
        let answer = check_result(&read).and(answer);
        let is_error = read.is_error || answer.is_err();
        let hash = answer.as_ref().ok().map(|result| hash(result.get().as_bytes()));
        self.journal.end(request.call.as_ref(), is_error, hash.as_deref(), None)?;
        match answer {
            answer if request.is_own => self.answered = Some(answer),
            Ok(answer) => self.write(&result(&request.id, &answer), context)?,
            Err(error) => self.refuse(&request.id, &request.method, &error, context)?,
        }
        Ok(())
    }

    /// Refuses a request of the client. A refused tool call is a failed result, because the model reads only results.
    pub(super) fn refuse(&self, id: &RawValue, method: &str, error: &Error, context: &mut Context) -> Result<()> {
        if method != "tools/call" || failure_of(error).is_some() {
            return self.write(&failure(id, &failed(error)), context);
        }
        let refused = json!({ "content": [{ "type": "text", "text": described(error) }], "isError": true });
        self.write(&result(id, &refused), context)
    }

    /// A response without secrets.
    fn answer(&self, method: &str, outcome: Result<&RawValue, Failure>) -> Answer {
        match outcome {
            // The parts of a list are redacted when it is complete.
            Ok(list) if method == "tools/list" => Ok(list.to_owned()),
            Ok(result) => Ok(redact_members(self.redactor, result).unwrap_or_else(|| result.to_owned())),
            Err(failure) => {
                let redacted = redact(self.redactor, &raw(&failure)?);
                let failure = redacted.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(failure);
                Err(refused(&self.name, method, &failure))
            }
        }
    }

    /// Fails all requests, because the server has exited.
    pub(super) fn server_exited(&mut self, why: Option<Error>, context: &mut Context) -> Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let mut error = server.close(why);
        if self.listing.is_some() {
            // The server has worked before, so a hint about its start would mislead.
            error = Error::new(error.code(), error.message());
        }
        self.warn(error.message(), context);
        self.listing = None;
        let mut left = std::mem::take(&mut self.in_flight).into_values();
        left.try_for_each(|request| self.end(&request, Err(Error::from_value(&error.to_value())), context))
    }
}

/// Refuses the result of a call that has requests which do not pass, or an image or audio that is not base64.
fn check_result(result: &CallResult) -> Result<()> {
    if let Some(method) = result.methods().find(|method| !PASSED.contains(method)) {
        return Err(Error::new(Code::Forbidden, not_passed(method)));
    }
    let Some(media) = result.media().find(|media| STANDARD.decode(&media.data).is_err()) else { return Ok(()) };
    let kind = if media.kind == "image" { "an image" } else { "audio" };
    let message = format!("the result has {kind} ({}) that is not valid base64", media.mime_type);
    Err(Error::new(Code::Server, message))
}

fn not_passed(method: &str) -> String {
    format!("cp-mcp passes only {} of a server to its client, and not {method}", PASSED.join(", "))
}
