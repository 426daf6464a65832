//! Retries: which errors are retried, and after what delay.

use std::time::Duration;

use cp_common::keys::random;
use cp_common::{Code, Error};

use crate::wire_api::ends::is_billed;

/// The longest first delay. It doubles with each retry.
const BASE: Duration = Duration::from_millis(500);

/// Limits of retries. The default is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryPolicy {
    /// The number of retries.
    pub retries: u32,
    /// The longest delay.
    pub max_wait: Duration,
}

impl RetryPolicy {
    /// The delay before the next attempt; `None` to give up. `tried` is the number of failed attempts, `jitter` is in
    /// 0..=1.
    pub(super) fn wait(&self, error: &Error, tried: u32, jitter: f64) -> Option<Duration> {
        // The server does not implement the request.
        let is_missing = error.details().get("status").is_some_and(|status| status == 501);
        // Tools that an agent ran before it failed may have had effects, which another attempt would repeat.
        let has_effects = error.details().get("tool_calls").is_some_and(|calls| calls != 0);
        let may_help =
            error.code().row().retryable && !is_missing && error.code() != Code::Interrupted && !error.is_fatal();
        if !may_help || has_effects || is_billed(error) || tried > self.retries {
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
            // An upstream that asks for less than our own first delay is obeyed once.
            Some(asked) if tried > 1 => Some((asked + spread.min(asked / 10)).max(spread.min(BASE))),
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

/// The delay that the upstream asked for in `Retry-After`. Zero and a date in the past are not a delay.
fn asked_for(error: &Error) -> Option<Duration> {
    error.details().get("retry_after_ms")?.as_u64().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// A random number in 0..=1.
pub(super) fn jitter() -> f64 {
    random::<4>().map_or(0.5, |bytes| f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire_api::upstream::retry_after;

    const POLICY: RetryPolicy = RetryPolicy { retries: 3, max_wait: Duration::from_mins(1) };

    #[test]
    fn delays_grow_with_full_jitter() {
        let error = Error::new(Code::Server, "x");
        assert_eq!(POLICY.wait(&error, 1, 1.0), Some(Duration::from_millis(500)));
        assert_eq!(POLICY.wait(&error, 3, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(POLICY.wait(&error, 3, 0.0), Some(Duration::ZERO));
        assert_eq!(POLICY.wait(&error, 4, 0.0), None);
    }

    proptest! {
        #[test]
        fn any_retry_after_waits_at_least_own_delay_and_at_most_limit(
            header in prop_oneof![
                (-1_000_000_i64..1_000_000).prop_map(|n| n.to_string()),
                any::<f64>().prop_map(|n| n.to_string()),
                (0_i64..4_000_000_000).prop_map(|at| chrono::DateTime::from_timestamp(at, 0).unwrap().to_rfc2822()),
                "\\PC{0,12}",
            ],
            tried in 1_u32..4,
            jitter in 0.0_f64..=1.0,
        ) {
            let now = 1_700_000_000_000;
            let asked = retry_after(|name| (name == "retry-after").then(|| header.clone()), &serde_json::Value::Null, now);
            let asked_ms = asked.map_or(0, |asked| u64::try_from(asked.as_millis()).unwrap_or(u64::MAX));
            let error = Error::new(Code::RateLimited, "x");
            let own = POLICY.wait(&error, tried, jitter).unwrap();
            let waits = POLICY.wait(&error.with("retry_after_ms", asked_ms), tried, jitter);
            match waits {
                None => prop_assert!(asked_ms > 60_000),
                Some(wait) if asked_ms == 0 => prop_assert_eq!(wait, own),
                Some(wait) => prop_assert!(wait >= Duration::from_millis(asked_ms) && (tried == 1 || wait >= own.min(BASE)) && wait <= Duration::from_secs(66)),
            }
        }
    }
}
