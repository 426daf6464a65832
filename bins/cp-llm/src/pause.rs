//! A wait that a signal ends.

use std::time::{Duration, Instant};

use cp_common::{Result, signals};

/// How long a wait goes on without a look at the signals.
const SLICE: Duration = Duration::from_millis(20);

/// Sleeps. Fails when a signal comes first.
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
