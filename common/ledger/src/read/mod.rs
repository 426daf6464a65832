//! Reading ledgers: forward and backward by lines, the end of a file, and the segments of one ledger.

mod archive;
mod forward;
pub mod segments;
pub mod source;
pub mod tail;

pub use self::forward::{Backward, End, Lines, Raw, backward, lines, open, read_at};
