//! What the verbs that read ledgers share: which files and which lines are meant, and how entries are printed.

mod files;
mod foreign;
mod group;
mod jq;
mod merge;
mod origins;
mod printer;
mod reader;
mod select;

pub(crate) use self::files::{Rank, Target, await_input, by_ledger, refuse_waiting_input, to_read, without_mark};
pub(crate) use self::foreign::entry_of;
pub(crate) use self::group::Group;
pub(crate) use self::merge::{Merge, Place};
pub(crate) use self::origins::Origins;
pub(crate) use self::printer::Printer;
pub(crate) use self::reader::{Direction, Reader, Step, View, count_lines};
pub(crate) use self::select::{Filters, Select};

use std::ops::ControlFlow;

use cp_common::{Error, Result};

/// Calls `each` with every matching entry and the name of its ledger, file after file, and `failed` with what cannot be read: the rest is.
/// An entry that copies of a ledger have is passed once.
pub(crate) fn each_entry(
    targets: &[Target],
    origins: &mut Origins,
    select: &Select,
    each: &mut dyn FnMut(&View<'_>, Option<&str>) -> Result<()>,
    failed: &mut dyn FnMut(&Target, Error) -> Result<()>,
) -> Result<()> {
    for target in targets {
        let beginning = origins.files.get(&target.path);
        let from = beginning.and_then(|beginning| origins.read.get(beginning)).copied().unwrap_or_default();
        let (mut to, mut repeated) = (from, 0);
        let mut step = |step: Step<'_>| {
            match step {
                Step::Entry(view) if view.seq < from => repeated += 1,
                Step::Entry(view) => {
                    to = view.seq.saturating_add(1);
                    each(&view, beginning.map(|(origin, _)| origin.as_str()))?;
                }
                Step::Fault(_) | Step::Wait => {}
            }
            Ok(ControlFlow::Continue(()))
        };
        let outcome = Reader::open(target, Direction::Forward).and_then(|mut reader| reader.each(select, &mut step));
        origins.repeated += repeated;
        if let Some(beginning) = beginning {
            origins.read.insert(beginning.clone(), to);
        }
        match outcome {
            Ok(_) => {}
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => failed(target, e)?,
        }
    }
    Ok(())
}
