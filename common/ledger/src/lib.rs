//! The tamper-evident ledger in JSON lines that every program writes its effects with. See cp-ledger(5).
//!
//! Each folder uses those below it:
//!
//! - [`home`]: which ledger an effect goes to, and the record of each command line
//! - [`append`]: the one writer: lock, stage, sync, rotate, repair
//! - [`proof`]: the chain, the tree over it, checkpoints
//! - [`blob`]: values too large for a line, beside a ledger
//! - [`read`]: lines forward and backward, segments
//! - [`format`](mod@format): the line and the entry

pub mod append;
pub mod blob;
/// The format: a line, and the entry that it is made from. See cp-ledger(5).
pub mod format {
    pub mod approval;
    pub mod canonical;
    mod entry;
    pub mod line;

    pub use self::entry::Entry;
    pub use self::line::{Hash, Line, inside, members};
}
pub mod home;
pub mod proof;
pub mod sessions;
/// Reading ledgers: forward and backward by lines, the end of a file, and the segments of one ledger.
pub mod read {
    mod forward;
    pub mod segments;
    pub mod source;
    pub mod tail;

    pub use self::forward::{End, Lines, Raw, read_at};
    pub use self::source::{lines, open};
    pub use self::tail::{Backward, backward, newest};
}

pub use cp_common::wire::Receipt;

pub use self::append::{Ledger, Sync};
pub use self::format::Entry;
pub use self::home::{audit, effect_ledger, effect_path};

/// The table of all events, as JSON: what each is, its members with their types, its line for a person, what it is the
/// start or the end of, and the events that caused it by the members that name them.
pub const EVENTS: &str = include_str!("../events.json");
