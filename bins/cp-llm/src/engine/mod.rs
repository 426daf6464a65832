//! The engine: it answers prompts with messages. [`attempts`] has the steps from a prompt to its message.

pub(crate) mod attempts;
pub(crate) mod budget;
pub(crate) mod gate;
pub(crate) mod journal;
pub(crate) mod recordings;
pub(crate) mod retry;
pub(crate) mod schema;
mod work;

use std::sync::{Arc, Mutex, PoisonError};

use cp_common::output::Severity;
use cp_common::wire::{Message, Usage, estimated_tokens};
use cp_common::{Context, Error, Result};
use cp_schema::Fault;
use serde_json::{Value, json};

use self::budget::{Amount, Budget};
use self::gate::Gate;
use self::journal::Journal;
use self::recordings::Recordings;
use self::retry::RetryPolicy;
use self::schema::{AnswerSchema, mismatch};
pub(crate) use self::work::Work;
use crate::backend::Exchange;
use crate::backend::endpoint::Target;
use crate::backend::price::{Price, Prices};
use crate::wire_api::Lowered;

/// Receives the progress of an answer.
pub(crate) trait Listener {
    /// New text of the answer.
    fn text(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    /// New text of the model's reasoning, which is not part of the answer.
    fn thinking(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
    /// A warning about this prompt.
    fn warn(&mut self, message: &str);
    /// A warning that is shown at once, because it is about all prompts.
    fn warn_now(&mut self, message: &str) {
        self.warn(message);
    }
}

/// Answers prompts. All threads share it.
pub(crate) struct Engine {
    pub retries: RetryPolicy,
    pub prices: Prices,
    /// Stop reasons that are failures.
    pub fail_on: Vec<String>,
    /// The schema that answers must match.
    pub schema: Option<AnswerSchema>,
    /// The recordings that answers are taken from or added to.
    pub recordings: Option<Recordings>,
    pub budget: Option<Budget>,
    /// Limits the number of concurrent requests.
    pub gate: Arc<Gate>,
    /// The first failure that every other request would meet too.
    pub shared_failure: Mutex<Option<Value>>,
    pub journal: Journal,
    /// The number of blocks that could not be sent as they came, by type.
    pub lowered: Mutex<Lowered>,
}

impl Engine {
    /// An engine that sends one request at a time, without retries and budget.
    pub(crate) fn new(context: &Context, logs_content: bool) -> Result<Self> {
        Ok(Self {
            retries: RetryPolicy::default(),
            prices: Prices::load(&context.home.path("config/prices.toml"))?,
            fail_on: Vec::new(),
            schema: None,
            recordings: None,
            budget: None,
            gate: Gate::new(1),
            shared_failure: Mutex::default(),
            journal: Journal::new(context, logs_content)?,
            lowered: Mutex::default(),
        })
    }

    /// Counts the blocks of a request that cannot be sent as they came.
    pub(crate) fn note_lowered(&self, work: &Work) -> Result<()> {
        let found = work.ready.backend.server().map(|server| server.lowered(&work.request)).transpose()?;
        let mut lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in found.into_iter().flatten() {
            *lowered.entry(kind).or_default() += count;
        }
        Ok(())
    }

    /// Reports the blocks that could not be sent as they came.
    pub(crate) fn report_lowered(&self, context: &mut Context) {
        let lowered = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        let counts: Vec<String> = lowered.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !counts.is_empty() {
            let what = "blocks of earlier turns that were left out or sent as plain text";
            let message = format!("{what}: {}", counts.join(", "));
            context.warn(&message);
            context.out.notice("blocks_lowered", Severity::Warning, message);
        }
    }

    /// Parses the text of a message as JSON that matches the schema. A message that calls tools which were offered has
    /// no answer yet.
    fn parse_answer(&self, work: &Work, message: &mut Message) -> Result<(), Fault> {
        let calls = !message.tool_calls.is_empty();
        let Some(schema) = self.schema.as_ref().filter(|_| !calls || !work.offers_tools()) else { return Ok(()) };
        let not_offered = |fault| Fault { message: "it calls a tool, and none was offered".to_owned(), ..fault };
        let parsed = schema.parsed(&message.content.text());
        message.parsed = Some(parsed.map_err(|fault| if calls { not_offered(fault) } else { fault })?);
        message.mark();
        Ok(())
    }

    /// The message with its parsed answer. Fails if the answer does not match the schema.
    fn parsed(&self, work: &Work, mut message: Message) -> Result<Message> {
        self.parse_answer(work, &mut message).map_err(|fault| mismatch(&fault, &message))?;
        Ok(message)
    }

    /// The usage of a request with its cost, if the backend reports it.
    fn usage(&self, exchange: &Exchange, target: &Target, cost: fn(&Price, &Usage) -> f64) -> Option<Usage> {
        let (used, answered_by) = match &exchange.outcome {
            Ok(answer) => (answer.usage?, answer.model.as_deref()),
            Err(_) => (exchange.usage?, None),
        };
        // A program may report the cost of its answer itself.
        let cost = self.price(answered_by, target).map(|price| cost(&price, &used)).or(used.cost_usd);
        Some(Usage { cost_usd: cost, ..used })
    }

    /// Makes the message of an exchange, and records the outcome. The outer error means that it could not be recorded.
    fn concluded(&self, work: &mut Work, mut exchange: Exchange) -> Result<Result<Message>> {
        let whole = exchange.outcome.and_then(|answer| answer.whole(&work.request, &self.fail_on));
        exchange.outcome =
            whole.map_err(|error| exchange.usage.iter().fold(error, |error, usage| error.with("usage", json!(usage))));
        self.journal.record_response(work, &exchange)?;
        Ok(exchange.outcome.map(|answer| work.message(answer, exchange.usage.unwrap_or_default())))
    }

    /// The price of the endpoint, of the model that answered, or of the requested model: the first that is known.
    fn price(&self, answered_by: Option<&str>, Target { endpoint, model }: &Target) -> Option<Price> {
        endpoint.table.price.or_else(|| self.prices.price(&[answered_by.unwrap_or(model), model]))
    }

    /// Refuses a model without a price if the budget is in dollars and the backend costs money.
    fn check_price(&self, budget: &Budget, work: &Work) -> Result<()> {
        let (target, backend) = (&work.target, &work.ready.backend);
        let needs_price = backend.is_metered() && !backend.reports_cost() && budget.limit.usd.is_some();
        if !needs_price || self.price(None, target).is_some() {
            return Ok(());
        }
        Err(Error::config(format!("{} has no price, so a budget in dollars cannot be enforced", target.model))
            .hint("add it to config/prices.toml, or use --budget-tokens")
            .fatal())
    }

    /// Estimates the most that a request may use, as far as it is known: a token for four bytes, and the tokens that it
    /// may write.
    fn estimate(&self, work: &Work, bytes: usize, cost: fn(&Price, &Usage) -> f64) -> Amount {
        let usage = Usage {
            input_tokens: estimated_tokens(bytes) as u64,
            output_tokens: work.request.most_tokens().unwrap_or(0),
            ..Usage::default()
        };
        let price = self.price(None, &work.target);
        Amount::of(&Usage { cost_usd: price.map(|price| cost(&price, &usage)), ..usage })
    }
}

/// The message of a row of a batch, or the members of its error.
pub(crate) type Outcome = Box<Result<Message, Value>>;

/// Requests that a provider answers later, in a batch.
impl Engine {
    /// Adds the most that a request of a batch may cost to the budget. Fails if the requests so far may exceed it.
    pub(crate) fn check_batch_budget(&self, work: &Work, bytes: usize) -> Result<()> {
        let Some(budget) = &self.budget else { return Ok(()) };
        self.check_price(budget, work)?;
        if work.request.most_tokens().is_none() {
            let message = "a budget needs --max-tokens: a batch cannot be stopped once it is submitted";
            return Err(Error::usage(message).fatal());
        }
        budget.count(self.estimate(work, bytes, Price::of_batch))
    }

    /// Makes the outcome of a row of a batch, at the price of a batch, and records it. An error means that it could not
    /// be recorded.
    pub(crate) fn outcome_of_row(&self, work: &mut Work, mut exchange: Exchange) -> Result<Outcome> {
        exchange.usage = self.usage(&exchange, &work.target, Price::of_batch);
        let message = self.concluded(work, exchange)?.and_then(|message| self.parsed(work, message));
        Ok(Box::new(message.map_err(|error| work.failure(error).to_value())))
    }
}
