//! Lines of the server: answers to what was asked, and what it says by itself.

use std::time::Instant;

use cp_common::wire::Receipt;
use cp_common::{Code, Context, Error, Result, keys};
use cp_mcp_wire::{Failure, Message, parse};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::calls::Call;
use super::clean::{Members, cleaned, without_secrets};
use super::line::{answer, id_of, message, refusal};
use super::tools::Pages;
use super::{Gate, Own, Pending, Server};
use crate::inbox::Post;

/// What a server asks the model of its client with.
const SAMPLING: &str = "sampling/createMessage";
/// What clients answer to that when a person does not want it.
const REJECTED: i64 = -1;

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    /// Takes a line of the server. Banners and answers that nobody waits for pass by.
    pub(super) fn from_server(&mut self, line: &[u8]) -> Result<()> {
        match parse(line) {
            Some(Message::Answer { id, outcome }) => self.answered(&id_of(id), outcome),
            Some(Message::Request { id, method, .. }) if method == SAMPLING && !self.table.sampling => {
                let failure = Failure { code: REJECTED, message: self.no_sampling(), data: Value::Null };
                let _ = self.send(&answer(id, &Err(failure)));
                Ok(())
            }
            Some(Message::Request { id, method, params }) => self.say(&message(Some(id), &method, params)),
            Some(Message::Notification { method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let clean = params.and_then(|params| cleaned(self.journal.redactor(), params));
                self.say(&message(None, &method, clean.as_deref().or(params)))
            }
            None => Ok(()),
        }
    }

    fn no_sampling(&self) -> String {
        format!("sampling = true in [mcp.{}] of the policy lets the server ask your model", self.name)
    }

    fn answered(&mut self, id: &str, outcome: Result<&RawValue, Failure>) -> Result<()> {
        if let Some(pending) = self.pending.remove(id) {
            self.starts = 0;
            return self.passed_on(&pending, outcome);
        }
        let is_own = id.strip_prefix('"').is_some_and(|id| id.starts_with(&self.prefix));
        match self.own.take_if(|_| is_own) {
            Some(Own::Handshake) => {
                let _ = self.send(&message(None, "notifications/initialized", None));
                self.release()
            }
            Some(Own::List(asked, pages)) => self.page(asked, pages, outcome),
            None => Ok(()),
        }
    }

    /// An answer to the client, without secrets.
    fn passed_on(&mut self, pending: &Pending, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let Pending { id, method, call } = pending;
        let outcome = match outcome {
            Ok(result) => {
                let clean = cleaned(self.journal.redactor(), result);
                let result = clean.as_deref().unwrap_or(result);
                if let Some((made, ..)) = call {
                    let asks = Asks::of(result);
                    if asks.is_for_model && !self.table.sampling {
                        let error = Error::new(Code::Forbidden, self.no_sampling());
                        self.concluded(call.as_ref(), true, None)?;
                        return self.say(&refusal(id, method, &error));
                    }
                    self.goes_on(made, result);
                    self.concluded(call.as_ref(), asks.is_error, Some(result))?;
                }
                return self.say(&answer(id, &Ok(result)));
            }
            Err(Failure { code, message, data }) => {
                let redactor = self.journal.redactor();
                let clean = to_raw_value(&data).ok().and_then(|data| without_secrets(redactor, &data));
                let data = clean.and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or(data);
                Failure { code, message: redactor.redact_text(&message).0, data }
            }
        };
        self.concluded(call.as_ref(), true, None)?;
        self.say(&answer(id, &Err(outcome)))
    }

    /// Records what a call came to.
    pub(super) fn concluded(
        &mut self,
        call: Option<&(Call, Receipt, Instant)>,
        is_error: bool,
        result: Option<&RawValue>,
    ) -> Result<()> {
        let Some((_, receipt, began)) = call else { return Ok(()) };
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let hash = result.map(|result| keys::hash(result.get().as_bytes()));
        self.journal.result(receipt, is_error, took, hash.as_deref())
    }

    fn page(&mut self, mut asked: Members, mut pages: Pages, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let added = match outcome {
            Ok(page) => pages.add(page),
            Err(failure) => return self.not_listed(&Err(failure)),
        };
        let listed = match added {
            Ok(Some(cursor)) => {
                let cursor = to_raw_value(&cursor).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
                asked.insert("cursor".to_owned(), cursor);
                return self.next_page(asked, pages);
            }
            Ok(None) => self.listed(pages.whole()),
            Err(error) => Err(error),
        };
        match listed {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => self.not_listed(&Ok(error)),
            Ok(()) => {
                self.is_fresh = true;
                let released = self.release();
                self.is_fresh = false;
                released
            }
        }
    }

    /// Answers what waited for the tools; the rest goes on.
    fn not_listed(&mut self, why: &Result<Error, Failure>) -> Result<()> {
        for line in std::mem::take(&mut self.held) {
            match (parse(&line), why) {
                (Some(Message::Request { id, method, .. }), Ok(error)) if method.starts_with("tools/") => {
                    self.say(&refusal(id, &method, error))?;
                }
                (Some(Message::Request { id, method, .. }), Err(failure)) if method.starts_with("tools/") => {
                    self.say(&answer(id, &Err(failure.clone())))?;
                }
                _ => self.from_client(&line)?,
            }
        }
        Ok(())
    }

    /// What the client waits for will not come.
    pub(super) fn server_left(&mut self, left: Result<()>) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut error = server.end(left);
        drop(server);
        if self.starts == 0 {
            // It worked before: how it is started needs no cure.
            error = Error::new(error.code(), error.message());
        }
        self.context.warn(error.message());
        self.listing = None;
        for Pending { id, method, call } in std::mem::take(&mut self.pending).into_values() {
            self.concluded(call.as_ref(), true, None)?;
            self.say(&refusal(&id, &method, &error))?;
        }
        match self.own.take() {
            Some(_) => self.held_refused(&error),
            None => Ok(()),
        }
    }

    /// Answers all that waited for a server that has left.
    fn held_refused(&mut self, error: &Error) -> Result<()> {
        for line in std::mem::take(&mut self.held) {
            if let Some(Message::Request { id, method, .. }) = parse(&line) {
                self.say(&refusal(id, &method, error))?;
            }
        }
        Ok(())
    }
}

/// What a result of a call says of itself.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asks {
    is_error: bool,
    input_requests: Option<Value>,
    #[serde(skip)]
    is_for_model: bool,
}

impl Asks {
    fn of(result: &RawValue) -> Self {
        let mut asks: Self = serde_json::from_str(result.get()).unwrap_or_default();
        let requests = asks.input_requests.as_ref().and_then(Value::as_object).into_iter().flatten();
        asks.is_for_model = requests.into_iter().any(|(_, request)| request["method"] == SAMPLING);
        asks
    }
}
