//! `cp-log query`: print the lines that match, as the bytes that were written.

use std::ops::ControlFlow;
use std::path::PathBuf;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};

use crate::reading::{
    Direction, Filters, Merge, Origins, Place, Printer, Rank, Reader, Select, Step, Target, by_ledger, check_run,
    to_read,
};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "query",
    class: Class::Query,
    output: "entry",
    also: &["summary"],
    examples: &[
        "{} query --event deploy --limit 1",
        "{} query --fields seq,event",
        "{} query --event exec.refused --since today --reverse --limit 5",
    ],
    sort: Some("ledger, then seq; with --reverse or --merge time"),
    ..VerbDoc::EMPTY
};

/// Print the lines that match
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Newest first, over all ledgers
    #[arg(long)]
    reverse: bool,
    /// In the order of time over all ledgers; --reverse always is
    #[arg(long)]
    merge: bool,
    #[command(flatten)]
    query: QueryOptions,
    /// Ledgers, bundles, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files: Vec<_> = args.files.iter().map(|file| file.to_string_lossy()).collect();
    let order = (args.reverse, args.merge);
    let request = (files, &args.filters, order, context.session(), &context.options.run, &context.options.ledger);
    let pages = Pages::<Place>::of("cp-log query", &request, &args.query)?;
    let select = Select::over(&args.filters, &args.files, context)?;
    let mut printer = Printer::new(args.query.limit);
    let targets = to_read(&args.files, context)?;
    if targets.len() > 1 {
        Origins::of(&targets, context);
    }
    let ledgers = by_ledger(targets);
    context.out.streaming()?;
    let direction = if args.reverse { Direction::Backward } else { Direction::Forward };
    let last = if args.reverse || args.merge {
        merged(Merge::new(ledgers, &select, direction, pages.after(), context)?, pages.after(), &mut printer, context)?
    } else {
        in_turn(ledgers, &select, pages.after(), &mut printer, context)?
    };
    if printer.is_empty() && pages.after().is_none() {
        check_run(context)?;
    }
    let last = last.as_ref().filter(|_| printer.has_more());
    let next_cursor = last.map(|last| pages.cursor(last)).transpose()?;
    printer.close(next_cursor, context);
    Ok(())
}

/// Prints one ledger after the other. The place of the last entry printed, or where the page began.
fn in_turn(
    ledgers: Vec<(Rank, Vec<Target>)>,
    select: &Select,
    after: Option<&Place>,
    printer: &mut Printer,
    context: &mut Context,
) -> Result<Option<Place>> {
    let begin = after.map(|after| (after.rank(), after.seq));
    let mut last = after.cloned();
    for (rank, files) in ledgers {
        let passed = match &begin {
            Some((begin, _)) if rank < *begin => continue,
            Some((begin, seq)) if rank == *begin => Some(*seq),
            _ => None,
        };
        let mut newest = None;
        for target in files {
            let mut step = |step: Step<'_>| {
                match step {
                    Step::Wait => context.out.flush()?,
                    Step::Fault(e) => context.out.item_failed(e)?,
                    Step::Entry(view) if passed.is_some_and(|passed| view.seq <= passed) => {}
                    Step::Entry(view) => {
                        if !printer.print(&target, &view, context)? {
                            return Ok(ControlFlow::Break(()));
                        }
                        newest = Some(view.seq);
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            let outcome =
                Reader::open(&target, Direction::Forward).and_then(|mut reader| reader.each(select, &mut step));
            match outcome {
                Ok(_) => {}
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => context.out.item_failed(e)?,
            }
            if printer.has_more() {
                break;
            }
        }
        if let Some(seq) = newest {
            last = Some(Place::new(None, &rank, seq));
        }
        if printer.has_more() {
            break;
        }
    }
    Ok(last)
}

/// Prints the entries of all ledgers in the order of their times. The place of the last one printed, or where the page
/// began.
fn merged(
    mut merge: Merge<'_>,
    after: Option<&Place>,
    printer: &mut Printer,
    context: &mut Context,
) -> Result<Option<Place>> {
    let mut last = after.cloned();
    while let Some(head) = merge.next(context)? {
        let Some(view) = head.view() else { continue };
        if !printer.print(&head.target, &view, context)? {
            break;
        }
        let reached = last.as_ref().and_then(|last| last.time.clone());
        let time = reached.map_or_else(|| head.ts.clone(), |reached| merge.further(reached, &head.ts));
        last = Some(Place::new(Some(&time), &head.rank, head.seq));
    }
    Ok(last)
}
