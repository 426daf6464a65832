//! Retries: which errors are retried, and after what delay.

use std::time::Duration;

use cp_common::keys::random;
use cp_common::{Code, Error};

/// The longest first delay. It doubles with each retry.
const BASE: Duration = Duration::from_millis(500);

/// Limits of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// The number of retries.
    pub retries: u32,
    /// The longest delay.
    pub max_wait: Duration,
}

impl RetryPolicy {
    /// The delay before the next attempt; `None` to give up. `tried` is the number of failed attempts, `jitter` is in 0..=1.
    pub(super) fn wait(&self, error: &Error, tried: u32, jitter: f64) -> Option<Duration> {
        let may_help = error.code().row().retryable && error.code() != Code::Interrupted && !error.is_fatal();
        if !may_help || tried > self.retries {
            return None;
        }
        self.length(error, tried, jitter)
    }

    /// The delay after the failed attempt number `tried`; `None` if `Retry-After` is longer than the limit.
    pub(super) fn length(&self, error: &Error, tried: u32, jitter: f64) -> Option<Duration> {
        // Full jitter, so that clients that failed together do not retry together.
        let ceiling = BASE.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(self.max_wait);
        let spread = ceiling.mul_f64(jitter.clamp(0.0, 1.0));
        match asked_for(error) {
            Some(asked) if asked > self.max_wait => None,
            Some(asked) => Some(asked + spread.min(asked / 10)),
            None => Some(spread),
        }
    }
}

/// True if the upstream is rate limiting the whole account. Then every request waits.
pub(super) fn is_rate_limit(error: &Error) -> bool {
    match error.code() {
        Code::RateLimited => true,
        Code::Server => asked_for(error).is_some(),
        _ => false,
    }
}

/// The delay that the upstream asked for in `Retry-After`.
fn asked_for(error: &Error) -> Option<Duration> {
    error.details().get("retry_after_ms")?.as_u64().map(Duration::from_millis)
}

/// A random number in 0..=1.
pub(super) fn jitter() -> f64 {
    random::<4>().map_or(0.5, |bytes| f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { retries: 3, max_wait: Duration::from_mins(1) };

    #[test]
    fn delays_grow_with_full_jitter() {
        let error = Error::new(Code::Server, "x");
        assert_eq!(POLICY.wait(&error, 1, 1.0), Some(Duration::from_millis(500)));
        assert_eq!(POLICY.wait(&error, 3, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(POLICY.wait(&error, 3, 0.0), Some(Duration::ZERO));
        assert_eq!(POLICY.wait(&error, 4, 0.0), None);
    }

    #[test]
    fn retry_after_is_minimum_and_too_long_gives_up() {
        let asked = |ms: u64| Error::new(Code::RateLimited, "x").with("retry_after_ms", ms);
        assert_eq!(POLICY.wait(&asked(2000), 1, 0.0), Some(Duration::from_secs(2)));
        assert!(POLICY.wait(&asked(2000), 1, 1.0).unwrap() <= Duration::from_millis(2500));
        assert_eq!(POLICY.wait(&asked(61_000), 1, 0.0), None);
    }

    #[test]
    fn caller_errors_are_not_retried() {
        for code in [Code::Validation, Code::Auth, Code::Forbidden, Code::NotFound, Code::Conflict, Code::Interrupted] {
            assert_eq!(POLICY.wait(&Error::new(code, "x"), 1, 0.0), None, "{code}");
        }
    }
}
