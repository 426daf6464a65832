//! The format: a line, and the entry that it is made from. See cp-ledger(5).

pub mod approval;
pub mod canonical;
mod entry;
pub mod line;

pub use self::entry::Entry;
pub use self::line::{Hash, Line, inside, members};
