//! What other programs run later: the names of it ([`names`]), the search for it ([`find`]), what a run made of it ([`after`]), where that
//! is kept ([`quarantine`]), and runs that were killed before anybody looked ([`settle`]). And the directory that outlasts a command.

mod after;
mod find;
mod ignored;
mod names;
mod quarantine;
pub(crate) mod session_tmp;
pub(crate) mod settle;

pub(crate) use self::after::finish;
pub(crate) use self::find::{Guarded, Guards, may_matter};
pub(crate) use self::names::{Within, is_guarded, is_guarded_by_link};
