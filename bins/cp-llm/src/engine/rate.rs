//! `--rpm` and `--tpm`: requests are spread so that no minute has more than so many of them, or of their tokens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cp_common::Result;
use cp_common::wire::Usage;

use crate::pause::pause;

/// How fast a process may ask.
pub(crate) struct RateLimiter {
    between: Duration,
    per_token: Duration,
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// A limiter; `None` where there is no limit.
    pub(crate) fn new(requests: Option<u32>, tokens: Option<u32>) -> Option<Self> {
        let share = |limit: Option<u32>| limit.map_or(Duration::ZERO, |limit| Duration::from_mins(1) / limit.max(1));
        (requests.is_some() || tokens.is_some()).then(|| Self {
            between: share(requests),
            per_token: share(tokens),
            next: Mutex::new(None),
        })
    }

    /// Waits for its turn.
    pub(crate) fn wait(&self) -> Result<()> {
        let now = Instant::now();
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.between);
            turn
        };
        pause(turn.saturating_duration_since(now))
    }

    /// Makes those that come wait for the tokens that were used.
    pub(crate) fn count(&self, usage: &Usage) {
        let tokens = u32::try_from(usage.input_tokens + usage.output_tokens).unwrap_or(u32::MAX);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = next.as_mut() {
            *next += self.per_token.saturating_mul(tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_apart_by_requests_and_by_tokens() {
        let rate = RateLimiter::new(Some(6000), Some(60_000)).unwrap();
        let start = Instant::now();
        for _ in 0..4 {
            rate.wait().unwrap();
        }
        assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
        rate.count(&Usage { input_tokens: 50, ..Usage::default() });
        rate.wait().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
        assert!(RateLimiter::new(None, None).is_none());
    }
}
