//! The contract the cp-tools share. It holds what two programs must agree on, and nothing that belongs to one of them.
//!
//! *Wire*: [`record`] (the envelope), [`wire`] (what it carries), [`error`] (codes, exits, retryable), [`json`] (strict JSON),
//! [`words`] (command strings), [`fields`] (projections), [`schemas`].
//! *Process*: [`program`] (start and exit), [`options`], [`context`], [`input`], [`filter`], [`jobs`], [`output`], [`signals`], [`clock`],
//! [`home`], [`config`], [`confirm`], [`request`], [`part`] (programs that run programs), [`describe`] (what a program says of itself).

mod changelog;
pub mod clock;
pub mod config;
pub mod confirm;
pub mod context;
pub mod describe;
pub mod error;
pub mod fields;
pub mod filter;
pub mod home;
pub mod input;
pub mod jobs;
pub mod json;
pub mod options;
pub mod output;
pub mod part;
pub mod program;
pub mod record;
pub mod request;
pub mod schemas;
pub mod signals;
pub mod text;
pub mod wire;
pub mod words;

pub use context::Context;
pub use error::{Code, Error, Result};
