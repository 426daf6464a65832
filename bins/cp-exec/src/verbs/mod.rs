//! The verbs, one file each.

pub(crate) mod agent;
pub(crate) mod allow;
pub(crate) mod approve;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod hook;
pub(crate) mod inside;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod undo;
