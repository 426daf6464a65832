//! The life of a program: what it is, how it starts and leaves, what it says of itself, and the gates of its writes.

mod arguments;
pub mod confirm;
pub mod describe;
pub mod idempotency;
mod identity;
mod not_text;
mod standard;
mod start;

pub use self::identity::{
    Audit, AuditSink, Check, Class, CredentialSource, Credentials, Finished, Program, Status, VERSION, VerbDoc,
};
pub use self::start::main;
