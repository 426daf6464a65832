//! From a prompt to a message: the request, its tries, the models to fall back to, and what goes on the ledger.

mod admission;
mod again;
pub(crate) mod audit;
pub(crate) mod cassette;
pub(crate) mod gate;
pub(crate) mod journal;
mod message;
pub(crate) mod prices;
pub(crate) mod purse;
pub(crate) mod retry;
pub(crate) mod schema;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cp_common::wire::{Message, Prompt, Turn, Usage};
use cp_common::{Code, Error, Result, signals};
use serde_json::json;

pub(crate) use self::admission::Ends;
use self::admission::is_everyones;
use self::cassette::Cassette;
use self::gate::Gate;
use self::journal::{Journal, Try};
use self::prices::Prices;
use self::purse::Purse;
use self::retry::{RetryPolicy, is_refusal};
use self::schema::{AnswerSchema, Mismatch};
pub(crate) use self::work::Work;
use crate::backend::Backend;
use crate::dialect::{Answer, Lowered, Request, Tokens};
use crate::digest;
use crate::pause::pause;

/// Receives what happens while an answer is made.
pub(crate) trait Listener {
    /// New text of the model.
    fn text(&mut self, text: &str) -> Result<()>;
    /// Something a person should know.
    fn warn(&mut self, message: &str);
    /// Something a person should know at once, because it is not only of this prompt.
    fn say(&mut self, message: &str) {
        self.warn(message);
    }
}

/// What answers prompts. Shared by every thread that asks.
pub(crate) struct Engine {
    /// What answers the requests.
    pub backend: Box<dyn Backend>,
    /// How often and how long to try.
    pub retries: RetryPolicy,
    /// What tokens cost.
    pub prices: Prices,
    /// Stop reasons that are failures.
    pub fail_on: Vec<String>,
    /// What the answer must look like.
    pub schema: Option<AnswerSchema>,
    /// The recordings that answers are taken from or added to.
    pub cassette: Option<Cassette>,
    /// What may be spent, and how fast.
    pub purse: Option<Purse>,
    /// How many requests go at the same time.
    pub gate: Gate,
    /// What no further request can help.
    pub ends: Mutex<Ends>,
    /// Where requests and answers are recorded.
    pub journal: Journal,
    /// What of the requests so far could not go as it came.
    pub lowered: Mutex<Lowered>,
}

/// A try that failed, or the last of several.
struct Failed {
    error: Error,
    /// Whether text of its answer was shown: then it cannot be tried again.
    shown: bool,
    /// Whether it counts as a try: one that was refused because all have to wait does not.
    counts: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, shown: false, counts: true }
    }
}

impl Engine {
    /// Answers one prompt, in the shape that was asked for.
    pub(crate) fn message(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let mut message = self.answered(work, listener)?;
        let Some(schema) = self.schema.as_ref().filter(|_| message.tool_calls.is_empty()) else { return Ok(message) };
        let text = message.content.text();
        let mismatch = match schema.parsed(&text) {
            Ok(parsed) => return Ok(message::with_parsed(message, parsed)),
            Err(mismatch) => mismatch,
        };
        listener.warn(&format!("the answer does not match the schema ({}); asking again", mismatch.reason));
        work.add_turns([Turn::text("assistant", &text), Turn::text("user", &mismatch.correction())]);
        let first = message.usage;
        message = self.answered(work, listener)?;
        message.usage = message::sum(&first, &message.usage);
        let text = message.content.text();
        match schema.parsed(&text) {
            Ok(parsed) => Ok(message::with_parsed(message, parsed)),
            Err(Mismatch { path, reason }) => {
                let error = Error::validation(format!("the answer does not match the schema: {reason}"));
                let error = error.with("origin", "upstream").with("reason", "schema").with("path", path);
                Err(error
                    .with("partial", text)
                    .with("usage", json!(message.usage))
                    .with("_untrusted", vec!["/partial"]))
            }
        }
    }

    /// Answers from the recordings where that is possible, and else asks.
    fn answered(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        work.turn_to(0);
        let Some(cassette) = &self.cassette else { return self.asked(work, listener) };
        let request = self.recorded_form(work)?;
        let key = digest::of(&[self.backend.name().as_bytes(), b"\n", &request].concat());
        if let Some(recorded) = cassette.find(&key)? {
            self.journal.recalled(cassette.name(), &key, work)?;
            if work.request().stream {
                let text = recorded.content.text();
                text.split_inclusive(' ').try_for_each(|piece| listener.text(piece))?;
            }
            let Prompt { session_id, agent, row, .. } = work.prompt.clone();
            let mut message = Message { input: work.prompt.input().to_vec(), session_id, agent, row, ..recorded };
            if !cassette.is_replayed() {
                // It was paid for once, and is not counted again.
                message.cached = true;
                message.usage = Usage { cost_usd: message.usage.cost_usd.map(|_| 0.0), ..Usage::default() };
            }
            return Ok(message);
        }
        if cassette.is_replayed() {
            return Err(cassette.miss(&key, &request));
        }
        let message = self.asked(work, listener)?;
        cassette.keep(&key, self.backend.name(), &request, &message)?;
        Ok(message)
    }

    /// The body that a recording is found by: it depends neither on how the answer comes nor on where the backend keeps the conversation.
    fn recorded_form(&self, work: &Work) -> Result<Arc<Vec<u8>>> {
        let request = work.request();
        if !request.stream && request.conversation.is_none() {
            return self.body(work);
        }
        let plain = Request { stream: false, conversation: None, ..request.clone() };
        self.backend.body(&plain).map(Arc::new)
    }

    /// Finds the conversation that the backend keeps, where it keeps one. An answer that may be asked for once more belongs in none.
    pub(crate) fn find_conversation(&self, work: &mut Work) -> Result<()> {
        if self.backend.keeps_conversations()
            && self.schema.is_none()
            && let Some(conversation) = self.journal.conversation(work)?
        {
            work.continue_in(conversation);
        }
        Ok(())
    }

    /// Counts what of the request cannot go as it came.
    pub(crate) fn note_lowered(&self, work: &Work) -> Result<()> {
        let found = self.backend.lowered(work.request())?;
        let mut lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in found {
            *lowered.entry(kind).or_default() += count;
        }
        Ok(())
    }

    /// What could not go as it came, in words; none where all could.
    pub(crate) fn lowered(&self) -> Option<String> {
        let lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        let counts: Vec<String> = lowered.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        (!counts.is_empty()).then(|| {
            format!("blocks of earlier answers that were left out or sent as plain text: {}", counts.join(", "))
        })
    }

    /// The body that the next request has, exactly as it is sent.
    pub(crate) fn body(&self, work: &Work) -> Result<Arc<Vec<u8>>> {
        work.encoded(self.backend.as_ref())
    }

    /// Asks one model after the other.
    fn asked(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        self.find_conversation(work)?;
        self.note_lowered(work)?;
        let mut at = 0;
        loop {
            while at + 1 < work.models().len() && self.ends().models.contains(&work.models()[at]) {
                at += 1;
            }
            work.turn_to(at);
            let Failed { error, shown, .. } = match self.tries(work, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let is_for_all = is_everyones(&error, work);
            at += 1;
            let Some(next) = work.models().get(at).filter(|_| !shown && (is_upstreams(&error) || is_for_all)) else {
                return Err(if is_for_all { error.fatal() } else { error });
            };
            listener.warn(&format!("{} gave up ({}); falling back to {next}", work.request().model, error.code()));
        }
    }

    /// Asks one model, again where that may help.
    fn tries(&self, work: &Work, listener: &mut dyn Listener) -> Result<Message, Failed> {
        let body = self.body(work)?;
        let request_hash = digest::of(&body);
        let (mut attempt, mut failed) = (1, 0);
        let mut was_refused = false;
        loop {
            let this = Try { backend: self.backend.name(), attempt, request_hash: &request_hash };
            let Failed { error, shown, counts } = match self.attempt(&this, work, &body, was_refused, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let error = error.with("attempts", attempt);
            failed += u32::from(counts);
            let wait = self.retries.wait(&error, failed, retry::jitter()).filter(|_| !shown);
            let Some(wait) = wait else { return Err(Failed { error, shown, counts }) };
            was_refused = is_refusal(&error);
            // For those the gate waits.
            if !was_refused {
                let seconds = wait.as_secs_f64();
                listener.warn(&format!("try {attempt} failed: {}; trying again in {seconds:.1} s", error.message()));
                self.purse.as_ref().map_or(Ok(()), Purse::rest)?;
                pause(wait)?;
            }
            attempt += 1;
        }
    }

    fn attempt(
        &self,
        this: &Try<'_>,
        work: &Work,
        body: &[u8],
        was_refused: bool,
        listener: &mut dyn Listener,
    ) -> Result<Message, Failed> {
        let request = work.request();
        let (slot, ticket) = self.admit(request, body, was_refused, listener)?;
        // What is paid for is recorded.
        let _effect = signals::effect();
        if let Err(error) = self.journal.asked(this, work, body) {
            self.settle(ticket.as_ref(), None, false)?;
            return Err(error.into());
        }
        let start = Instant::now();
        let mut shown = false;
        let mut exchange = self.backend.exchange(request, body, &mut |text| {
            shown |= request.stream;
            if request.stream { listener.text(text) } else { Ok(()) }
        });
        let (tokens, answered_by) = match &exchange.outcome {
            Ok(answer) => (answer.usage, answer.model.as_deref()),
            Err(_) => (exchange.usage, None),
        };
        let usage = tokens.map(|tokens| self.usage(tokens, answered_by, &request.model));
        let settled = self.settle(ticket.as_ref(), usage.as_ref(), exchange.outcome.is_ok());
        let slowed = match &exchange.outcome {
            Ok(_) => {
                slot.answered();
                Ok(true)
            }
            Err(error) if is_refusal(error) => self.slow_down(&slot, error),
            Err(error) if is_everyones(error, work) => {
                self.end(error, work, shown);
                Ok(true)
            }
            Err(_) => Ok(true),
        };
        // Whoever takes its place knows what came of it.
        drop(slot);
        exchange.outcome = exchange.outcome.and_then(|answer| self.accepted(answer)).map_err(|error| match &usage {
            Some(usage) => error.with("usage", json!(usage)),
            None => error,
        });
        let receipt = self.journal.answered(this, work, &exchange, usage.as_ref(), start.elapsed());
        let counts = slowed?;
        let failed = |error| Failed { error, shown, counts };
        let receipt = receipt.map_err(failed)?;
        let answer = exchange.outcome.map_err(failed)?;
        settled.map_err(|error| {
            failed(error.with("partial", answer.content.text()).with("_untrusted", vec!["/partial"]))
        })?;
        let message = message::of(answer, usage.unwrap_or_default(), work, self.backend.name());
        Ok(Message { receipt: Some(receipt), ..message })
    }

    /// The answer, unless the caller calls its end a failure.
    fn accepted(&self, answer: Answer) -> Result<Answer> {
        if !self.fail_on.contains(&answer.stop) {
            return Ok(answer);
        }
        let code = if answer.stop == "refusal" { Code::Forbidden } else { Code::Validation };
        let error = Error::new(code, format!("the answer ended with {}", answer.stop))
            .with("origin", "upstream")
            .with("reason", answer.stop)
            .with("partial", answer.content.text())
            .with("_untrusted", vec!["/partial"]);
        Err(error.hint("--fail-on makes this a failure"))
    }

    fn usage(&self, tokens: Tokens, answered_by: Option<&str>, asked: &str) -> Usage {
        let usage = Usage::from(tokens);
        let cost_usd = self.prices.cost(&[answered_by.unwrap_or(asked), asked], &usage);
        Usage { cost_usd, ..usage }
    }
}

/// Whether another model may do better: the failure is of the model's server, and not of the request or the caller.
fn is_upstreams(error: &Error) -> bool {
    matches!(error.code(), Code::RateLimited | Code::Server | Code::Timeout)
}
