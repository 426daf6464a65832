//! What a model may call: tools are found, described, pinned, and their arguments checked.

pub(crate) mod allowed;
pub(crate) mod arguments;
pub(crate) mod builtin;
mod candidate;
pub(crate) mod catalogue;
mod describe;
pub(crate) mod description;
pub(crate) mod instructions;
pub(crate) mod links;
mod permitted;
mod search;
pub(crate) mod sources;
pub(crate) mod tool;
