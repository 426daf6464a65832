//! The events of an approval: asked, granted or denied, spent. Each is on disk before the next one.

use cp_common::wire::{Approval, Grant};

use super::Entry;
use super::line::Hash;

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
        match self {
            Self::Asked => entry.message(&approval.shown.why).with("approval", approval),
            Self::Granted(grant) => with_person(with_subject(with_grant(entry, grant), approval)),
            Self::Denied { by, why } => with_person(with_subject(entry.message(why).with("by", by), approval)),
            Self::Spent(grant) => with_grant(entry, grant).with("receipt", &grant.receipt),
        }
    }
}

fn with_grant(entry: Entry, grant: &Grant) -> Entry {
    let entry = entry.with("by", &grant.by).with("how", &grant.how).with("scope", &grant.scope);
    grant.through.iter().fold(entry, |entry, name| entry.with("through", name))
}

/// Adds the subject of the approval, so that one entry answers who approved it.
fn with_subject(entry: Entry, approval: &Approval) -> Entry {
    let entry = entry.with("command", &approval.subject());
    let diff = approval.shown.diff.iter();
    diff.fold(entry, |entry, diff| entry.with("diff_sha256", &Hash::of(diff.as_bytes()).to_string()))
}

/// Adds what this process knows of the person who started it: the user id, its name, and the terminal of its standard
/// input.
fn with_person(entry: Entry) -> Entry {
    let uid = rustix::process::getuid().as_raw();
    let entry = entry.with("uid", &uid);
    let entry = login_of(uid).iter().fold(entry, |entry, login| entry.with("login", login));
    let tty = rustix::termios::ttyname(std::io::stdin(), Vec::new()).ok();
    tty.iter().fold(entry, |entry, tty| entry.with("tty", &*tty.to_string_lossy()))
}

/// The name of a user id in the local user database.
fn login_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.filter(|user| user.get(2).and_then(|id| id.parse().ok()) == Some(uid)).map(|user| user[0].to_owned()).next()
}
