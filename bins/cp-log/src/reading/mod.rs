//! The ledgers and files that the reading verbs take: which files and lines are meant, in which order, and how entries
//! are printed.

mod files;
mod merge;
mod printer;
mod reader;
mod select;
mod unpacked;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use cp_common::Context;
use cp_common::output::Severity;
use cp_ledger::proof::leaves::head_of;
use cp_ledger::read::source::is_stdin;

pub(crate) use self::files::{
    Group, Rank, Target, await_input, check_run, ledger_of_run, ledgers, no_ledger, refuse_waiting_input, subject,
    to_prove, to_read, without_mark,
};
pub(crate) use self::merge::{Head, Merge, Place};
pub(crate) use self::printer::Printer;
pub(crate) use self::reader::{Direction, Reader, Step, View, is_ledger_or_empty, not_a_ledger, step};
pub(crate) use self::select::{Filters, Select};
pub(crate) use self::unpacked::{Part, Start, line_of};

/// The name of a file's ledger and the number of its first line, which are equal in copies.
pub(crate) type Beginning = (String, u64);

/// Looks up how each file begins, and names the ledgers that are copies of others. What can be read only once is left
/// out, and what cannot be read is reported where it is read.
pub(crate) fn beginnings(groups: &[Group], context: &mut Context) -> HashMap<PathBuf, Beginning> {
    let (mut found, mut seen) = (HashMap::new(), HashMap::<Beginning, &OsString>::new());
    for Group { rank: Rank { ledger, .. }, files, .. } in groups {
        let (mut named, mut is_said) = (None, false);
        for target in files.iter().filter(|target| !is_stdin(&target.path) && target.path.is_file()) {
            let Ok(Some((first, origin))) = head_of(&target.path) else { continue };
            // Only the first file of a ledger need say it.
            named = named.or(origin);
            let Some(origin) = named.clone() else { continue };
            let other = *seen.entry((origin.clone(), first)).or_insert(ledger);
            if other != ledger && !is_said {
                let (other, one) = (other.display(), ledger.display());
                let message = format!("{other} and {one} have the same origin {origin}: one is a copy of the other");
                context.out.notice("origin_twice", Severity::Warning, message);
                is_said = true;
            }
            found.insert(target.path.clone(), (origin, first));
        }
    }
    found
}
