//! Requests that go to their provider together, in a job, and the messages in what it brings.

use cp_common::wire::{Message, Usage, estimated_tokens};
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::json;

use super::journal::Try;
use super::purse::Amount;
use super::{Engine, message};
use crate::backend::Exchange;
use crate::backend::Ready;
use crate::engine::Work;

impl Engine {
    /// Counts what a request may cost, and fails once the requests so far may cost more than there is.
    pub(crate) fn afford(&self, work: &Work, bytes: usize) -> Result<()> {
        let Some(purse) = self.purse.as_ref().filter(|purse| purse.has_limit()) else { return Ok(()) };
        let backend = self.ready(work)?.backend;
        self.check_price(purse, backend.as_ref(), work)?;
        let request = work.request();
        let most = request.most_tokens().ok_or_else(|| {
            Error::usage("a budget needs --max-tokens: a batch cannot be stopped once it is submitted").fatal()
        })?;
        let mut usage = Usage { input_tokens: estimated_tokens(bytes) as u64, output_tokens: most, ..Usage::default() };
        usage.cost_usd = self.price(None, work.target()).map(|price| price.of_batch(&usage));
        let counted = self.counted(&usage, backend.as_ref());
        // What may be used counts as used, and then there must be something left.
        let counts = [Some(&counted), None].into_iter().try_for_each(|usage| {
            let ticket = purse.admit(Amount::default(), &mut |_| ())?;
            purse.settle(&ticket, usage)
        });
        counts.map_err(|error| match error.code() {
            Code::BudgetExhausted => error.with("reason", "estimate").hint(
                "nothing was submitted: raise --budget-usd or --budget-tokens, lower --max-tokens, or submit fewer rows",
            ),
            _ => error,
        })
    }

    /// Records a request that is about to be submitted.
    pub(crate) fn enqueued(&self, work: &Work, row: &str, request_hash: &str, bytes: u64) -> Result<()> {
        let ready = self.ready(work)?;
        self.journal.asked(&of_row(&ready, row, request_hash), work, bytes)
    }

    /// Records that rows have become a provider's job, or why they have not.
    pub(crate) fn submitted(&self, facts: &impl Serialize, failure: Option<&Error>) -> Result<()> {
        self.journal.submitted(facts, failure, self.backends.is_metered())
    }

    /// The message in what came of a request, at the price of a batch. Fails where that cannot be recorded.
    pub(crate) fn delivered(
        &self,
        work: &Work,
        row: &str,
        request_hash: &str,
        mut exchange: Exchange,
    ) -> Result<Result<Message>> {
        let ready = self.ready(work)?;
        let this = of_row(&ready, row, request_hash);
        exchange.outcome = exchange.outcome.and_then(|answer| self.accepted(answer));
        let usage = exchange.outcome.as_ref().ok().map(|answer| {
            let price = answer.usage.and_then(|_| self.price(answer.model.as_deref(), work.target()));
            let usage = answer.usage.unwrap_or_default();
            Usage { cost_usd: price.map(|price| price.of_batch(&usage)), ..usage }
        });
        self.journal.answered(&this, work, &exchange, usage.as_ref(), None)?;
        let message = |answer| self.matched(message::of(answer, usage.unwrap_or_default(), work, &this));
        Ok(exchange.outcome.and_then(message).map_err(|error| work.failure(error)))
    }

    /// The message with its words as JSON, where they must match a schema.
    pub(super) fn matched(&self, message: Message) -> Result<Message> {
        let Some(schema) = self.schema.as_ref().filter(|_| message.tool_calls.is_empty()) else { return Ok(message) };
        let text = message.content.text();
        match schema.parsed(&text) {
            Ok(parsed) => Ok(message::with_parsed(message, parsed)),
            Err(mismatch) => Err(mismatch.failure(text).with("usage", json!(message.usage))),
        }
    }
}

/// The one try of a row, as the ledger names it.
fn of_row<'a>(ready: &'a Ready, row: &'a str, request_hash: &'a str) -> Try<'a> {
    Try { backend: ready.backend.name(), network: ready.network, attempt: 1, request_hash, batch: Some(row) }
}
