//! `cp-log query`: print the lines that match, as the bytes that were written.

use std::path::{Path, PathBuf};

use cp_common::context::options::QueryOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result, json};
use cp_ledger::format::line::Line;
use cp_ledger::read::{Backward, End, Lines, Raw, backward, lines};

use crate::reading::{Filters, Printer, Select, Target, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "query",
    class: Class::Query,
    output: "entry",
    examples: &["{} query --event deploy --limit 1", "{} query --fields seq,event"],
    sort: Some("file, then seq"),
    ..VerbDoc::EMPTY
};

/// Print the lines that match
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Newest first
    #[arg(long)]
    reverse: bool,
    /// In the order of time over all files, then of files
    #[arg(long, conflicts_with_all = ["reverse", "cursor"])]
    merge: bool,
    /// Run this jq program on each line and print bare values
    #[arg(long, value_name = "FILTER", conflicts_with = "fields")]
    jq: Option<String>,
    #[command(flatten)]
    query: QueryOptions,
    /// Ledgers, or directories of them (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut targets = to_read(&args.files, context)?;
    if args.reverse {
        targets.reverse();
    }
    let cursor = args.query.cursor.as_deref().map(Cursor::parse).transpose()?;
    if let Some(cursor) = &cursor {
        let at = targets.iter().position(|target| target.path == cursor.path);
        let at =
            at.ok_or_else(|| Error::usage(format!("--cursor: {} is not among the files", cursor.path.display())))?;
        targets.drain(..at);
    }
    let select = Select::over(&args.filters, &args.files, context)?;
    let mut printer = Printer::new(&args.query.fields, args.query.limit)?.through(args.jq.as_deref())?;
    if !printer.is_bare() {
        context.out.streaming()?;
    }
    if args.merge {
        merge(&targets, &select, &mut printer, context)?;
        return printer.finish(context);
    }
    for target in &targets {
        let after = cursor.as_ref().filter(|cursor| cursor.path == target.path).map(|cursor| cursor.seq);
        let outcome = read(target, &select, args.reverse, after, &mut printer, context);
        match outcome {
            Ok(()) => {}
            Err(e)
                if e.is_fatal()
                    || !matches!(e.code(), Code::NotFound | Code::Forbidden | Code::Io | Code::Validation) =>
            {
                return Err(e);
            }
            Err(e) => context.out.item_failed(e)?,
        }
        if printer.has_more() {
            break;
        }
    }
    printer.finish(context)
}

/// Prints the lines of all files in the order of their times; of equal times the earlier file's comes first.
fn merge(targets: &[Target], select: &Select, printer: &mut Printer<'_>, context: &mut Context) -> Result<()> {
    let mut heads = Vec::new();
    for target in targets {
        let opened = lines(&target.path).and_then(|reader| Head::new(target, reader).next(select));
        match opened {
            Ok(head) => heads.extend(head),
            Err(e) => context.out.item_failed(e)?,
        }
    }
    while let Some(first) = (0..heads.len()).min_by(|a, b| heads[*a].ts().cmp(heads[*b].ts())) {
        let mut head = heads.remove(first);
        if let Some(line) = Line::parse(&head.line)
            && !printer.print(&head.target.path, &line, context)?
        {
            return Ok(());
        }
        head.line.clear();
        if let Some(head) = head.next(select)? {
            heads.insert(first, head);
        }
    }
    Ok(())
}

/// The next line of one of the files that are merged.
struct Head<'a> {
    target: &'a Target,
    reader: Lines,
    line: Vec<u8>,
}

impl<'a> Head<'a> {
    fn new(target: &'a Target, reader: Lines) -> Self {
        Self { target, reader, line: Vec::new() }
    }

    fn ts(&self) -> &str {
        Line::parse(&self.line).map_or("", |line| line.ts())
    }

    /// The same file, at its next matching line; `None` at its end.
    fn next(mut self, select: &Select) -> Result<Option<Self>> {
        loop {
            let Some(raw) = select.next(&mut self.reader)? else { return Ok(None) };
            let wanted = raw.stored().filter(|line| select.matches(line) && json::check(line.bytes()).is_ok());
            if let Some(line) = wanted {
                self.line.extend_from_slice(line.bytes());
                return Ok(Some(self));
            }
        }
    }
}

fn read(
    target: &Target,
    select: &Select,
    reverse: bool,
    after: Option<u64>,
    printer: &mut Printer<'_>,
    context: &mut Context,
) -> Result<()> {
    let path = &target.path;
    let mut reader = if reverse { Reader::Backward(backward(path)?) } else { Reader::Forward(lines(path)?) };
    while let Some(raw) = reader.next(select)? {
        if raw.end == End::File {
            // Being written, or cut off: not a line yet.
            continue;
        }
        let Some(line) = raw.stored() else {
            if target.named || raw.offset > 0 {
                damaged(path, &raw, "not a line of a ledger", context)?;
                continue;
            }
            // A file of another kind among those of a directory.
            return Ok(());
        };
        let passed = after.is_some_and(|after| if reverse { line.seq() >= after } else { line.seq() <= after });
        if passed || !select.matches(&line) {
            continue;
        }
        if !json::is_normal(line.bytes()) && json::check(line.bytes()).is_err() {
            damaged(path, &raw, "not JSON", context)?;
            continue;
        }
        if !printer.print(path, &line, context)? {
            break;
        }
    }
    Ok(())
}

fn damaged(path: &Path, raw: &Raw<'_>, what: &str, context: &mut Context) -> Result<()> {
    let error = Error::new(Code::Integrity, format!("byte {}: {what}", raw.offset));
    context.out.item_failed(error.with("offset", raw.offset).in_file(path).hint("run cp-log verify for details"))
}

enum Reader {
    Forward(Lines),
    Backward(Backward),
}

impl Reader {
    fn next(&mut self, select: &Select) -> Result<Option<Raw<'_>>> {
        match self {
            Self::Forward(lines) => select.next(lines),
            Self::Backward(lines) => lines.next(),
        }
    }
}

/// Where a page ended: `file:seq` of the last line printed.
struct Cursor {
    path: PathBuf,
    seq: u64,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self> {
        let parts = text.rsplit_once(':').and_then(|(path, seq)| Some((path, seq.parse().ok()?)));
        let (path, seq) = parts.ok_or_else(|| Error::usage("--cursor must be the next_cursor of an earlier query"))?;
        Ok(Self { path: PathBuf::from(path), seq })
    }
}
