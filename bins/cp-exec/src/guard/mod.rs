//! Guards against files that other programs execute later: guarded names ([`names`]), the search for them ([`find`]),
//! the comparison after a run ([`after`]), the quarantine ([`quarantine`]), and the cleanup after killed runs
//! ([`settle`]). Also the `/tmp` directory of a session.

mod after;
mod find;
mod names;
mod quarantine;
pub(crate) mod session_tmp;
pub(crate) mod settle;

pub(crate) use self::after::finish;
pub(crate) use self::find::{Guarded, Guards, may_matter};
pub(crate) use self::names::{MatchState, is_guarded, is_guarded_by_link};
