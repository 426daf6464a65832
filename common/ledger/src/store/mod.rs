//! The files beside a ledger: blobs for values too large for a line, and the vault of sealed values.

pub mod blob;
pub mod vault;
