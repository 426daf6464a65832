//! The contract the cp-tools share. It holds what two programs must agree on, and nothing that belongs to one of them.
//!
//! Each folder uses those below it:
//!
//! - [`program`]: how a program starts, leaves, describes itself and gates its writes
//! - [`coprocess`]: programs that run programs
//! - [`stream`]: the loop of every program that reads records
//! - [`context`]: what a verb works with: options, home, settings, standard output
//! - [`output`]: answers, records, the closing line, the exit status
//! - [`home`]: the home directory, its settings, its files
//! - [`wire`]: what goes over a pipe: envelope, records, error codes, schemas
//!
//! [`clock`], [`keys`], [`signals`] and [`spelling`] are single doors that any of them may use; [`json`] is strict JSON, and
//! [`words`] the tokenizer of command strings.

pub mod clock;
pub mod context;
pub mod coprocess;
pub mod home;
pub mod keys;
pub mod output;
pub mod program;
pub mod signals;
pub mod spelling;
pub mod stream;
pub mod wire;

pub use cp_json::{self as json, words};

pub use self::context::Context;
pub use self::wire::{Code, Error, Result};
