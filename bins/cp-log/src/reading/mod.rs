//! The ledgers and files that the reading verbs take: which files and lines are meant, in which order, and how entries
//! are printed.

mod files;
mod merge;
mod printer;
mod reader;
mod runs;
mod select;
mod summary;
mod unpacked;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use cp_common::output::Severity;
use cp_common::{Context, Error, Result};
use cp_ledger::proof::leaves::head_of;
use cp_ledger::read::source::is_stdin;

pub(crate) use self::files::{
    Group, Rank, Target, await_input, by_ledger, ledgers, refuse_waiting_input, to_prove, to_read, without_mark,
};
pub(crate) use self::merge::{Head, Merge, Place};
pub(crate) use self::printer::Printer;
pub(crate) use self::reader::{Direction, Reader, Step, View, is_ledger_or_empty, step};
pub(crate) use self::runs::{check_run, ledger_of_run};
pub(crate) use self::select::{Filters, Select};
pub(crate) use self::unpacked::{Part, Start, line_of};

/// Calls `each` with every matching entry, file after file, and adds a failure for each damaged line and for each file
/// that cannot be read. An entry that copies of a ledger have is passed once. Returns how many files were read to their
/// ends.
pub(crate) fn each_entry(
    targets: &[Target],
    origins: &mut Origins,
    select: &Select,
    each: &mut dyn FnMut(&View<'_>) -> Result<()>,
    failures: &mut Vec<Error>,
) -> Result<u64> {
    let mut files = 0;
    for target in targets {
        let beginning = origins.files.get(&target.path);
        let from = beginning.and_then(|beginning| origins.read.get(beginning)).copied().unwrap_or_default();
        let (mut to, mut repeated) = (from, 0);
        let mut step = |step: Step<'_>| {
            match step {
                Step::Entry(view) if view.seq < from => repeated += 1,
                Step::Entry(view) => {
                    to = view.seq.saturating_add(1);
                    each(&view)?;
                }
                Step::Fault(error) => failures.push(error),
                Step::Wait => {}
            }
            Ok(ControlFlow::Continue(()))
        };
        let outcome =
            Reader::open(target, Direction::Forward, None).and_then(|mut reader| reader.each(select, &mut step));
        origins.repeated += repeated;
        if let Some(beginning) = beginning {
            origins.read.insert(beginning.clone(), to);
        }
        match outcome {
            Ok(_) => files += 1,
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => failures.push(e),
        }
    }
    Ok(files)
}

/// The most copies that are reported one by one.
const NAMED: usize = 100;

/// The name of a file's ledger and the number of its first line, which are equal in copies.
pub(super) type Beginning = (String, u64);

#[derive(Default)]
pub(crate) struct Origins {
    pub(super) files: HashMap<PathBuf, Beginning>,
    /// The line up to which a file was read that begins so.
    pub(super) read: HashMap<Beginning, u64>,
    /// How many entries were left out because they were read in another file.
    pub(crate) repeated: u64,
}

impl Origins {
    /// Looks up the names. What can be read only once has none, and what cannot be read is reported where it is read.
    pub(crate) fn of(targets: &[Target], context: &mut Context) -> Self {
        let (mut this, mut named) = (Self::default(), HashMap::<Rank, String>::new());
        let (mut seen, mut said) = (HashMap::<Beginning, Rank>::new(), HashSet::new());
        for target in targets.iter().filter(|target| !is_stdin(&target.path) && target.path.is_file()) {
            let Ok(Some((first, origin))) = head_of(&target.path) else { continue };
            let rank = target.rank();
            // Only the first file of a ledger need say it.
            let Some(origin) = named.get(&rank).cloned().or(origin) else { continue };
            let other = &seen.entry((origin.clone(), first)).or_insert_with(|| rank.clone()).ledger;
            if *other != rank.ledger && said.len() < NAMED && said.insert(rank.ledger.clone()) {
                let (other, one) = (other.display(), rank.ledger.display());
                let message = format!("{other} and {one} have the same origin {origin}: one is a copy of the other");
                context.out.notice("origin_twice", Severity::Warning, message);
            }
            this.files.insert(target.path.clone(), (origin.clone(), first));
            named.insert(rank, origin);
        }
        this
    }
}
