//! From a prompt to a message: the request, its tries, the models to fall back to, and what goes on the ledger.

mod admission;
pub(crate) mod batched;
pub(crate) mod cassette;
pub(crate) mod fetch;
pub(crate) mod gate;
pub(crate) mod journal;
mod message;
pub(crate) mod purse;
mod recorded;
pub(crate) mod retry;
pub(crate) mod schema;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cp_common::output::Severity;
use cp_common::wire::{Message, Turn, Usage};
use cp_common::{Code, Context, Error, Result, signals};
use serde_json::json;

pub(crate) use self::admission::Ends;
use self::admission::is_everyones;
use self::cassette::Cassette;
use self::fetch::Fetch;
use self::gate::Gates;
use self::journal::{Journal, Try};
use self::purse::Purse;
pub(crate) use self::recorded::request_hash;
use self::retry::{RetryPolicy, is_refusal};
use self::schema::AnswerSchema;
pub(crate) use self::work::Work;
use crate::backend::Backend;
use crate::backend::endpoint::Target;
use crate::backend::price::{Price, Prices};
use crate::backend::{Backends, Ready};
use crate::dialect::{Answer, Lowered, Shown};
use crate::pause;

/// Receives what happens while an answer is made.
pub(crate) trait Listener {
    /// New text of the model.
    fn text(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    /// What the model thinks, which is none of its text.
    fn thinking(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
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
    pub backends: Backends,
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
    /// Whether dollars are counted for what costs nothing too, as if it had the price that it is given: they were asked for.
    pub counts_what_is_free: bool,
    /// How attachments are fetched.
    pub fetch: Fetch,
    /// What may be spent, and how fast.
    pub purse: Option<Purse>,
    /// How many requests go at the same time.
    pub gates: Gates,
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
    /// What answers one prompt at a time, with no limit of what is spent.
    pub(crate) fn new(
        context: &Context,
        backends: Backends,
        retries: RetryPolicy,
        fetch: Fetch,
        logs_content: bool,
    ) -> Result<Self> {
        Ok(Self {
            backends,
            retries,
            prices: Prices::load(&context.home.path("config/prices.toml"))?,
            fail_on: Vec::new(),
            schema: None,
            cassette: None,
            counts_what_is_free: false,
            fetch,
            purse: None,
            gates: Gates::new(1),
            ends: Mutex::default(),
            journal: Journal::new(context, logs_content)?,
            lowered: Mutex::default(),
        })
    }

    /// Answers one prompt, in the shape that was asked for.
    pub(crate) fn message(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        self.shaped(work, listener).map_err(|error| work.failure(error))
    }

    fn shaped(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let mut message = self.answered(work, listener)?;
        let Some(schema) = self.schema.as_ref().filter(|_| message.tool_calls.is_empty()) else { return Ok(message) };
        let text = message.content.text();
        let mismatch = match schema.parsed(&text) {
            Ok(parsed) => return Ok(message::with_parsed(message, parsed)),
            Err(mismatch) => mismatch,
        };
        listener.warn(&format!("the answer does not match the schema ({}); asking again", mismatch.reason));
        work.add_turns([Turn::text("assistant", &text), Turn::text("user", &mismatch.correction())]);
        let first = message;
        message = self.answered(work, listener)?;
        message.usage = message::sum(&first.usage, &message.usage);
        self.matched(Message { request_hash: first.request_hash, ..message })
    }

    /// Counts what of the request cannot go as it came.
    pub(crate) fn note_lowered(&self, work: &Work) -> Result<()> {
        let found = self.ready(work)?.backend.lowered(work.request())?;
        let mut lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in found {
            *lowered.entry(kind).or_default() += count;
        }
        Ok(())
    }

    /// Says what could not go as it came.
    pub(crate) fn report_lowered(&self, context: &mut Context) {
        let lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        let counts: Vec<String> = lowered.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !counts.is_empty() {
            let said = "blocks of earlier turns that were left out or sent as plain text";
            let message = format!("{said}: {}", counts.join(", "));
            context.warn(&message);
            context.out.notice("blocks_lowered", Severity::Warning, message);
        }
    }

    /// The body that the next request has, exactly as it is sent.
    pub(crate) fn body(&self, work: &Work) -> Result<Arc<Vec<u8>>> {
        work.encoded(self.ready(work)?.backend.as_ref())
    }

    /// The hash of the request as it stands, as its ledger entries have it.
    pub(crate) fn request_hash(&self, work: &Work) -> Result<String> {
        Ok(request_hash(work, &self.recorded_form(work)?))
    }

    /// What answers the request as it stands.
    pub(crate) fn ready(&self, work: &Work) -> Result<Ready> {
        self.backends.of(&work.target().endpoint)
    }

    /// Asks with the attachments that are named by URL. Recordings and the history have their names.
    fn asked_whole(&self, first: usize, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let filled = self.fetch.fill(&work.request().messages)?;
        if let Some((turns, fetched)) = filled {
            work.fill_turns(turns, fetched);
        }
        let outcome = self.asked(first, work, listener);
        work.empty_turns();
        outcome
    }

    /// Turns to the first target from this one on that can be asked: an endpoint that is not configured is passed over while another is left,
    /// and so is one that no request can help any more.
    fn ready_from(&self, from: usize, work: &mut Work, listener: &mut dyn Listener) -> Result<usize> {
        for at in from.. {
            work.turn_to(at);
            let is_last = at + 1 >= work.targets().len();
            if !is_last && self.ends().targets.contains(&work.target().name()) {
                continue;
            }
            let Err(error) = self.ready(work) else { return Ok(at) };
            let Some(next) = work.targets().get(at + 1).filter(|_| is_configurations(&error)) else {
                return Err(error);
            };
            let (this, next) = (work.target().name(), next.name());
            listener.warn(&format!("{this} cannot be asked ({}); falling back to {next}", error.message()));
        }
        Ok(from)
    }

    /// Asks one model after the other, from this one on.
    fn asked(&self, first: usize, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let mut at = first;
        loop {
            at = self.ready_from(at, work, listener)?;
            self.note_lowered(work)?;
            let Failed { error, shown, .. } = match self.tries(work, listener) {
                Ok(message) => return Ok(message),
                Err(failed) => failed,
            };
            let is_for_all = is_everyones(&error, work);
            at += 1;
            let Some(next) = work.targets().get(at).filter(|_| !shown && (is_upstreams(&error) || is_for_all)) else {
                return Err(if is_for_all { error.fatal() } else { error });
            };
            let (this, next) = (work.target().name(), next.name());
            listener.warn(&format!("{this} gave up ({}); falling back to {next}", error.code()));
        }
    }

    /// Asks one model, again where that may help.
    fn tries(&self, work: &Work, listener: &mut dyn Listener) -> Result<Message, Failed> {
        let Ready { backend, network } = self.ready(work)?;
        let body = self.body(work)?;
        let request_hash = self.request_hash(work)?;
        let (mut attempt, mut failed) = (1, 0);
        let mut was_refused = false;
        loop {
            let this = Try { backend: backend.name(), network, attempt, request_hash: &request_hash, batch: None };
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
        let backend = self.ready(work)?.backend;
        let (slot, ticket) = self.admit(backend.as_ref(), work, body, was_refused, listener)?;
        // What is paid for is recorded.
        let _effect = signals::effect();
        if let Err(error) = self.journal.asked(this, work, body.len() as u64) {
            self.settle(ticket.as_ref(), None, false)?;
            return Err(error.into());
        }
        let start = Instant::now();
        let mut shown = false;
        let mut exchange = backend.exchange(request, body, &mut |kind, text| match kind {
            _ if !request.stream => Ok(()),
            Shown::Thinking => listener.thinking(text),
            Shown::Words => {
                shown = true;
                listener.text(text)
            }
        });
        let (tokens, answered_by) = match &exchange.outcome {
            Ok(answer) => (answer.usage, answer.model.as_deref()),
            Err(_) => (exchange.usage, None),
        };
        let usage = tokens.map(|tokens| self.usage(tokens, answered_by, work.target()));
        let counted = usage.as_ref().map(|usage| self.counted(usage, backend.as_ref()));
        let settled = self.settle(ticket.as_ref(), counted.as_ref(), exchange.outcome.is_ok());
        let slowed = match &exchange.outcome {
            Ok(_) => {
                slot.answered();
                Ok(true)
            }
            Err(error) if is_refusal(error) => self.slow_down(work, &slot, error),
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
        let recorded = self.journal.answered(this, work, &exchange, usage.as_ref(), Some(start.elapsed()));
        let counts = slowed?;
        let failed = |error| Failed { error, shown, counts };
        recorded.map_err(failed)?;
        let answer = exchange.outcome.map_err(failed)?;
        settled.map_err(|error| {
            failed(error.with("partial", answer.content.text()).with("_untrusted", vec!["/partial"]))
        })?;
        Ok(message::of(answer, usage.unwrap_or_default(), work, this))
    }

    /// What costs nothing has no price to count with.
    fn is_free(&self, backend: &dyn Backend) -> bool {
        !backend.is_metered() && !self.counts_what_is_free
    }

    /// A use as a budget counts it.
    fn counted(&self, usage: &Usage, backend: &dyn Backend) -> Usage {
        Usage { cost_usd: usage.cost_usd.filter(|_| !self.is_free(backend)), ..*usage }
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

    /// A use with what it cost.
    fn usage(&self, used: Usage, answered_by: Option<&str>, target: &Target) -> Usage {
        Usage { cost_usd: self.price(answered_by, target).map(|price| price.of(&used)), ..used }
    }

    /// The price of an endpoint, else of the model that answered, else of the one that was asked.
    fn price(&self, answered_by: Option<&str>, Target { endpoint, model }: &Target) -> Option<Price> {
        endpoint.price.or_else(|| self.prices.price(&[answered_by.unwrap_or(model), model]))
    }
}

/// Whether another model may do better: the failure is of the model's server, and not of the request or the caller. Of a connection that
/// broke it is not known whether the answer is paid for; one that could not be made has cost nothing.
fn is_upstreams(error: &Error) -> bool {
    matches!(error.code(), Code::RateLimited | Code::Server | Code::Timeout)
        || error.code() == Code::Network && error.details().get("phase").is_some_and(|phase| phase == "connect")
}

/// Whether another endpoint may do better: this one lacks its key, or what was configured for it is not there.
fn is_configurations(error: &Error) -> bool {
    matches!(error.code(), Code::Auth | Code::Config | Code::NotFound)
}
