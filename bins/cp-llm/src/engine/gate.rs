//! Concurrency limits. A rate limit halves the number of concurrent requests and pauses all of them; after that the
//! number grows by one in each round of answers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cp_common::{Result, signals};

/// The interval for checking signals during a wait.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Limits the concurrent requests, and holds them during a pause.
pub(crate) struct Gate {
    limit: usize,
    state: Mutex<State>,
    waiting: Condvar,
}

struct State {
    /// The present limit.
    allowed: usize,
    /// Answers since the limit grew.
    answers: usize,
    under_way: usize,
    pause: Option<Pause>,
    /// Rate limits so far, and since the last answer.
    pauses: u64,
    consecutive: u32,
}

struct Pause {
    until: Instant,
    why: String,
    is_reported: bool,
}

/// The slot of a request in flight.
pub(super) struct Slot {
    gate: Arc<Gate>,
    /// The number of rate limits when it began.
    pauses: u64,
}

impl Gate {
    /// A gate with this limit.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let state = State { allowed: limit, answers: 0, under_way: 0, pause: None, pauses: 0, consecutive: 0 };
        Arc::new(Self { limit, state: Mutex::new(state), waiting: Condvar::new() })
    }

    /// Waits for a slot. A pause is reported once, through `say`.
    pub(super) fn enter(self: &Arc<Self>, say: &mut dyn FnMut(&str)) -> Result<Slot> {
        let mut state = self.lock();
        loop {
            signals::check()?;
            let left = state.remaining(Instant::now());
            if let Some(pause) = state.pause.as_mut().filter(|pause| !left.is_zero() && !pause.is_reported) {
                pause.is_reported = true;
                say(&format!("{}; all requests wait {:.1} s", pause.why, left.as_secs_f64()));
            }
            if left.is_zero() && state.under_way < state.allowed {
                state.under_way += 1;
                self.wake_next(&state);
                return Ok(Slot { gate: Arc::clone(self), pauses: state.pauses });
            }
            let wait = if left.is_zero() { SIGNAL_INTERVAL } else { left.min(SIGNAL_INTERVAL) };
            state = self.waiting.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the next request that may go.
    fn wake_next(&self, state: &State) {
        if state.under_way < state.allowed {
            self.waiting.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The rest of the pause.
    fn remaining(&self, now: Instant) -> Duration {
        self.pause.as_ref().map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(now))
    }
}

impl Slot {
    /// Raises the limit after an answer.
    pub(super) fn answered(&self) {
        let mut state = self.gate.lock();
        state.consecutive = 0;
        state.answers += 1;
        if state.answers >= state.allowed && state.allowed < self.gate.limit {
            state.allowed += 1;
            state.answers = 0;
        }
    }

    /// Halves the limit after a rate limit, and pauses all requests for the length that belongs to the number of rate
    /// limits since the last answer. Nothing happens if another request caught the same rate limit before. Returns true
    /// if the limit was 1 already.
    pub(super) fn rate_limited(&self, why: &str, length: impl FnOnce(u32) -> Option<Duration>) -> bool {
        let mut state = self.gate.lock();
        if state.pauses != self.pauses {
            return false;
        }
        let was_alone = state.allowed == 1;
        state.pauses += 1;
        state.consecutive = state.consecutive.saturating_add(1);
        state.allowed = (state.allowed / 2).max(1);
        state.answers = 0;
        if let Some(length) = length(state.consecutive) {
            state.pause = Some(Pause { until: Instant::now() + length, why: why.to_owned(), is_reported: false });
        }
        was_alone
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.under_way -= 1;
        self.gate.wake_next(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(gate: &Arc<Gate>) -> Slot {
        gate.enter(&mut |_| ()).unwrap()
    }

    fn allowed(gate: &Gate) -> usize {
        gate.lock().allowed
    }

    #[test]
    fn rate_limit_halves_concurrency() {
        let gate = Gate::new(32);
        let round: Vec<Slot> = (0..32).map(|_| enter(&gate)).collect();
        assert!(!round.iter().any(|slot| slot.rate_limited("", |_| None)));
        assert_eq!(allowed(&gate), 16, "one burst is one rate limit");
        drop(round);
        (0..16).for_each(|_| enter(&gate).answered());
        assert_eq!(allowed(&gate), 17);
        let alone = (0..9).filter(|_| enter(&gate).rate_limited("", |_| None)).count();
        assert_eq!(alone, 5, "17, 8, 4 and 2 may go before one may");
        assert_eq!((allowed(&gate), gate.lock().consecutive), (1, 9));
    }
}
