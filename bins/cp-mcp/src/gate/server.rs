//! Lines of the server: answers to what was asked, and what it says by itself.

use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{Failure, Message, parse};
use serde_json::value::{RawValue, to_raw_value};

use super::calls::Said;
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
    pub(super) fn server_says(&mut self, line: &[u8]) -> Result<()> {
        match parse(line) {
            Some(Message::Answer { id, outcome }) => self.answered(&id_of(id), outcome),
            Some(Message::Request { id, method, .. }) if method == SAMPLING && !self.table.sampling => {
                let failure = Failure::new(REJECTED, self.no_sampling());
                let _ = self.send(&answer(id, &Err(failure)));
                Ok(())
            }
            Some(Message::Request { id, method, params }) => self.say(&message(Some(id), &method, params)),
            Some(Message::Notification { method, params }) => {
                if method == "notifications/tools/list_changed" {
                    self.listing = None;
                }
                let clean = params.and_then(|params| cleaned(&self.redactor, params));
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
    fn passed_on(&mut self, Pending { id, method, call }: &Pending, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let redactor = &self.redactor;
        let result = match outcome {
            Ok(result) => result,
            Err(failure) => {
                let clean = to_raw_value(&failure).ok().and_then(|raw| without_secrets(redactor, &raw));
                let failure = clean.and_then(|clean| serde_json::from_str(clean.get()).ok()).unwrap_or(failure);
                self.concluded(call.as_ref(), true, None)?;
                return self.say(&answer(id, &Err(failure)));
            }
        };
        let clean = cleaned(redactor, result);
        let result = clean.as_deref().unwrap_or(result);
        if let Some(made) = call {
            let said = Said::of(result);
            if said.asks(SAMPLING) && !self.table.sampling {
                self.concluded(Some(made), true, None)?;
                return self.say(&refusal(id, method, &Error::new(Code::Forbidden, self.no_sampling())));
            }
            said.goes_on(&made.call, &mut self.states);
            self.concluded(Some(made), said.is_error, Some(result))?;
        }
        self.say(&answer(id, &Ok(result)))
    }

    fn page(&mut self, mut asked: Members, mut pages: Pages, outcome: Result<&RawValue, Failure>) -> Result<()> {
        let added = match outcome {
            Ok(page) => pages.add(page),
            Err(failure) => return self.refuse_held(|id, _| answer(id, &Err(failure.clone()))),
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
            Err(error) => self.refuse_held(|id, method| refusal(id, method, &error)),
            Ok(()) => {
                self.is_fresh = true;
                let released = self.release();
                self.is_fresh = false;
                released
            }
        }
    }

    /// Answers what waited for the tools; the rest goes on.
    fn refuse_held(&mut self, refused: impl Fn(&RawValue, &str) -> String) -> Result<()> {
        for line in std::mem::take(&mut self.held) {
            match parse(&line) {
                Some(Message::Request { id, method, .. }) if method.starts_with("tools/") => {
                    self.say(&refused(id, &method))?;
                }
                _ => self.client_says(&line)?,
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
        self.own = None;
        self.refuse_held(|id, method| refusal(id, method, &error))
    }
}
