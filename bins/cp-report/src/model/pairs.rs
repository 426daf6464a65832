//! Lines that belong together: what was asked for, and what came of it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use super::entry::Entry;

/// The most that is waited for at a time.
const MOST: usize = 10_000;

/// What was asked for on a ledger, while nothing came of it.
#[derive(Default)]
pub(crate) struct Pairs {
    waiting: HashMap<u64, Vec<u64>>,
    count: usize,
    hasher: RandomState,
}

impl Pairs {
    /// The line that this one is about, if it ends what that one began. Whether this one begins something is the other part.
    pub(crate) fn see(&mut self, entry: &Entry<'_>) -> (Option<u64>, bool) {
        let text = |path: &str| entry.get(path).map(super::entry::Json::pretty).unwrap_or_default();
        let (begins, kind, name) = match &*entry.event {
            "llm.request" | "llm.response" => {
                let begins = entry.event == "llm.request";
                (begins, 0, [text("request_hash"), text("attempt"), text("batch")].join(" "))
            }
            "tool_call" | "tool_result" => (entry.event == "tool_call", 1, text("id")),
            "exec.intent" => (true, 2, entry.seq.to_string()),
            "exec.result" => (false, 2, text("intent")),
            "approval.asked" => (true, 3, text("id")),
            "approval.granted" | "approval.denied" => (false, 3, text("id")),
            _ => return (None, false),
        };
        let key = self.hasher.hash_one((kind, name, entry.run.as_deref()));
        if begins {
            let is_kept = self.count < MOST;
            if is_kept {
                self.count += 1;
                self.waiting.entry(key).or_default().push(entry.seq);
            }
            return (None, is_kept);
        }
        let Some(waiting) = self.waiting.get_mut(&key) else { return (None, false) };
        let first = waiting.remove(0);
        self.count -= 1;
        if waiting.is_empty() {
            self.waiting.remove(&key);
        }
        (Some(first), false)
    }

    /// What nothing came of.
    pub(crate) fn left(self) -> HashSet<u64> {
        self.waiting.into_values().flatten().collect()
    }
}
