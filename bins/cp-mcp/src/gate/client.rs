//! Messages of the client: passed on or refused.

use cp_common::json::check;
use cp_common::{Context, Error, Result};
use cp_mcp_wire::{Failure, Message, Meta, PARSE_ERROR, failure, read, request, response, result};
use serde_json::value::RawValue;
use serde_json::{from_str, json};

use super::message::{id_of, members_of};
use super::{Gate, Request};

impl Gate {
    /// Handles a line of the client.
    pub(super) fn receive_from_client(&mut self, line: &[u8], context: &mut Context) -> Result<()> {
        // An ambiguous line is not passed on, because the server could interpret it differently.
        let checked = check(line).map_err(|fault| (None, Failure::new(PARSE_ERROR, format!("not JSON: {fault}"))));
        match checked.and_then(|()| read(line)) {
            Ok(Message::Request { id: Some(id), method, params }) => {
                match self.pass_request(id, &method, params, context) {
                    Err(error) if !error.is_fatal() => return self.refuse(id, &method, &error, context),
                    done => return done,
                }
            }
            // A server that has exited needs no notification and no response.
            Ok(Message::Request { id: None, method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancelled(params)?;
                }
                let _ = self.send(request(None, &method, params.as_ref()));
            }
            Ok(Message::Answer { id, outcome }) => drop(self.send(response(id, outcome.as_ref()))),
            Err((id, why)) => return self.write(&failure(id.unwrap_or(RawValue::NULL), &why), context),
        }
        Ok(())
    }

    fn pass_request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        context: &mut Context,
    ) -> Result<()> {
        if self.in_flight.contains_key(&id_of(id)) {
            return Err(Error::validation("a request with this id is still pending"));
        }
        self.record_client(method, params)?;
        let call = match method {
            "tools/list" => {
                self.list(params, context)?;
                let listed = self.listing.as_ref().map(|listing| listing.result(self.redactor)).transpose()?;
                return self.write(&result(id, &listed.unwrap_or_default()), context);
            }
            "tools/call" => Some(self.begin(params, context)?),
            _ => None,
        };
        let (id, method) = (id.to_owned(), method.to_owned());
        self.request(Request { id, method, end: None, is_own: false, call }, params)
    }

    /// Records the client, as soon as a request names it.
    fn record_client(&mut self, method: &str, params: Option<&RawValue>) -> Result<()> {
        if self.client.is_some() && method != "initialize" {
            return Ok(());
        }
        let members = members_of(params);
        let said = if method == "initialize" { params } else { members.get("_meta").map(|meta| &**meta) };
        let Some(client) = said.and_then(|said| from_str::<Meta>(said.get()).ok()) else { return Ok(()) };
        let Meta { version, client, .. } = client;
        let session = json!({ "server": self.name, "client": self.client.insert(client), "protocol": version });
        self.journal.note("mcp.session", &session).map(drop)
    }

    /// Forgets a request that the client cancels; its response is ignored. A request of the gate itself stays.
    fn cancelled(&mut self, params: Option<&RawValue>) -> Result<()> {
        let Some(key) = members_of(params).get("requestId").map(|id| id_of(id)) else { return Ok(()) };
        let request = self.in_flight.extract_if(.., |id, request| *id == key && !request.is_own).next();
        request.map_or(Ok(()), |(_, request)| self.journal.end(request.call.as_ref(), true, None, None))
    }
}
