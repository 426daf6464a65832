//! What the verbs that read ledgers share: which files and which lines are meant, and how entries are printed.

mod files;
mod foreign;
mod group;
mod jq;
mod merge;
mod printer;
mod reader;
mod select;

pub(crate) use self::files::{Rank, Target, by_ledger, refuse_waiting_input, to_read, without_mark};
pub(crate) use self::foreign::entry_of;
pub(crate) use self::group::Group;
pub(crate) use self::merge::{Merge, Place};
pub(crate) use self::printer::Printer;
pub(crate) use self::reader::{Direction, Reader, Step, View, count_lines};
pub(crate) use self::select::{Filters, Select};

use std::ops::ControlFlow;

use cp_common::{Error, Result};

/// Calls `each` with every matching entry, file after file, and `failed` with what cannot be read: the rest is.
pub(crate) fn each_entry(
    targets: &[Target],
    select: &Select,
    each: &mut dyn FnMut(&View<'_>) -> Result<()>,
    failed: &mut dyn FnMut(&Target, Error) -> Result<()>,
) -> Result<()> {
    for target in targets {
        let mut step = |step: Step<'_>| {
            if let Step::Entry(view) = step {
                each(&view)?;
            }
            Ok(ControlFlow::Continue(()))
        };
        let outcome = Reader::open(target, Direction::Forward).and_then(|mut reader| reader.each(select, &mut step));
        match outcome {
            Ok(_) => {}
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => failed(target, e)?,
        }
    }
    Ok(())
}
