//! From a prompt to its message, in the order in which it happens:
//!
//! 1. [`Engine::message`] asks for an answer, and once more if the answer does not match the schema.
//! 2. `answer` takes it from the recordings if they have one.
//! 3. `ask` asks the model, with retries.
//! 4. `attempt` sends one request: it admits the request, records it, sends it, and settles its cost.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use cp_common::wire::{Message, Prompt, Turn, Usage};
use cp_common::{Code, Error, Result, signals};
use serde_json::Value;

use super::budget::{Amount, Reservation};
use super::gate::Slot;
use super::recordings::Recordings;
use super::retry::{self, is_rate_limit};
use super::schema::correction;
use super::{Engine, Listener, Work};
use crate::backend::price::Price;
use crate::pause;
use crate::wire_api::ends::remark;
use crate::wire_api::{TextKind, thoughts};

/// A failed attempt, or the last of several.
struct Failed {
    error: Error,
    /// Text of the answer was already shown, so the request cannot be retried.
    shown: bool,
    /// Counts as a retry. A rate limit of all requests does not.
    counts: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, shown: false, counts: true }
    }
}

impl Engine {
    /// Answers one prompt, as JSON that matches the schema if there is one.
    pub(crate) fn message(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let message = self.matching(work, listener).map_err(|error| work.failure(error))?;
        if let Some(remark) = remark(&message) {
            listener.warn(remark);
        }
        Ok(message)
    }

    fn matching(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let mut first = self.answer(work, listener)?;
        let Err(fault) = self.parse_answer(work, &mut first) else { return Ok(first) };
        listener.warn(&format!("the answer does not match the schema ({}); asking again", fault.message));
        // Providers refuse an empty turn.
        let text = Some(first.content.text()).filter(|text| !text.trim().is_empty());
        let text = text.unwrap_or_else(|| "(no text)".to_owned());
        work.add_turns([Turn::text("assistant", &text), Turn::text("user", &correction(&fault))]);
        let mut message = self.answer(work, listener)?;
        message.usage += &first.usage;
        message.request_hash = first.request_hash;
        self.parsed(work, message)
    }

    /// Takes the answer from the recordings if they have it; otherwise asks.
    fn answer(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let Some(recordings) = &self.recordings else { return self.ask(work, listener) };
        let request = work.recorded_body()?;
        let key = &recordings.key(&work.target.endpoint, &request);
        let _claim = recordings.claim(key);
        if let Some(recorded) = recordings.find(key)? {
            return self.replay(recordings, recorded, work, listener);
        }
        let message = self.ask(work, listener)?;
        recordings.add(key, &message.backend, &request, &message)?;
        Ok(message)
    }

    /// Makes the message for this prompt from a recorded one.
    fn replay(
        &self,
        recordings: &Recordings,
        recorded: Message,
        work: &mut Work,
        listener: &mut dyn Listener,
    ) -> Result<Message> {
        let name = if recordings.is_replayed() { "replay" } else { "cache" };
        self.journal.record_replay(name, work)?;
        if work.request.stream {
            thoughts(&recorded.blocks).try_for_each(|thought| listener.thinking(&thought))?;
            let text = recorded.content.text();
            text.split_inclusive(' ').try_for_each(|piece| listener.text(piece))?;
        }
        let Prompt { session_id, agent, row, .. } = work.prompt.clone();
        let mut message = Message { input: work.prompt.input().to_vec(), session_id, agent, row, ..recorded };
        (message.receipt, message.request_hash) = (work.receipt.clone(), Some(work.request_hash()?.to_owned()));
        message.endpoint.clone_from(&work.target.endpoint.name);
        if !recordings.is_replayed() {
            // The first request paid for it, so it is not counted again.
            message.cached = true;
            message.usage = Usage { cost_usd: Some(0.0), ..Usage::default() };
        }
        Ok(message)
    }

    /// Asks the model, and retries failures that may be transient.
    fn ask(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        self.note_lowered(work)?;
        let body = work.body()?;
        let mut failed = 0;
        work.attempt = 0;
        loop {
            work.attempt += 1;
            let Failed { error, shown, counts } = match self.attempt(work, &body, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let error = error.with("attempts", work.attempt);
            failed += u32::from(counts);
            let wait = self.retries.wait(&error, failed, retry::jitter()).filter(|_| !shown);
            let Some(wait) = wait else {
                return Err(if affects_all_requests(&error, work) { error.fatal() } else { error });
            };
            // The gate waits for a rate limit.
            if !is_rate_limit(&error) {
                let (attempt, seconds) = (work.attempt, wait.as_secs_f64());
                listener.warn(&format!("attempt {attempt} failed: {}; retrying in {seconds:.1} s", error.message()));
                pause(wait)?;
            }
        }
    }

    /// Sends one request.
    fn attempt(&self, work: &mut Work, body: &[u8], listener: &mut dyn Listener) -> Result<Message, Failed> {
        let (slot, reserved) = self.admit(work, body, listener)?;
        // A signal waits until an answer that is paid for is recorded.
        let _effect = signals::effect();
        if let Err(error) = self.journal.record_request(work) {
            self.settle(reserved.as_ref(), None, false)?;
            return Err(error.into());
        }
        let start = Instant::now();
        let mut shown = false;
        let request = &work.request;
        let mut exchange = work.ready.backend.exchange(request, body, &mut |kind, text| match kind {
            _ if !request.stream => Ok(()),
            TextKind::Thinking => listener.thinking(text),
            TextKind::Answer => {
                shown = true;
                listener.text(text)
            }
        });
        exchange.took = Some(start.elapsed());
        exchange.usage = self.usage(&exchange, &work.target, Price::of);
        let settled = self.settle(reserved.as_ref(), exchange.usage, exchange.outcome.is_ok());
        let mut counts = true;
        match &exchange.outcome {
            Ok(_) => slot.answered(),
            Err(error) if is_rate_limit(error) => counts = self.slow_down(&slot, error),
            Err(error) if affects_all_requests(error, work) => {
                self.shared_failure().get_or_insert_with(|| error.to_value());
            }
            Err(_) => {}
        }
        // The next request in this slot sees the pause or the shared failure.
        drop(slot);
        let failed = |error| Failed { error, shown, counts };
        let message = self.concluded(work, exchange).map_err(failed)?.map_err(failed)?;
        settled.map_err(|error| {
            failed(error.with("partial", message.content.text()).with("_untrusted", vec!["/partial"]))
        })?;
        Ok(message)
    }

    /// Waits for a turn, for a concurrency slot and for budget.
    fn admit(&self, work: &Work, body: &[u8], listener: &mut dyn Listener) -> Result<(Slot, Option<Reservation>)> {
        if let Some(budget) = &self.budget {
            self.check_price(budget, work)?;
        }
        let slot = self.gate.enter(&mut |message| listener.warn_now(message))?;
        if let Some(first) = &*self.shared_failure() {
            return Err(Error::from_value(first).fatal());
        }
        let Some(budget) = &self.budget else { return Ok((slot, None)) };
        // Without a limit of its tokens a request costs as much as the average answer.
        let average = budget.average().filter(|_| work.request.most_tokens().is_none());
        let estimate = average.unwrap_or_else(|| self.estimate(work, body.len(), Price::of));
        let reserved = budget.admit(estimate, &mut |message| listener.warn_now(message))?;
        Ok((slot, Some(reserved)))
    }

    /// Replaces the estimate of a request with its usage. An answer without usage is an error, because no budget can be
    /// kept then.
    fn settle(&self, reserved: Option<&Reservation>, usage: Option<Usage>, is_answer: bool) -> Result<()> {
        let (Some(budget), Some(reserved)) = (&self.budget, reserved) else { return Ok(()) };
        let known = usage.filter(|usage| Amount::of(usage).tokens > 0);
        budget.settle(reserved, known.as_ref())?;
        if is_answer && known.is_none() { budget.report_missing_usage().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Delays all requests after a rate limit. Returns true if it counts as a retry of this request.
    fn slow_down(&self, slot: &Slot, error: &Error) -> bool {
        let was_alone = slot.rate_limited(error.message(), |count| self.retries.length(error, count, retry::jitter()));
        // While concurrency can still be reduced, the limit is caused by it, and no row uses up its retries.
        was_alone || self.retries.retries == 0
    }

    /// The first failure that every other request would meet too.
    fn shared_failure(&self) -> MutexGuard<'_, Option<Value>> {
        self.shared_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if every other request would fail in the same way, because of the key, the credit, the model or the base URL. A
/// model that the prompt names itself is an error of that prompt only.
fn affects_all_requests(error: &Error, work: &Work) -> bool {
    let is_upstream = error.details().get("origin").is_some_and(|origin| origin == "upstream");
    let model = &work.request.model;
    let is_named_by_prompt = work.prompt.model.as_ref().is_some_and(|named| {
        named.strip_suffix(model.as_str()).is_some_and(|endpoint| endpoint.is_empty() || endpoint.ends_with('/'))
    });
    match error.code() {
        Code::Auth => true,
        Code::NotFound => is_upstream && !is_named_by_prompt,
        _ => is_upstream && error.is_fatal(),
    }
}
