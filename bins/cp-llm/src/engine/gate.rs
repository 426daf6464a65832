//! How many requests are under way, and the pause that a server asks for: it is a pause of all. The number doubles from a small one with
//! each round of answers; when the server refuses, it is halved and then grows slowly.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cp_common::{Result, signals};

/// How long a request that waits does so without a look at the signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// The number of requests to begin with: the larger of this and a quarter of the limit.
const INITIAL: usize = 4;

/// A gate for each endpoint: what one server refuses does not keep requests from another.
pub(crate) struct Gates {
    limit: usize,
    made: Mutex<BTreeMap<String, Arc<Gate>>>,
}

impl Gates {
    /// Gates for so many requests at the same time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, made: Mutex::default() }
    }

    /// The gate of an endpoint.
    pub(super) fn of(&self, endpoint: &str) -> Arc<Gate> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = made.get(endpoint) {
            return Arc::clone(gate);
        }
        let gate = Arc::new(Gate::new(self.limit));
        made.insert(endpoint.to_owned(), Arc::clone(&gate));
        gate
    }

    /// The fewest requests that may be under way at an endpoint, where that is less than the limit because the server refused.
    pub(crate) fn reduced_limit(&self) -> Option<usize> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(|gate| gate.reduced_limit()).min()
    }
}

/// Lets requests go, so many at a time, and none during a pause.
pub(super) struct Gate {
    limit: usize,
    state: Mutex<State>,
    /// For requests that were refused, which go first, and for the others.
    retries: Condvar,
    first_attempts: Condvar,
}

struct State {
    /// How many may be under way.
    allowed: usize,
    /// Answers since that number grew.
    answers: usize,
    was_limited: bool,
    under_way: usize,
    /// Requests that were refused and wait.
    waiting_retries: usize,
    pause: Option<Pause>,
    /// How often all had to wait, and how often since the last answer.
    pauses: u64,
    consecutive: u32,
}

struct Pause {
    until: Instant,
    why: String,
    is_reported: bool,
}

/// A request that is under way.
pub(super) struct Slot {
    gate: Arc<Gate>,
    /// How many pauses there were when it began.
    pauses: u64,
}

impl Gate {
    /// A gate for so many requests at the same time.
    fn new(limit: usize) -> Self {
        let state = State {
            allowed: INITIAL.max(limit / 4).min(limit),
            answers: 0,
            was_limited: false,
            under_way: 0,
            waiting_retries: 0,
            pause: None,
            pauses: 0,
            consecutive: 0,
        };
        Self { limit, state: Mutex::new(state), retries: Condvar::new(), first_attempts: Condvar::new() }
    }

    /// Waits until the request may go; one that was refused before goes before those that were not. What there is to say of a pause is
    /// said once.
    pub(super) fn enter(self: &Arc<Self>, was_limited: bool, say: &mut dyn FnMut(&str)) -> Result<Slot> {
        let mut state = self.lock();
        state.waiting_retries += usize::from(was_limited);
        let outcome = loop {
            if let Err(interrupted) = signals::check() {
                break Err(interrupted);
            }
            let left = state.remaining(Instant::now());
            if let Some(pause) = state.pause.as_mut().filter(|pause| !left.is_zero() && !pause.is_reported) {
                pause.is_reported = true;
                say(&format!("{}; all requests wait {:.1} s", pause.why, left.as_secs_f64()));
            }
            if left.is_zero() && state.under_way < state.allowed && (was_limited || state.waiting_retries == 0) {
                state.under_way += 1;
                break Ok(Slot { gate: Arc::clone(self), pauses: state.pauses });
            }
            let wait = if left.is_zero() { SIGNAL_INTERVAL } else { left.min(SIGNAL_INTERVAL) };
            let turn = if was_limited { &self.retries } else { &self.first_attempts };
            state = turn.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting_retries -= usize::from(was_limited);
        self.wake_next(&state);
        outcome
    }

    /// Makes all wait so long, unless they have to wait longer already.
    pub(super) fn pause_all(&self, length: Duration, why: &str) {
        let until = Instant::now() + length;
        let mut state = self.lock();
        if state.pause.as_ref().is_none_or(|pause| pause.until < until) {
            let is_reported = state
                .pause
                .as_ref()
                .is_some_and(|pause| pause.is_reported && !state.remaining(Instant::now()).is_zero());
            state.pause = Some(Pause { until, why: why.to_owned(), is_reported });
        }
    }

    /// How often in a row a server has refused.
    pub(super) fn consecutive_limits(&self) -> u32 {
        self.lock().consecutive
    }

    /// How many requests may be under way, where that is less than the limit because the server refused.
    fn reduced_limit(&self) -> Option<usize> {
        let state = self.lock();
        Some(state.allowed).filter(|allowed| state.was_limited && *allowed < self.limit)
    }

    /// Wakes one who may go.
    fn wake_next(&self, state: &State) {
        if state.under_way < state.allowed {
            if state.waiting_retries > 0 { &self.retries } else { &self.first_attempts }.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is left of the pause.
    fn remaining(&self, now: Instant) -> Duration {
        self.pause.as_ref().map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(now))
    }
}

impl Slot {
    /// The server has answered: more may go at the same time.
    pub(super) fn answered(&self) {
        let mut state = self.gate.lock();
        state.consecutive = 0;
        state.answers += 1;
        let enough = if state.was_limited { state.allowed } else { 1 };
        if state.answers >= enough && state.allowed < self.gate.limit {
            state.allowed += 1;
            state.answers = 0;
        }
    }

    /// The server has refused: half as many may go at the same time. Whether that is new, and not the cause of an earlier refusal while
    /// this one was under way; and whether one at a time was refused.
    pub(super) fn rate_limited(&self) -> (bool, bool) {
        let mut state = self.gate.lock();
        if state.pauses != self.pauses {
            return (false, false);
        }
        let was_alone = state.allowed == 1;
        state.pauses += 1;
        state.consecutive = state.consecutive.saturating_add(1);
        state.was_limited = true;
        state.allowed = (state.allowed / 2).max(1);
        state.answers = 0;
        (true, was_alone)
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
        gate.enter(false, &mut |_| ()).unwrap()
    }

    fn allowed(gate: &Gate) -> usize {
        gate.lock().allowed
    }

    #[test]
    fn the_number_doubles_with_each_round_until_a_refusal_halves_it_and_then_grows_by_one() {
        let gate = Arc::new(Gate::new(32));
        assert_eq!(allowed(&gate), 8);
        for wanted in [16, 32, 32] {
            let round: Vec<Slot> = (0..allowed(&gate)).map(|_| enter(&gate)).collect();
            round.iter().for_each(Slot::answered);
            assert_eq!(allowed(&gate), wanted);
        }
        let round: Vec<Slot> = (0..32).map(|_| enter(&gate)).collect();
        assert_eq!(round.iter().filter(|slot| slot.rate_limited().0).count(), 1, "one burst is one refusal");
        assert_eq!((allowed(&gate), gate.reduced_limit()), (16, Some(16)));
        drop(round);
        (0..16).for_each(|_| enter(&gate).answered());
        assert_eq!(allowed(&gate), 17);
        let alone = (0..9).filter(|_| enter(&gate).rate_limited() == (true, true)).count();
        assert_eq!(alone, 5, "17, 8, 4 and 2 may go before one may");
        assert_eq!((allowed(&gate), gate.consecutive_limits()), (1, 9));
    }

    #[test]
    fn what_one_endpoint_refuses_keeps_nobody_from_another() {
        let gates = Gates::new(8);
        enter(&gates.of("a")).rate_limited();
        gates.of("a").pause_all(Duration::from_hours(1), "slow down");
        enter(&gates.of("b")).answered();
        assert_eq!((gates.reduced_limit(), allowed(&gates.of("b"))), (Some(2), 5));
    }

    #[test]
    fn a_pause_is_one_of_all_is_said_once_and_those_that_were_refused_go_first() {
        let gate = Arc::new(Gate::new(1));
        let first = enter(&gate);
        let order = Mutex::new(Vec::new());
        let note = |said: &str| order.lock().unwrap().push(said.to_owned());
        std::thread::scope(|scope| {
            for was_limited in [false, false, false, false, false, false, true] {
                let (gate, note) = (&gate, &note);
                scope.spawn(move || {
                    let _slot = gate.enter(was_limited, &mut &*note).unwrap();
                    note(&was_limited.to_string());
                });
                std::thread::sleep(Duration::from_millis(5));
            }
            gate.pause_all(Duration::from_millis(150), "slow down");
            gate.pause_all(Duration::from_millis(10), "shorter");
            let since = Instant::now();
            drop(first);
            drop(gate.enter(false, &mut &note).unwrap());
            assert!(since.elapsed() >= Duration::from_millis(140), "{:?}", since.elapsed());
        });
        let order = order.into_inner().unwrap();
        assert_eq!(
            order.iter().filter(|said| said.starts_with("slow down; all requests wait 0.1")).count(),
            1,
            "{order:?}"
        );
        assert_eq!(order.iter().find(|said| said.len() < 6).unwrap(), "true", "{order:?}");
    }
}
