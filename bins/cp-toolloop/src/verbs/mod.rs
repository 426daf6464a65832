//! The verbs. Each file has the options, the documentation and the output of one verb.

mod options;

pub(crate) mod cancel;
pub(crate) mod resume;
mod rows;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod show;
pub(crate) mod tools;
pub(crate) mod undo;
