//! The limits of a run against what it has used.

use std::time::{Duration, Instant};

use cp_common::{Code, Context, Error, Result};
use cp_policy::Llm;

use crate::state::run::Run;

impl Run {
    /// Fails when a limit is reached, with the command that goes on with a higher one.
    pub(crate) fn check_limits(&self) -> Result<()> {
        let (tally, limits) = (&self.conversation.tally, &self.conversation.limits);
        let (turns, tokens) = (tally.all_iterations(), tally.tokens());
        if turns >= limits.max_iterations {
            let times = if turns == 1 { "once".to_owned() } else { format!("{turns} times") };
            let next = format!(" --max-iterations {}", limits.max_iterations.saturating_mul(2));
            return Err(self.exhausted("iterations", format!("the model was asked {times} and is not done"), &next));
        }
        if let Some(limit) = limits.tokens.filter(|limit| tokens >= *limit) {
            let next = format!(" --budget-tokens {}", limit.max(tokens).saturating_mul(2));
            return Err(self.exhausted("tokens", format!("{tokens} tokens were used, of {limit}"), &next));
        }
        if let (Some(limit), true) = (limits.usd, tally.iterations > 0) {
            let Some(spent) = tally.usage.cost_usd else {
                return Err(Error::config("the price of an answer is not known, so --budget-usd cannot be enforced")
                    .hint("add the model to config/prices.toml, or use --budget-tokens"));
            };
            if spent >= limit {
                let next = format!(" --budget-usd {:.4}", limit.max(spent) * 2.0);
                return Err(self.exhausted("usd", format!("{spent:.4} dollars were spent, of {limit:.4}"), &next));
            }
        }
        if let Some((limit, spent)) = self.policy_usd.zip(tally.usage.cost_usd).filter(|(limit, spent)| spent >= limit)
        {
            let message = format!("{spent:.4} dollars were spent, and policy allows a run {limit:.4}");
            return Err(self
                .exhausted("usd", message, "")
                .hint("raise budget_usd in [llm] of the policy, then resume"));
        }
        self.time_left().map(|_| ())
    }

    /// Reads what policy lets a run spend.
    pub(crate) fn keep_policy(&mut self, context: &Context) -> Result<()> {
        self.policy_usd = Llm::load(&context.home)?.budget_usd;
        Ok(())
    }

    /// The most dollars of this run. What has no price is not held to what policy says: it costs nothing, or cp-llm refuses it.
    pub(crate) fn usd_limit(&self) -> Option<f64> {
        let known = self.conversation.tally.usage.cost_usd;
        [self.conversation.limits.usd, self.policy_usd.filter(|_| known.is_some())]
            .into_iter()
            .flatten()
            .reduce(f64::min)
    }

    /// How long the run may still take; `None`: as long as it likes.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(self.out_of_time()),
        }
    }

    /// The error of a run whose deadline has passed.
    pub(crate) fn out_of_time(&self) -> Error {
        let seconds = self.conversation.limits.deadline.unwrap_or_default();
        let next = format!(" --deadline {}", seconds * 2.0);
        self.exhausted("time", format!("the deadline of {seconds} seconds has passed"), &next)
    }

    /// The error of a run that has used up one of its limits.
    pub(crate) fn exhausted(&self, budget: &str, message: String, next: &str) -> Error {
        Error::new(Code::BudgetExhausted, message)
            .with("budget", budget)
            .with("action", "raise_budget")
            .with("resume", self.resume_line(next))
            .hint("details.resume goes on from here with a higher limit")
    }
}
