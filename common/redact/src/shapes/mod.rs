//! Secrets with a form of their own.

pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod private;
pub(crate) mod token;
pub(crate) mod url;
