//! File changes of a run: contents are kept before the run, the trees are compared after it, and `cp-exec undo`
//! restores files.
//!
//! - [`Store`] keeps the contents of regular files under the home, by their SHA-256.
//! - [`Baseline`] walks the writable trees before a run and keeps the contents of their files.
//! - [`Changes`] lists the files that the run created, changed or removed.

mod before;
mod store;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use self::before::{Baseline, Changes};
pub(crate) use self::store::Store;
pub(crate) use self::tree::{Ignored, state_of};
