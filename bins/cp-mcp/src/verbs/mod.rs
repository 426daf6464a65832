//! The verbs, each a file.

pub(crate) mod connect;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod proxy;
pub(crate) mod remove;
pub(crate) mod serve;
