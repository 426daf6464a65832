//! The tools that a model may call: found, described, pinned, and their arguments checked.

pub(crate) mod arguments;
pub(crate) mod builtin;
pub(crate) mod catalogue;
pub(crate) mod description;
pub(crate) mod find;
pub(crate) mod sources;
pub(crate) mod tool;
