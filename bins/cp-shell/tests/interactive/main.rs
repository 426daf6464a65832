//! The session with a person, end to end: as a script, at a real terminal, and with a hub.

mod hub;
mod piped;
mod support;
mod terminal;
