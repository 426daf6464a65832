//! What a session remarks on a turn before it is sent: its risk, the hints that its words get, and how `:explain` shows both later.
//! Values in, values out.

mod commands;
#[cfg(test)]
mod corpus;
pub(crate) mod explained;
pub(crate) mod hints;
mod intent;
mod lexicon;
pub(crate) mod risk;
mod tokens;
mod word;
