//! `cp-log bundle`: ledgers, or parts of them, with everything that proves them, in one stream for those who have nothing else.

pub(crate) mod check;
mod check_ledger;
pub(crate) mod format;
pub(crate) mod runs;
mod source;

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use cp_common::output::Progress;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result, clock};
use cp_ledger::format::line::Hash;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use self::runs::Run;
use self::source::{Blobs, Source};
use crate::reading::{Filters, Rank, Select, by_ledger, is_ledger, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "bundle",
    class: Class::Query,
    output: "bundled",
    also: &[format::BUNDLE, format::LEDGER, format::LINE, format::BLOB, format::SUMMARY],
    examples: &["{} append hello && {} bundle -o b.jsonl"],
    ..VerbDoc::EMPTY
};

/// Put ledgers and what proves them into one stream
///
/// With --run or --session and no FILE, the ledgers of that run or session are taken whole; with FILE, only the lines of it. A part of a
/// ledger has a proof for each line. What was redacted stays redacted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Not before this time: RFC 3339, a date, today, yesterday, or a span ago, such as 30m, 2h, 7d, 1w
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Write the bundle to this new file, and answer with its counts (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Ledgers or directories of them (default: the run's, the session's, else all of home's)
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// A bundle that was written.
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

impl Bundled {
    pub(crate) fn new(file: String, closing: format::Closing) -> Self {
        let format::Closing { ledgers, lines, blobs, sha256, .. } = closing;
        Self { file, ledgers, lines, blobs, sha256 }
    }
}

impl Reply for Bundled {
    fn text(&self) -> String {
        format!("{}: {} ledgers, {} lines, {} blobs, {}", self.file, self.ledgers, self.lines, self.blobs, self.sha256)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let plan = Plan::new(args, context)?;
    let mut out = Output::new(args.output.as_deref(), context)?;
    let closing = plan.write(&mut |line| out.write(line))?;
    match out.finish()? {
        None => Ok(()),
        Some(file) => context.out.answer(&Bundled::new(file, closing)),
    }
}

/// What goes into a bundle.
pub(crate) struct Plan {
    head: format::Head,
    ledgers: Vec<Rank>,
    own: Select,
    /// The selection from ledgers that the run shares with others.
    shared: Option<Select>,
}

impl Plan {
    /// Finds the ledgers. An operand that is not a ledger is an error before anything is written.
    pub(crate) fn new(args: &Args, context: &Context) -> Result<Self> {
        let (filters, options) = (Filters::since(args.since.clone()), &context.options);
        // A run or a session that chose the files is not chosen again among their lines.
        let (run, own) = match (&options.run, args.files.is_empty()) {
            (Some(run), true) => (Some(Run::find(run, context)?), Select::new(&filters, None, None)?),
            (None, true) => (None, Select::new(&filters, None, None)?),
            (run, false) => (None, Select::new(&filters, options.session.as_deref(), run.as_deref())?),
        };
        let shared = run.as_ref().map(|run| Select::new(&filters, None, Some(&run.name))).transpose()?;
        let files = run.as_ref().map_or(&args.files, |run| &run.ledgers);
        let mut ledgers = Vec::new();
        for (rank, targets) in by_ledger(to_read(files, context)?) {
            let mut has_ledger = false;
            for target in &targets {
                has_ledger |= is_ledger(target)?;
            }
            if has_ledger {
                ledgers.push(rank);
            }
        }
        let (what, why) = ("secrets".to_owned(), "they were taken out before the lines were written".to_owned());
        let head = format::Head {
            version: format::VERSION,
            made_at: clock::now(),
            selection: format::Selection {
                files: args.files.iter().map(|file| file.display().to_string()).collect(),
                run: context.options.run.clone(),
                session: context.session(),
                since: args.since.clone(),
            },
            left_out: vec![format::LeftOut { what, why }],
        };
        Ok(Self { head, ledgers, own, shared })
    }

    /// Writes the records, each with its line feed. The closing one comes back, too.
    pub(crate) fn write(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<format::Closing> {
        let (started, mut hash) = (Instant::now(), Sha256::new());
        let mut out = |line: &[u8]| {
            hash.update(line);
            each(line)
        };
        out(&format::open(format::BUNDLE, &self.head)?)?;
        let (mut count, mut skipped, mut lines, mut blob_count) = (0, 0, 0, 0);
        for rank in &self.ledgers {
            let select = self.shared.as_ref().filter(|_| rank.operand > 0).unwrap_or(&self.own);
            let mut source = Source::read(&rank.ledger, select)?;
            if source.is_empty() {
                skipped += 1;
                continue;
            }
            count += 1;
            let ledger = source.head()?;
            lines += ledger.lines;
            out(&format::open(format::LEDGER, &ledger)?)?;
            let mut blobs = Blobs::of(&rank.ledger);
            source.lines(&mut |line| {
                out(&format::open(format::LINE, line)?)?;
                blobs.of_line(line.raw.as_bytes(), &mut |blob| out(&format::open(format::BLOB, blob)?))
            })?;
            blob_count += blobs.count;
        }
        if count == 0 {
            return Err(Error::not_found("no ledger has a matching line")
                .with("ledgers", skipped)
                .hint("leave out --since, --run and --session, or name the ledgers"));
        }
        let closing = format::Closing {
            total: count + skipped,
            succeeded: count,
            failed: 0,
            skipped,
            ledgers: count,
            lines,
            blobs: blob_count,
            sha256: Hash::from_raw(&hash.finalize().into()).to_string(),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        each(&format::closing(&closing)?)?;
        Ok(closing)
    }
}

/// The bundle under way.
pub(crate) struct Output<'a> {
    lines: u64,
    progress: Progress,
    to: To<'a>,
}

enum To<'a> {
    Stream(&'a mut Context),
    File(BufWriter<NamedTempFile>, PathBuf),
}

impl<'a> Output<'a> {
    pub(crate) fn new(file: Option<&Path>, context: &'a mut Context) -> Result<Self> {
        let progress = context.out.progress();
        let to = match file {
            None => {
                context.out.streaming()?;
                To::Stream(context)
            }
            Some(file) => {
                let file = std::path::absolute(file)?;
                context.home.check_writable(&file)?;
                if file.symlink_metadata().is_ok() {
                    return Err(there(&file));
                }
                let directory = file.parent().unwrap_or(Path::new("/"));
                let unfinished = NamedTempFile::new_in(directory)
                    .map_err(|e| Error::io("cannot make the bundle", e).in_file(&file))?;
                To::File(BufWriter::new(unfinished), file)
            }
        };
        Ok(Self { lines: 0, progress, to })
    }

    /// Writes a line, line feed included.
    pub(crate) fn write(&mut self, line: &[u8]) -> Result<()> {
        self.lines += 1;
        self.progress.report(|| format!("{} lines", self.lines));
        match &mut self.to {
            To::Stream(context) => context.out.pass(line.strip_suffix(b"\n").unwrap_or(line)),
            To::File(file, path) => {
                file.write_all(line).map_err(|e| Error::io("cannot write the bundle", e).in_file(path).fatal())
            }
        }
    }

    /// Makes sure of what was written. The file, if it is one.
    pub(crate) fn finish(self) -> Result<Option<String>> {
        match self.to {
            To::Stream(context) => {
                context.out.ended_with(0);
                Ok(None)
            }
            To::File(file, path) => {
                let failed = |e: std::io::Error| Error::io("cannot write the bundle", e).in_file(&path).fatal();
                let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist_noclobber(&path).map_err(|e| match e.error.kind() {
                    std::io::ErrorKind::AlreadyExists => there(&path),
                    _ => failed(e.error),
                })?;
                Ok(Some(path.display().to_string()))
            }
        }
    }
}

fn there(path: &Path) -> Error {
    Error::new(Code::Conflict, "the file exists already").in_file(path).hint("name another file, or remove this one")
}
