//! The bytes that a run may add to the ledger.

use std::time::Instant;

/// The bytes that a run may add at once, and those that it may add with each second.
const AT_ONCE: u64 = 8 << 20;
const WITH_EACH_SECOND: u64 = 16 << 10;
/// The bytes of an entry without what the run says in it.
const ENTRY: u64 = 512;

/// What a run has said so far. The limits of a run do not hold for the memory and the ledger of its supervisor.
pub(super) struct Budget {
    since: Instant,
    spent: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), spent: 0 }
    }

    /// Takes the bytes of one more entry. False if too few are left.
    pub(super) fn take(&mut self, said: usize) -> bool {
        let needed = ENTRY.saturating_add(said as u64);
        let granted = AT_ONCE + WITH_EACH_SECOND * self.since.elapsed().as_secs();
        let is_left = self.spent.saturating_add(needed) <= granted;
        self.spent += if is_left { needed } else { 0 };
        is_left
    }
}
