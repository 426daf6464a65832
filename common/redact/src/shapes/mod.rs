//! Secrets with a recognizable form.

pub(crate) mod file;
pub(crate) mod hash;
pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod token;
pub(crate) mod url;
