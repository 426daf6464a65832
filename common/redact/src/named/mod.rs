//! Secrets after a name that announces them.

pub(crate) mod assignment;
pub(crate) mod call;
pub(crate) mod command;
pub(crate) mod phrase;
pub(crate) mod tool;
