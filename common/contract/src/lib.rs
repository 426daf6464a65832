//! The contract that the cp-tools share: everything that two programs must agree on, and nothing that belongs to a
//! single program.
//!
//! Each folder uses those below it:
//!
//! - [`program`]: start, exit, self-description, and confirmation of writes
//! - [`coprocess`]: programs that run programs
//! - [`stream`]: the item loop of every program that reads records
//! - [`context`]: options, home, settings and standard output for a verb
//! - [`output`]: answers, records, the closing line, the exit status
//! - [`home`]: the home directory, its settings, its files
//! - [`wire`]: the format on a pipe: envelope, records, error codes, schemas
//!
//! [`clock`], [`glob`], [`keys`] and [`signals`] are small modules that every folder may use; [`json`] is strict JSON,
//! and [`words`] the tokenizer of command strings.

pub mod clock;
pub mod context;
pub mod coprocess;
pub mod glob;
pub mod home;
pub mod keys;
pub mod output;
pub mod program;
pub mod signals;
pub mod stream;
pub mod wire;

pub use cp_json::{self as json, words};

pub use self::context::Context;
pub use self::wire::{Code, Error, Result};
