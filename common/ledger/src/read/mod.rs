//! Reading ledgers: forward and backward by lines, the end of a file, and the segments of one ledger.

mod archive;
mod backward;
mod forward;
pub mod segments;
pub mod source;
pub mod tail;

pub use self::backward::{Backward, backward};
pub use self::forward::{End, Lines, Raw, lines, open, read_at};
