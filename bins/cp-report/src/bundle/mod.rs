//! The bundle: its records as they come, and the copy of them that can be read again.

mod record;
mod spool;

pub(crate) use cp_common::wire::bundle::{Blob, Head, Ledger, LeftOut};

pub(crate) use self::record::{Record, each, proof};
pub(crate) use self::spool::{Chunk, Reader, Spool};
