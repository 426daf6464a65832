//! Programs: identity, start and exit, documentation, and confirmation of writes.

pub mod approval;
mod arguments;
mod command;
pub mod completion;
pub mod confirm;
pub mod describe;
pub mod grant;
pub mod idempotency;
mod identity;
mod start;
pub mod terminal;

pub use self::arguments::{message_of, require_text, usage_error};
pub use self::identity::{Check, Class, CredentialSource, Finished, Input, Program, Status, VERSION, VerbDoc};
pub use self::start::{main, main_for_person, without_home};
