//! `cp-log bundle`: ledgers, or parts of them, with everything that proves them, in one stream for those who have nothing else.

mod blobs;
pub(crate) mod format;
mod levels;
mod output;
mod source;

use std::path::PathBuf;
use std::time::Instant;

use cp_common::home::TIERS;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result, clock};
use serde::Serialize;

use self::blobs::Blobs;
pub(crate) use self::blobs::referenced;
use self::output::Output;
use self::source::Source;
use crate::audit::is_ledger;
use crate::reading::{Filters, Select, by_ledger, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "bundle",
    class: Class::Query,
    output: "bundled",
    examples: &["{} append hello && {} bundle -o b.jsonl"],
    ..VerbDoc::EMPTY
};

/// Put ledgers and what proves them into one stream
///
/// With --run or --session and no FILE, that run's or session's own ledgers are taken whole; with FILE, only the lines of it. A part of
/// a ledger has a proof for each line. Sealed values are never in a bundle, and what was redacted stays redacted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Not before this time: RFC 3339, a date, today, yesterday, or so long ago as 30m, 2h, 7d, 1w
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Write the bundle to this new file, and answer with its counts (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Ledgers or directories of them (default: the run's, the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// What was written.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bundled {
    /// The file.
    file: String,
    /// How many ledgers it has lines of.
    ledgers: u64,
    /// How many lines.
    lines: u64,
    /// How many large values.
    blobs: u64,
    /// The hash of everything before the closing line.
    sha256: String,
}

impl Reply for Bundled {
    fn text(&self) -> String {
        format!("{}: {} ledgers, {} lines, {} blobs, {}", self.file, self.ledgers, self.lines, self.blobs, self.sha256)
    }
}

/// The files that were asked for: the operands, else the run's own ledger.
fn files(args: &Args, context: &Context) -> Result<Vec<PathBuf>> {
    match &context.options.run {
        Some(run) if args.files.is_empty() => {
            let ledger =
                |tier: &&str| Some(context.home.runs(tier).join(format!("{run}.jsonl"))).filter(|path| path.is_file());
            let named = Some(PathBuf::from(run)).filter(|_| run.contains('/'));
            let found = named.or_else(|| TIERS.iter().find_map(ledger));
            let missing = || Error::not_found(format!("no run `{run}`")).hint("cp-toolloop runs lists them");
            Ok(vec![found.ok_or_else(missing)?])
        }
        _ => Ok(args.files.clone()),
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let started = Instant::now();
    let files = files(args, context)?;
    // A run or a session that chose the files is not chosen again among their lines.
    let (session, run) = if args.files.is_empty() {
        (None, None)
    } else {
        (context.options.session.as_deref(), context.options.run.as_deref())
    };
    let select = Select::new(&Filters::since(args.since.clone()), session, run)?;
    // What was named and is no ledger is an error before anything is written.
    let mut ledgers = Vec::new();
    for (rank, targets) in by_ledger(to_read(&files, context)?) {
        let mut has_ledger = false;
        for target in &targets {
            has_ledger |= is_ledger(target)?;
        }
        if has_ledger {
            ledgers.push(rank);
        }
    }
    let head = format::Head {
        version: format::VERSION,
        made_at: clock::now(),
        selection: format::Selection {
            files: args.files.iter().map(|file| file.display().to_string()).collect(),
            run: context.options.run.clone(),
            session: context.session(),
            since: args.since.clone(),
        },
        left_out: vec![
            left_out("sealed values", "a bundle can be handed on, and they could then not be forgotten"),
            left_out("secrets", "they were taken out before the lines were written"),
        ],
    };
    let mut out = Output::new(args.output.as_deref(), context)?;
    out.write(&format::open(format::BUNDLE, &head)?)?;
    let (mut count, mut skipped, mut lines, mut blob_count) = (0, 0, 0, 0);
    for rank in ledgers {
        let mut source = Source::read(&rank.ledger, &select)?;
        if source.is_empty() {
            skipped += 1;
            continue;
        }
        count += 1;
        let ledger = source.head()?;
        lines += ledger.lines;
        out.write(&format::open(format::LEDGER, &ledger)?)?;
        let mut blobs = Blobs::of(&rank.ledger);
        source.lines(&mut |line| {
            out.write(&format::open(format::LINE, line)?)?;
            blobs.of_line(line.raw.as_bytes(), &mut |blob| out.write(&format::open(format::BLOB, blob)?))
        })?;
        blob_count += blobs.count;
    }
    if count == 0 {
        return Err(Error::not_found("no ledger has a line that was asked for")
            .with("ledgers", skipped)
            .hint("leave out --since, --run and --session, or name the ledgers"));
    }
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let closing = format::Closing {
        total: count + skipped,
        succeeded: count,
        failed: 0,
        skipped,
        ledgers: count,
        lines,
        blobs: blob_count,
        sha256: out.hash().to_string(),
        duration_ms,
    };
    out.write(&format::closing(&closing)?)?;
    match out.finish()? {
        None => Ok(()),
        Some(file) => {
            let format::Closing { ledgers, lines, blobs, sha256, .. } = closing;
            context.out.answer(&Bundled { file, ledgers, lines, blobs, sha256 })
        }
    }
}

fn left_out(what: &str, why: &str) -> format::LeftOut {
    format::LeftOut { what: what.to_owned(), why: why.to_owned() }
}
