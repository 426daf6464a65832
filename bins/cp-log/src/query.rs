//! `cp-log query`: print the lines that match, as the bytes that were written.

use std::path::PathBuf;

use cp_common::context::options::{Pages, QueryOptions};
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};

use crate::reading::{Direction, Filters, Head, Merge, Place, Printer, Select, beginnings, check_run, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &[
        "{} query --event deploy --limit 1",
        "{} query --fields seq,event",
        "{} query --event exec.refused --since today --reverse --limit 5",
    ],
    sort: Some("time; of one ledger seq"),
    ..VerbDoc::new("query", Class::Query, "entry")
};

/// Print the lines that match, of all ledgers in the order of time
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Newest first, over all ledgers
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    query: QueryOptions,
    /// Ledgers, bundles, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files: Vec<_> = args.files.iter().map(|file| file.to_string_lossy()).collect();
    let request =
        (files, &args.filters, args.reverse, context.session(), &context.options.run, &context.options.ledger);
    let pages = Pages::<Place>::of("cp-log query", &request, &args.query)?;
    let select = Select::over(&args.filters, &args.files, context)?;
    let mut printer = Printer::new(args.query.limit);
    let groups = to_read(&args.files, context)?;
    if groups.len() > 1 {
        beginnings(&groups, context);
    }
    context.out.streaming()?;
    let direction = if args.reverse { Direction::Backward } else { Direction::Forward };
    let mut merge = Merge::new(groups, &select, direction, pages.after.as_ref(), context)?;
    let (mut before, mut last) = (None::<Head>, pages.after.clone());
    while let Some(head) = merge.next(before.as_ref(), context)? {
        if let Some(view) = head.view()
            && !printer.print(merge.target(&head), &view, context)?
        {
            break;
        }
        last = Some(merge.place(&head));
        before = Some(head);
    }
    if printer.is_empty() && pages.after.is_none() {
        check_run(context)?;
    }
    let last = last.as_ref().filter(|_| printer.has_more);
    let next_cursor = last.map(|last| pages.cursor(last)).transpose()?;
    printer.close(next_cursor, context);
    Ok(())
}
