//! What other programs run later, and the directory that outlasts a command.

mod find;
mod ignored;
mod names;
pub(crate) mod session_tmp;

pub(crate) use self::find::{Guarded, Guards, may_matter};
pub(crate) use self::ignored::is_ignored;
pub(crate) use self::names::{Within, is_guarded, is_guarded_by_link};
