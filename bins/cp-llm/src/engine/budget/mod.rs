//! Budgets: limits of spending, for one process or for all that share a file.
//! A request reserves its estimated cost before it is sent, and the actual cost is counted after its answer. A budget
//! is exceeded by at most the requests in flight.

mod file;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cp_common::wire::Usage;
use cp_common::{Code, Error, Result, signals};

pub(crate) use self::file::Limit;
pub(super) use self::file::{Amount, Reservation};
use self::file::{BudgetFile, Owner};

/// The interval for checking whether other processes released their reservations.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A budget.
pub(crate) struct Budget {
    pub(super) limit: Limit,
    /// The content, unless processes share it: then it is in a file.
    content: Mutex<BudgetFile>,
    file: Option<PathBuf>,
    owner: Owner,
    state: Mutex<State>,
    settled: Condvar,
}

/// The state of this process.
#[derive(Default)]
struct State {
    /// The number of requests so far, and of those in flight.
    requests: u64,
    in_flight: u64,
    /// The number of answers so far, and their usage.
    answers: u32,
    answered: Amount,
    /// True if an answer had no usage, so that no budget can be kept.
    lacks_usage: bool,
}

impl Budget {
    /// The budget of a command line; `None` if nothing is limited. `policy_usd` is the limit that policy sets.
    pub(crate) fn open(given: Limit, file: Option<&Path>, policy_usd: Option<f64>) -> Result<Option<Self>> {
        if given.usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return Err(Error::usage("--budget-usd must be a number of dollars"));
        }
        if file.is_none() && given.is_none() && policy_usd.is_none() {
            return Ok(None);
        }
        let mut budget = Self {
            limit: given,
            content: Mutex::default(),
            file: file.map(file::create).transpose()?,
            owner: Owner::this(),
            state: Mutex::default(),
            settled: Condvar::new(),
        };
        // Limits of the command line are stored in the file; the file has the others.
        budget.limit = budget.change(|content| {
            content.count_as_spent(|owner| !owner.is_alive());
            content.limit =
                Limit { usd: given.usd.or(content.limit.usd), tokens: given.tokens.or(content.limit.tokens) };
            content.limit
        })?;
        budget.limit.usd = [budget.limit.usd, policy_usd].into_iter().flatten().reduce(f64::min);
        if budget.limit.is_none() {
            let error = Error::usage("--budget-file needs a limit, because the file has none");
            return Err(error.hint("give --budget-usd or --budget-tokens"));
        }
        Ok(Some(budget))
    }

    /// The average cost of an answer so far.
    pub(super) fn average(&self) -> Option<Amount> {
        let state = self.lock();
        let Amount { usd, tokens } = state.answered;
        Some(Amount { usd: usd / f64::from(state.answers), tokens: tokens.checked_div(state.answers.into())? })
    }

    /// Reserves the estimated cost of a request. Waits while others have reserved the rest, and reports that if they
    /// are other processes. Fails if the budget is used up.
    pub(super) fn admit(&self, estimate: Amount, say: &mut dyn FnMut(&str)) -> Result<Reservation> {
        let mut state = self.lock();
        state.requests += 1;
        let wanted = Reservation { owner: self.owner, request: state.requests, amount: estimate };
        let mut is_said = false;
        loop {
            if state.lacks_usage {
                return Err(missing_usage_error());
            }
            let Some(spent) = self.reserve(&wanted)? else {
                state.in_flight += 1;
                return Ok(wanted);
            };
            if self.limit.is_reached(spent) {
                return Err(self.exhausted(spent));
            }
            signals::check()?;
            if state.in_flight == 0 && !std::mem::replace(&mut is_said, true) {
                say("other processes have reserved the rest of the budget; waiting for them");
            }
            state = self.settled.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reserves the estimated cost of a request. If the budget has no rest, returns the amount that is spent.
    fn reserve(&self, wanted: &Reservation) -> Result<Option<Amount>> {
        self.change(|content| {
            if self.limit.is_reached(content.taken()) {
                content.count_as_spent(|owner| !owner.is_alive());
                return Some(content.spent);
            }
            content.reserved.push(wanted.clone());
            None
        })
    }

    /// Counts the most that a request of a batch may cost. Fails if the requests so far may exceed the budget.
    pub(super) fn count(&self, most: Amount) -> Result<()> {
        let spent = self.change(|content| {
            content.spent = content.spent.plus(most);
            content.spent
        })?;
        if !self.limit.is_reached(spent) {
            return Ok(());
        }
        Err(self.exhausted(spent).with("reason", "estimate").hint(
            "nothing was submitted: raise --budget-usd or --budget-tokens, lower --max-tokens, or submit fewer rows",
        ))
    }

    /// Replaces the reservation of a request by its usage, if that is known.
    pub(super) fn settle(&self, reserved: &Reservation, usage: Option<&Usage>) -> Result<()> {
        let mut state = self.lock();
        state.in_flight -= 1;
        let used = usage.map(Amount::of).unwrap_or_default();
        if usage.is_some() {
            state.answers = state.answers.saturating_add(1);
            state.answered = state.answered.plus(used);
        }
        let settled = self.change(|content| content.settle(reserved, used));
        self.settled.notify_all();
        settled
    }

    /// Notes an answer without usage. Returns the error that ends the stream the first time.
    pub(super) fn report_missing_usage(&self) -> Option<Error> {
        let mut state = self.lock();
        (!std::mem::replace(&mut state.lacks_usage, true)).then(missing_usage_error)
    }

    fn change<T>(&self, change: impl FnOnce(&mut BudgetFile) -> T) -> Result<T> {
        match &self.file {
            None => Ok(change(&mut self.content.lock().unwrap_or_else(PoisonError::into_inner))),
            Some(path) => file::change(path, change),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exhausted(&self, spent: Amount) -> Error {
        let mut error = Error::new(Code::BudgetExhausted, "the budget is used up")
            .with("action", "raise_budget")
            .with("spent_tokens", spent.tokens)
            .hint("raise --budget-usd or --budget-tokens; --skip-done OUT skips finished prompts")
            .fatal();
        if let Some(limit) = self.limit.usd {
            error = error.with("spent_usd", spent.usd).with("budget_usd", limit);
        }
        if let Some(limit) = self.limit.tokens {
            error = error.with("budget_tokens", limit);
        }
        error
    }
}

/// The error for a backend whose answers have no usage.
fn missing_usage_error() -> Error {
    Error::config("the backend does not report usage, so a budget cannot be enforced")
        .hint("remove --budget-usd and --budget-tokens (and budget_usd from the policy), or use a backend that reports usage")
        .fatal()
}
