//! The entries of an approval's life: asked, granted or denied, spent. Each is on the disk before what comes after it.

use cp_common::wire::{Approval, Grant};

use super::Entry;

/// What happened to an approval.
#[derive(Clone, Copy, Debug)]
pub enum Said<'a> {
    /// It waits from now on.
    Asked,
    /// A yes.
    Granted(&'a Grant),
    /// A no.
    Denied {
        /// Who gave it, as [`Grant::by`].
        by: &'a str,
        /// In words.
        why: &'a str,
    },
    /// A yes was used up: what it was given for starts next.
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
