//! What a caller may ask for: a verb is a file, with its options, its documentation and its output.

mod deeds;
mod earlier;
mod options;

pub(crate) mod cancel;
pub(crate) mod resume;
mod rows;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod show;
pub(crate) mod tools;
pub(crate) mod undo;
