//! What a session remarks on a turn before it is sent: its risk, the hints that its words get, and how `:explain` shows both later.
//! Values in, values out.

pub(crate) mod explained;
pub(crate) mod hints;
pub(crate) mod risk;
