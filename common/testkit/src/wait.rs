//! Waits for effects of other processes.

use std::time::{Duration, Instant};

/// The longest wait. Only a broken program reaches it, so it is long enough for a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

/// Waits until `condition` holds; `what` describes it in the error.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(LIMIT, condition), "waited {LIMIT:?} for: {what}");
}

/// True if `condition` holds before the limit is over.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_polls_until_condition_holds() {
        let mut asked = 0;
        until("the third time", || {
            asked += 1;
            asked == 3
        });
        assert!(!holds_within(Duration::from_millis(20), || false));
    }
}
