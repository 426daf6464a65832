//! The bundle: its records as they come, and the copy of them that can be read again.

mod record;
mod spool;

pub(crate) use self::record::{Blob, Head, Ledger, Record, each};
pub(crate) use self::spool::{Chunk, Reader, Spool};
