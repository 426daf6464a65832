//! From a prompt to a message: the request, its tries, the models to fall back to, and what goes on the ledger.

mod again;
pub(crate) mod audit;
pub(crate) mod batched;
pub(crate) mod budget;
pub(crate) mod cassette;
pub(crate) mod journal;
mod message;
pub(crate) mod prices;
pub(crate) mod rate;
pub(crate) mod retry;
pub(crate) mod schema;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cp_common::wire::{Message, Prompt, Turn, Usage};
use cp_common::{Code, Error, Result, signals};

use self::budget::Budget;
use self::cassette::Cassette;
use self::journal::{Journal, Try};
use self::prices::Prices;
use self::rate::RateLimiter;
use self::retry::RetryPolicy;
use self::schema::AnswerSchema;
pub(crate) use self::work::Work;
use crate::backend::Backend;
use crate::dialect::{Answer, Lowered, Request};
use crate::digest;
use crate::pause::pause;

/// Receives what happens while an answer is made.
pub(crate) trait Listener {
    /// New text of the model.
    fn text(&mut self, text: &str) -> Result<()>;
    /// Something a person should know.
    fn warn(&mut self, message: &str);
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
    /// What may be spent.
    pub budget: Option<Budget>,
    /// How fast to go.
    pub rate: Option<RateLimiter>,
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
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, shown: false }
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
        self.matched(message)
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
            work.turn_to(at);
            let Failed { error, shown } = match self.tries(work, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            at += 1;
            let Some(next) = work.models().get(at).filter(|_| !shown && is_upstreams(&error)) else {
                return Err(error);
            };
            listener.warn(&format!("{} gave up ({}); falling back to {next}", work.request().model, error.code()));
        }
    }

    /// Asks one model, again where that may help.
    fn tries(&self, work: &Work, listener: &mut dyn Listener) -> Result<Message, Failed> {
        let body = self.body(work)?;
        let request_hash = digest::of(&body);
        let mut attempt = 1;
        loop {
            let this = Try { backend: self.backend.name(), attempt, request_hash: &request_hash, batch: None };
            let Failed { error, shown } = match self.attempt(&this, work, &body, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let error = error.with("attempts", attempt);
            let wait = self.retries.wait(&error, attempt, retry::jitter()).filter(|_| !shown);
            let Some(wait) = wait else { return Err(Failed { error, shown }) };
            let seconds = wait.as_secs_f64();
            listener.warn(&format!("try {attempt} failed: {}; trying again in {seconds:.1} s", error.message()));
            pause(wait)?;
            attempt += 1;
        }
    }

    fn attempt(
        &self,
        this: &Try<'_>,
        work: &Work,
        body: &[u8],
        listener: &mut dyn Listener,
    ) -> Result<Message, Failed> {
        let request = work.request();
        self.admit(&request.model)?;
        // What is paid for is recorded.
        let _effect = signals::effect();
        self.journal.asked(this, work, body.len() as u64)?;
        let start = Instant::now();
        let mut shown = false;
        let mut exchange = self.backend.exchange(request, body, &mut |text| {
            shown |= request.stream;
            if request.stream { listener.text(text) } else { Ok(()) }
        });
        exchange.outcome = exchange.outcome.and_then(|answer| self.accepted(answer));
        let usage = exchange.outcome.as_ref().ok().map(|answer| self.usage(answer, &request.model));
        if let Some(usage) = &usage {
            self.count(usage);
        }
        let failed = |error| Failed { error, shown };
        let receipt =
            self.journal.answered(this, work, &exchange, usage.as_ref(), Some(start.elapsed())).map_err(failed)?;
        let answer = exchange.outcome.map_err(failed)?;
        let message = message::of(answer, usage.unwrap_or_default(), work, self.backend.name());
        Ok(Message { receipt: Some(receipt), ..message })
    }

    /// Lets a request through when there is money for it and its turn has come.
    fn admit(&self, model: &str) -> Result<()> {
        if let Some(budget) = &self.budget {
            if budget.counts_dollars() && !self.prices.knows(model) {
                return Err(Error::config(format!("{model} has no price, so a budget in dollars cannot be kept"))
                    .hint("add it to config/prices.toml, or use --budget-tokens")
                    .fatal());
            }
            budget.admit()?;
        }
        self.rate.as_ref().map_or(Ok(()), RateLimiter::wait)
    }

    fn count(&self, usage: &Usage) {
        if let Some(budget) = &self.budget {
            budget.count(usage);
        }
        if let Some(rate) = &self.rate {
            rate.count(usage);
        }
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

    fn usage(&self, answer: &Answer, asked: &str) -> Usage {
        let mut usage = Usage::from(answer.usage.unwrap_or_default());
        let model = answer.model.as_deref().unwrap_or(asked);
        usage.cost_usd = answer.usage.and_then(|_| self.prices.cost(&[model, asked], &usage));
        usage
    }
}

/// Whether another model may do better: the failure is of the model's server, and not of the request or the caller.
fn is_upstreams(error: &Error) -> bool {
    matches!(error.code(), Code::RateLimited | Code::Server | Code::Timeout)
}
