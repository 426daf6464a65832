//! When to try again, and after how long.

use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result, signals};

/// The first wait is up to this long; each further one up to twice as long as the one before.
const BASE: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(20);

/// How patient the caller is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How often to try again.
    pub retries: u32,
    /// The longest wait before a try.
    pub max_wait: Duration,
}

impl Patience {
    /// The wait before the next try; nothing when there must be none. `tried` counts the tries that failed, `luck` is in 0..1.
    pub(crate) fn wait(&self, error: &Error, tried: u32, luck: f64) -> Option<Duration> {
        let may_help = error.code().row().retryable && error.code() != Code::Interrupted && !error.is_fatal();
        if !may_help || tried > self.retries {
            return None;
        }
        // Full jitter: many clients that failed together do not come back together.
        let ceiling = BASE.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(self.max_wait);
        let jitter = ceiling.mul_f64(luck.clamp(0.0, 1.0));
        match asked_for(error) {
            Some(asked) if asked > self.max_wait => None,
            Some(asked) => Some(asked + jitter.min(asked / 4)),
            None => Some(jitter),
        }
    }
}

/// How long the upstream asked to be left alone.
pub(crate) fn asked_for(error: &Error) -> Option<Duration> {
    error.details().get("retry_after_ms")?.as_u64().map(Duration::from_millis)
}

/// A number in 0..1 that differs from process to process and from call to call.
pub(crate) fn luck() -> f64 {
    let mut bytes = [0; 4];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled.is_ok() { f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX) } else { 0.5 }
}

/// Sleeps. A signal ends it.
pub(crate) fn pause(length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    loop {
        signals::check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { retries: 3, max_wait: Duration::from_mins(1) };

    #[test]
    fn waits_grow_and_are_spread_from_nothing() {
        let error = Error::new(Code::Server, "x");
        assert_eq!(PATIENCE.wait(&error, 1, 1.0), Some(Duration::from_millis(500)));
        assert_eq!(PATIENCE.wait(&error, 3, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(PATIENCE.wait(&error, 3, 0.0), Some(Duration::ZERO));
        assert_eq!(PATIENCE.wait(&error, 4, 0.0), None);
    }

    #[test]
    fn the_upstreams_wish_is_the_least_wait_and_too_long_a_wish_ends_it() {
        let asked = |ms: u64| Error::new(Code::RateLimited, "x").with("retry_after_ms", ms);
        assert_eq!(PATIENCE.wait(&asked(2000), 1, 0.0), Some(Duration::from_secs(2)));
        assert!(PATIENCE.wait(&asked(2000), 1, 1.0).unwrap() <= Duration::from_millis(2500));
        assert_eq!(PATIENCE.wait(&asked(61_000), 1, 0.0), None);
    }

    #[test]
    fn what_the_caller_did_wrong_is_not_tried_again() {
        for code in [Code::Validation, Code::Auth, Code::Forbidden, Code::NotFound, Code::Conflict, Code::Interrupted] {
            assert_eq!(PATIENCE.wait(&Error::new(code, "x"), 1, 0.0), None, "{code}");
        }
    }
}
