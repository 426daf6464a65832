//! What can be typed at the prompt: the table of commands, and how a line is read.

pub(crate) mod parse;
pub(crate) mod table;
