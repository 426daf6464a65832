//! Budgets: limits of spending and of the rate of requests, for one process or for all that share a file. A request reserves its estimated cost
//! before it is sent, and the actual cost is counted after its answer. A budget is exceeded by at most the requests in flight.

mod file;
mod shared;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cp_common::wire::Usage;
use cp_common::{Code, Error, Result, clock, signals};

pub(super) use self::file::Amount;
use self::file::{BudgetFile, Limit, Pace, Rate, Reservation, Timestamp};
use self::shared::{Owner, SharedFile};
use crate::command_line::command_with_limits;
use crate::pause;

/// The interval for checking whether other processes released their reservations.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest wait for a turn.
const LONGEST: Duration = Duration::from_hours(24);
/// The time that an idle process keeps its reservation for the next request.
const IDLE_LIMIT: Duration = Duration::from_millis(20);

/// The options of a budget.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct BudgetOptions {
    /// The most dollars to spend
    #[arg(long = "budget-usd", value_name = "X")]
    pub usd: Option<f64>,
    /// The most tokens to spend
    #[arg(long = "budget-tokens", value_name = "N", hide_short_help = true)]
    pub tokens: Option<u64>,
    /// File of a budget shared between processes
    #[arg(long = "budget-file", value_name = "FILE", hide_short_help = true)]
    pub file: Option<PathBuf>,
}

/// The most requests and tokens in a minute.
pub(crate) type PerMinute = (Option<u32>, Option<u32>);

/// A budget and a rate limit.
pub(crate) struct Budget {
    limit: Limit,
    pace: Pace,
    storage: Storage,
    state: Mutex<State>,
    settled: Condvar,
}

/// The storage of a budget.
enum Storage {
    Memory(Mutex<BudgetFile>),
    Shared(SharedFile),
}

/// The state of this process.
#[derive(Default)]
struct State {
    counts: Counts,
    /// Shows other processes that this one is alive, while it has a reservation.
    owner: Option<Owner>,
    since: Timestamp,
    /// The time of the last change of the file.
    reserved_at: Option<Instant>,
    /// The end of the pause in the file, and the time when it was read.
    pause_until: Option<Timestamp>,
    looked: Option<Instant>,
    /// The number of answers so far, and their usage.
    answers: u32,
    answered: Amount,
    /// True if an answer had no usage, so that no budget can be kept.
    lacks_usage: bool,
    /// True after `close`.
    is_closed: bool,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    /// The estimated cost of requests in flight.
    under_way: Amount,
    /// Usage that is not yet added to the budget.
    used: Amount,
    /// The tokens of it that count for the rate.
    paced: u64,
    /// The reservation of this process in the file, and the sum of everything else there.
    held: Amount,
    others: Amount,
}

/// The amount that one request has reserved.
pub(super) struct Ticket(Amount);

/// The decision about a request.
enum Admission {
    Admitted,
    /// The rest is reserved by others.
    MustWait,
    Exhausted(Amount),
}

impl Budget {
    /// The budget of a command line; `None` if nothing is limited. `policy_usd` is the limit that policy sets.
    pub(crate) fn open(
        options: &BudgetOptions,
        policy_usd: Option<f64>,
        per_minute: PerMinute,
    ) -> Result<Option<Self>> {
        if options.usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return Err(Error::usage("--budget-usd must be a number of dollars"));
        }
        let is_paced = per_minute.0.or(per_minute.1).is_some();
        let given = Limit { usd: options.usd, tokens: options.tokens };
        let storage = match &options.file {
            None if given.is_none() && policy_usd.is_none() && !is_paced => return Ok(None),
            None => Storage::Memory(Mutex::default()),
            Some(file) => Storage::Shared(SharedFile::at(file)?),
        };
        let mut budget = Self {
            limit: given,
            pace: Pace::new(per_minute.0, per_minute.1),
            storage,
            state: Mutex::default(),
            settled: Condvar::new(),
        };
        // Limits of the command line are stored in the file; the file has the others.
        budget.limit = budget.change(|content| {
            content.limit =
                Limit { usd: given.usd.or(content.limit.usd), tokens: given.tokens.or(content.limit.tokens) };
            content.limit
        })?;
        budget.limit.usd = [budget.limit.usd, policy_usd].into_iter().flatten().reduce(f64::min);
        if budget.limit.is_none() && !is_paced {
            let error = Error::usage("--budget-file needs a limit, because the file has none");
            return Err(error.hint("give --budget-usd, --budget-tokens, --rpm or --tpm"));
        }
        Ok(Some(budget))
    }

    /// True if dollars are limited, so that every model needs a price.
    pub(super) fn limits_dollars(&self) -> bool {
        self.limit.usd.is_some()
    }

    /// True if dollars or tokens are limited, so that every answer needs a usage.
    pub(crate) fn has_limit(&self) -> bool {
        !self.limit.is_none()
    }

    /// The average cost of an answer so far.
    pub(super) fn average(&self) -> Option<Amount> {
        let state = self.lock();
        (state.answers > 0).then(|| state.answered.scaled(1.0 / f64::from(state.answers)))
    }

    /// Waits for the next turn of the rate limit.
    pub(super) fn wait_turn(&self) -> Result<()> {
        let pace = self.pace;
        if pace.request.is_zero() && pace.token.is_zero() {
            return Ok(());
        }
        let now = now();
        let turn = self.change(|content| Rate::turn(&mut content.rate, pace, now))?;
        let wait = turn.since(now).min(LONGEST);
        if wait > IDLE_LIMIT {
            self.release_idle()?;
        }
        pause(wait)
    }

    /// The rest of the pause of all processes that share the file.
    pub(super) fn remaining_pause(&self) -> Result<Duration> {
        let Storage::Shared(file) = &self.storage else { return Ok(Duration::ZERO) };
        let mut state = self.lock();
        // Requests in quick succession read the file once.
        if state.looked.is_none_or(|looked| looked.elapsed() >= IDLE_LIMIT / 2) {
            state.pause_until = file.read()?.pause_until;
            state.looked = Some(Instant::now());
        }
        Ok(state.pause_until.map_or(Duration::ZERO, |until| until.since(now())))
    }

    /// Pauses all processes that share the file.
    pub(super) fn pause(&self, length: Duration) -> Result<()> {
        if let Storage::Shared(file) = &self.storage {
            let until = now().after(length);
            file.change(|content| content.pause_until = content.pause_until.max(Some(until)))?;
        }
        self.release_idle()
    }

    /// Reserves the estimated cost of a request. Waits while others have reserved the rest, and reports that if they
    /// are other processes. Fails if the budget is used up.
    pub(super) fn admit(&self, estimate: Amount, say: &mut dyn FnMut(&str)) -> Result<Ticket> {
        let mut state = self.lock();
        let mut is_said = false;
        loop {
            if state.lacks_usage {
                return Err(missing_usage_error());
            }
            let admission = if self.is_covered(&state.counts, estimate) {
                state.counts.requests += 1;
                state.counts.under_way = state.counts.under_way.plus(estimate);
                state.record_pending();
                Admission::Admitted
            } else {
                self.reserve(&mut state, Some(estimate))?
            };
            match admission {
                Admission::Admitted => break,
                Admission::Exhausted(spent) => return Err(self.exhausted(spent)),
                Admission::MustWait => {
                    signals::check()?;
                    if state.counts.requests == 0 && !std::mem::replace(&mut is_said, true) {
                        say("other processes have reserved the rest of the budget; waiting for them");
                    }
                    state = self.settled.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        Ok(Ticket(estimate))
    }

    /// Replaces the reservation of a request by its usage, if that is known.
    pub(super) fn settle(&self, ticket: &Ticket, usage: Option<&Usage>) -> Result<()> {
        let mut state = self.lock();
        if state.is_closed {
            return Ok(());
        }
        let state = &mut *state;
        let counts = &mut state.counts;
        counts.requests = counts.requests.saturating_sub(1);
        counts.under_way = counts.under_way.minus(ticket.0);
        if let Some(usage) = usage {
            let used = Amount::of(usage);
            counts.used = counts.used.plus(used);
            counts.paced = counts.paced.saturating_add(usage.input_tokens.saturating_add(usage.output_tokens));
            state.answers = state.answers.saturating_add(1);
            state.answered = state.answered.plus(used);
        }
        let counts = &state.counts;
        let is_idle = counts.requests == 0 && state.reserved_at.is_none_or(|at| at.elapsed() >= IDLE_LIMIT);
        let is_due = is_idle || !self.is_covered(counts, Amount::default()) || !self.pace.token.is_zero();
        let reserved = if is_due {
            self.reserve(state, None).map(drop)
        } else {
            state.record_pending();
            Ok(())
        };
        self.settled.notify_all();
        reserved
    }

    /// Notes an answer without usage. Returns the error that ends the stream the first time.
    pub(super) fn report_missing_usage(&self) -> Option<Error> {
        let mut state = self.lock();
        (self.has_limit() && !std::mem::replace(&mut state.lacks_usage, true)).then(missing_usage_error)
    }

    /// Releases the reservation if no request is in flight, because the next one may not follow soon.
    pub(crate) fn release_idle(&self) -> Result<()> {
        let mut state = self.lock();
        if state.counts.requests > 0 || state.owner.is_none() {
            Ok(())
        } else {
            self.reserve(&mut state, None).map(drop)
        }
    }

    /// Releases the reservation. Requests that are still in flight count as spent.
    pub(crate) fn close(&self) -> Result<()> {
        let _effect = signals::effect();
        let mut state = self.lock();
        state.is_closed = true;
        let counts = &mut state.counts;
        if counts.requests == 0 && counts.used == Amount::default() && counts.held == Amount::default() {
            return Ok(());
        }
        *counts = Counts { used: counts.used.plus(counts.under_way), paced: counts.paced, ..Counts::default() };
        self.reserve(&mut state, None).map(drop)
    }

    /// True if the reservation in the file covers one more request of this cost.
    fn is_covered(&self, counts: &Counts, more: Amount) -> bool {
        let taken = counts.used.plus(counts.under_way);
        matches!(self.storage, Storage::Shared(_))
            && counts.held != Amount::default()
            && self.limit.holds(taken.plus(more), counts.held)
            // Near the limit, unused parts of a reservation are not spent on other requests.
            && !self.limit.is_reached(counts.others.plus(taken))
    }

    /// Adds usage to the file and renews the reservation: for the requests in flight, for one more request if asked for and if budget is left,
    /// and in advance for a few more.
    fn reserve(&self, state: &mut State, asked: Option<Amount>) -> Result<Admission> {
        if let (Storage::Shared(file), true, None) = (&self.storage, asked.is_some(), &state.owner) {
            state.owner = Some(file.owner()?);
            state.since = now();
        }
        let (mut counts, limit) = (state.counts, self.limit);
        let owner = state.owner.as_ref().map(|owner| owner.id.as_str());
        let since = state.since;
        let admission = self.change(|content| {
            content.spent = content.spent.plus(counts.used);
            if let Some(rate) = &mut content.rate {
                rate.tokens = rate.tokens.saturating_add(counts.paced);
            }
            content.reserved.retain(|reserved| Some(reserved.id.as_str()) != owner);
            let others = content.spent.plus(content.reserved());
            let admission = match asked {
                Some(_) if limit.is_reached(content.spent) => Admission::Exhausted(content.spent),
                Some(_) if limit.is_reached(others.plus(counts.under_way)) => Admission::MustWait,
                Some(estimate) => {
                    counts.requests += 1;
                    counts.under_way = counts.under_way.plus(estimate);
                    Admission::Admitted
                }
                None => Admission::Admitted,
            };
            let reserve_ahead = limit.reserve_ahead(others.plus(counts.under_way));
            counts = Counts {
                used: Amount::default(),
                paced: 0,
                held: counts.under_way.plus(reserve_ahead),
                others,
                ..counts
            };
            match owner.filter(|_| counts.requests > 0) {
                Some(id) => content.reserved.push(Reservation {
                    id: id.to_owned(),
                    owner: format!("cp-llm {}", std::process::id()),
                    since,
                    tokens: counts.held.tokens,
                    usd: counts.held.usd,
                }),
                None => counts.held = Amount::default(),
            }
            admission
        })?;
        state.counts = counts;
        state.reserved_at = Some(Instant::now());
        state.record_pending();
        if counts.requests == 0 {
            state.owner = None;
        }
        Ok(admission)
    }

    fn change<T>(&self, change: impl FnOnce(&mut BudgetFile) -> T) -> Result<T> {
        match &self.storage {
            Storage::Memory(content) => Ok(change(&mut content.lock().unwrap_or_else(PoisonError::into_inner))),
            Storage::Shared(file) => file.change(change),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exhausted(&self, spent: Amount) -> Error {
        // The amount spent can be more than twice the limit, because of other processes or one large answer.
        let usd = self.limit.usd.map(|limit| limit.max(spent.usd) * 2.0);
        let tokens = self.limit.tokens.map(|limit| limit.max(spent.tokens).saturating_mul(2));
        let mut error = Error::new(Code::BudgetExhausted, "the budget is used up")
            .with("action", "raise_budget")
            .with("resume", command_with_limits(usd, tokens))
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

impl State {
    /// Writes the amount that others must count if this process is killed.
    fn record_pending(&self) {
        if let Some(owner) = &self.owner {
            owner.record_pending(self.counts.used.plus(self.counts.under_way));
        }
    }
}

/// The error for a backend whose answers have no usage.
pub(crate) fn missing_usage_error() -> Error {
    Error::config("the backend does not report usage, so a budget cannot be enforced")
        .hint("remove --budget-usd and --budget-tokens (and budget_usd from the policy), or use a backend that reports usage")
        .fatal()
}

fn now() -> Timestamp {
    Timestamp(clock::unix_milliseconds())
}
