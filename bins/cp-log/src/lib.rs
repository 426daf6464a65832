//! A tamper-evident ledger in JSON lines: the library that every program writes its effects with, and the verbs of `cp-log`.

pub mod blob;
pub mod effect;
mod entry;
pub mod ledger;
pub mod line;
pub mod read;
pub mod redact;
mod tail;

pub use effect::{audit, effect_ledger, effect_path};
pub use ledger::{Entry, Ledger, Receipt, Sync};
