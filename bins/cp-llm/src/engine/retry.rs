//! When to try again, and after how long.

use std::time::Duration;

use cp_common::keys::random;
use cp_common::{Code, Error};

/// The first wait is up to this long; each further one up to twice as long as the one before.
const BASE: Duration = Duration::from_millis(500);

/// How often and how long to try again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// How many tries may follow the first.
    pub retries: u32,
    /// The longest wait before a try.
    pub max_wait: Duration,
}

impl RetryPolicy {
    /// The wait before the next try; nothing when there must be none. `tried` counts the tries that failed, `jitter` is in 0..=1.
    pub(super) fn wait(&self, error: &Error, tried: u32, jitter: f64) -> Option<Duration> {
        let may_help = error.code().row().retryable && error.code() != Code::Interrupted && !error.is_fatal();
        if !may_help || tried > self.retries {
            return None;
        }
        self.length(error, tried, jitter)
    }

    /// How long to wait after a failure that is the `tried`th; nothing when it asks for a longer wait than there may be.
    pub(super) fn length(&self, error: &Error, tried: u32, jitter: f64) -> Option<Duration> {
        // Full jitter: many clients that failed together do not come back together.
        let ceiling = BASE.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(self.max_wait);
        let spread = ceiling.mul_f64(jitter.clamp(0.0, 1.0));
        match asked_for(error) {
            Some(asked) if asked > self.max_wait => None,
            Some(asked) => Some(asked + spread.min(asked / 10)),
            None => Some(spread),
        }
    }
}

/// Whether the upstream refuses for now whatever it is asked: then all requests wait, and not only the one that it was said to.
pub(super) fn is_rate_limit(error: &Error) -> bool {
    match error.code() {
        Code::RateLimited => true,
        Code::Server => asked_for(error).is_some(),
        _ => false,
    }
}

/// The wait that the upstream asked for (Retry-After).
fn asked_for(error: &Error) -> Option<Duration> {
    error.details().get("retry_after_ms")?.as_u64().map(Duration::from_millis)
}

/// A number in 0..=1 that differs from process to process and from call to call.
pub(super) fn jitter() -> f64 {
    random::<4>().map_or(0.5, |bytes| f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { retries: 3, max_wait: Duration::from_mins(1) };

    #[test]
    fn waits_grow_and_are_spread_from_nothing() {
        let error = Error::new(Code::Server, "x");
        assert_eq!(POLICY.wait(&error, 1, 1.0), Some(Duration::from_millis(500)));
        assert_eq!(POLICY.wait(&error, 3, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(POLICY.wait(&error, 3, 0.0), Some(Duration::ZERO));
        assert_eq!(POLICY.wait(&error, 4, 0.0), None);
    }

    #[test]
    fn retry_after_is_the_least_wait_and_one_that_is_too_long_ends_it() {
        let asked = |ms: u64| Error::new(Code::RateLimited, "x").with("retry_after_ms", ms);
        assert_eq!(POLICY.wait(&asked(2000), 1, 0.0), Some(Duration::from_secs(2)));
        assert!(POLICY.wait(&asked(2000), 1, 1.0).unwrap() <= Duration::from_millis(2500));
        assert_eq!(POLICY.wait(&asked(61_000), 1, 0.0), None);
    }

    #[test]
    fn what_the_caller_did_wrong_is_not_tried_again() {
        for code in [Code::Validation, Code::Auth, Code::Forbidden, Code::NotFound, Code::Conflict, Code::Interrupted] {
            assert_eq!(POLICY.wait(&Error::new(code, "x"), 1, 0.0), None, "{code}");
        }
    }
}
