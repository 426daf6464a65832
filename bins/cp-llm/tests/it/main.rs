//! The program as a user meets it: a real binary against servers whose every byte is chosen here.

mod failures;
mod interrupt;
mod messages;
mod requests;
mod secrets;
mod server;
mod stub;
