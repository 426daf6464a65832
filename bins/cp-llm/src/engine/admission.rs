//! When a request may go, and what its outcome is to all others: a turn, a slot at the gate, and money are had before it is sent; a
//! refusal makes all wait, and what no request can help is asked no more.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use cp_common::wire::Usage;
use cp_common::{Code, Error, Result};
use serde_json::Value;

use super::gate::Slot;
use super::purse::{self, Amount, Purse, Ticket};
use super::{Engine, Listener, Work, retry};
use crate::backend::Backend;

/// Failures that are not of one request: every other would fail in the same way.
#[derive(Default)]
pub(crate) struct Ends {
    /// The targets that have failed so, and have another after them, by name.
    pub(super) targets: BTreeSet<String>,
    /// The first such failure that left nobody to ask.
    first: Option<Value>,
}

impl Engine {
    /// Lets a request go when its turn has come, nobody has to wait, and there is money for it.
    pub(super) fn admit(
        &self,
        backend: &dyn Backend,
        work: &Work,
        body: &[u8],
        was_refused: bool,
        listener: &mut dyn Listener,
    ) -> Result<(Slot, Option<Ticket>)> {
        let gate = self.gates.of(&work.target().endpoint.name);
        if let Some(purse) = &self.purse {
            if purse.has_limit() && !backend.reports_usage() {
                return Err(purse::no_usage());
            }
            self.check_price(purse, backend, work)?;
            purse.wait_turn()?;
        }
        loop {
            let slot = gate.enter(was_refused, &mut |message| listener.say(message))?;
            if let Some(first) = &self.ends().first {
                return Err(Error::from_value(first).fatal());
            }
            let Some(purse) = &self.purse else { return Ok((slot, None)) };
            let pause = purse.paused()?;
            if pause.is_zero() {
                return Ok((
                    slot,
                    Some(purse.admit(self.estimate(backend, work, body, purse), &mut |message| listener.say(message))?),
                ));
            }
            let why = "another process that shares the budget file was refused";
            if pause > self.retries.max_wait {
                let length = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::new(Code::RateLimited, why).with("retry_after_ms", length));
            }
            gate.hold(pause, why);
        }
    }

    /// Refuses a model without a price where dollars are counted.
    pub(super) fn check_price(&self, purse: &Purse, backend: &dyn Backend, work: &Work) -> Result<()> {
        let target = work.target();
        if self.is_free(backend) || self.price(None, target).is_some() || !purse.counts_dollars() {
            return Ok(());
        }
        Err(Error::config(format!("{} has no price, so a budget in dollars cannot be kept", target.model))
            .hint("add it to config/prices.toml, or use --budget-tokens")
            .fatal())
    }

    /// What a request may use: its bytes as they are read, and what it may write; else what answers used on average.
    fn estimate(&self, backend: &dyn Backend, work: &Work, body: &[u8], purse: &Purse) -> Amount {
        let most = work.request().most_tokens();
        purse.average().filter(|_| most.is_none()).unwrap_or_else(|| {
            let tokens =
                Usage { input_tokens: body.len() as u64 / 4, output_tokens: most.unwrap_or(0), ..Usage::default() };
            Amount::of(&self.counted(&self.usage(tokens, None, work.target()), backend))
        })
    }

    /// Counts what a request has used. Where an answer does not say it, no budget can be kept.
    pub(super) fn settle(&self, ticket: Option<&Ticket>, usage: Option<&Usage>, is_answer: bool) -> Result<()> {
        let (Some(purse), Some(ticket)) = (&self.purse, ticket) else { return Ok(()) };
        let known = usage.filter(|usage| Amount::of(usage).tokens > 0);
        purse.settle(ticket, known)?;
        if is_answer && known.is_none() { purse.silent().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Makes all requests wait, here and in the processes that share the purse. Whether it counts as a try of this one.
    pub(super) fn slow_down(&self, work: &Work, slot: &Slot, error: &Error) -> Result<bool> {
        let (is_cause, was_alone) = slot.refused();
        let gate = self.gates.of(&work.target().endpoint.name);
        // A wait that is too long is not waited for.
        if let Some(length) = self.retries.length(error, gate.refusals(), retry::jitter())
            && is_cause
        {
            gate.hold(length, error.message());
            self.purse.as_ref().map_or(Ok(()), |purse| purse.pause(length.max(Duration::from_millis(1))))?;
        }
        // As long as fewer can go at a time, a refusal is one of their number, and no row uses up its tries.
        Ok(was_alone || self.retries.retries == 0)
    }

    /// Notes a failure that every other request would meet: who comes later asks the next model, or fails with the first such failure.
    pub(super) fn end(&self, error: &Error, work: &Work, shown: bool) {
        let name = work.target().name();
        let mut ends = self.ends();
        if shown || work.targets().last().is_some_and(|last| last.name() == name) {
            ends.first.get_or_insert_with(|| error.to_value());
        } else {
            ends.targets.insert(name);
        }
    }

    pub(super) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether every other request there would fail in the same way: the failure is of the key, the credit, the model or the server's place.
/// A model that the prompt brought is the prompt's own fault.
pub(super) fn is_everyones(error: &Error, work: &Work) -> bool {
    let is_the_upstreams = error.details().get("origin").is_some_and(|origin| origin == "upstream");
    let asked = &work.request().model;
    let is_the_prompts = work.prompt.model.as_ref().is_some_and(|model| {
        model.strip_suffix(asked.as_str()).is_some_and(|endpoint| endpoint.is_empty() || endpoint.ends_with('/'))
    });
    match error.code() {
        Code::Auth => true,
        Code::NotFound => is_the_upstreams && !is_the_prompts,
        _ => is_the_upstreams && error.is_fatal(),
    }
}
