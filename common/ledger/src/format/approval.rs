//! The events of an approval: asked, granted or denied, spent. Each is on disk before the next one.

use cp_common::wire::{Approval, Grant};

use super::Entry;

/// An event of an approval.
#[derive(Clone, Copy, Debug)]
pub enum Said<'a> {
    /// The approval was requested.
    Asked,
    /// The approval was granted.
    Granted(&'a Grant),
    /// The approval was denied.
    Denied {
        /// The person or program that denied it, as [`Grant::by`].
        by: &'a str,
        /// The reason in words.
        why: &'a str,
    },
    /// The grant was used, immediately before the approved action starts.
    Spent(&'a Grant),
}

impl Said<'_> {
    /// The event.
    #[must_use]
    pub const fn event(self) -> &'static str {
        match self {
            Self::Asked => "approval.asked",
            Self::Granted(_) => "approval.granted",
            Self::Denied { .. } => "approval.denied",
            Self::Spent(_) => "approval.spent",
        }
    }

    /// An entry of the event, made into the one about this approval.
    #[must_use]
    pub fn about(self, approval: &Approval, entry: Entry) -> Entry {
        let entry = entry.with("id", &approval.id).with("call", &approval.asked_by.call_id);
        let uid = rustix::process::getuid().as_raw();
        match self {
            Self::Asked => entry.message(&approval.shown.why).with("approval", approval),
            Self::Granted(grant) => {
                entry.with("by", &grant.by).with("how", &grant.how).with("scope", &grant.scope).with("uid", &uid)
            }
            Self::Denied { by, why } => entry.message(why).with("by", by).with("uid", &uid),
            Self::Spent(grant) => {
                let entry = entry.with("by", &grant.by).with("how", &grant.how).with("scope", &grant.scope);
                entry.with("receipt", &grant.receipt)
            }
        }
    }
}
