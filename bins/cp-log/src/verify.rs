//! `cp-log verify`: prove ledgers, and name every line that is not what was written.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind as Record;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::dialect;
use cp_ledger::proof::leaves::walk;
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::tree::Tree;
use cp_ledger::proof::verifier::{self, Fault, Kind, Options, Report, State};
use cp_ledger::read::segments::{self, is_segment_of, stem_of};
use cp_ledger::read::source::is_stdin;
use serde::Serialize;

use crate::reading::{Target, to_read};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "verify",
    class: Class::Query,
    output: "verified",
    also: &["summary"],
    examples: &["{} append hello && {} verify"],
    ..VerbDoc::EMPTY
};

/// Prove that ledgers are what was written
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out the check that each line is JSON in normal form
    #[arg(long)]
    no_json: bool,
    /// The ledger is complete: a partial last line is a fault
    #[arg(long)]
    closed: bool,
    /// A checkpoint that the ledger must go on from (default: the one beside it, if there is one)
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// The public key that must have signed the checkpoint
    #[arg(long, value_name = "KEY")]
    key: Option<PathBuf>,
    /// The format of the ledgers
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Dialect::Cp, conflicts_with_all = ["checkpoint", "key"])]
    dialect: Dialect,
    /// How many threads share the work (default: one for each processor)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Ledgers, archives of them, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A format of ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Dialect {
    /// That of cp-ledger(5)
    Cp,
    /// The control plane's, chained by `entry_hash` and `previous_hash`
    ControlPlane,
}

/// What was found in one file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verified {
    /// The file.
    file: String,
    /// Whether nothing is wrong.
    intact: bool,
    /// How many lines there are.
    lines: u64,
    /// How many bytes there are.
    bytes: u64,
    /// The number of the first line.
    first_seq: Option<u64>,
    /// The number of the last line.
    last_seq: Option<u64>,
    /// The hash of the last line, which stands for all lines before it.
    hash: Option<String>,
    /// How the file ends: complete, or `in_flight` with bytes of a line that is not whole.
    tail: &'static str,
    /// How often a writer's clock was behind that of the line before. A time is a claim, so this is no fault.
    clock_backwards: u64,
    /// How many faults there are.
    fault_count: u64,
    /// The first hundred of them.
    faults: Vec<Fault>,
    /// Whether all lines are JSON that claims no place in a chain.
    #[serde(skip)]
    is_unchained: bool,
}

impl Verified {
    fn new(path: &Path, report: &Report) -> Self {
        Self {
            file: path.display().to_string(),
            intact: report.fault_count == 0,
            lines: report.lines,
            bytes: report.bytes,
            first_seq: report.first,
            last_seq: report.last.map(|(seq, _)| seq),
            hash: report.last.map(|(_, hash)| hash.to_string()),
            tail: if report.in_flight { "in_flight" } else { "complete" },
            clock_backwards: report.clock_backwards,
            fault_count: report.fault_count,
            faults: report.faults.clone(),
            is_unchained: report.lines > 0 && report.unchained == report.lines,
        }
    }

    /// The error that stands for the faults, with the message of the first.
    fn error(&self) -> Option<Error> {
        let first = self.faults.first()?;
        if self.is_unchained {
            let message =
                format!("not a ledger: its {} lines are JSON without hashes, so nothing proves them", self.lines);
            return Some(
                Error::validation(message)
                    .in_file(Path::new(&self.file))
                    .with("lines", self.lines)
                    .hint("cp-log query, follow and stats read such files"),
            );
        }
        let seq = first.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        let more = if self.fault_count > 1 { format!("; {} faults in all", self.fault_count) } else { String::new() };
        let message = format!("line {} at byte {}{seq}: {}{more}", first.line, first.offset, first.message);
        let mut error = Error::new(Code::Integrity, message).in_file(Path::new(&self.file));
        if let Ok(serde_json::Value::Object(members)) = serde_json::to_value(self) {
            for (name, value) in members {
                error = error.with(&name, value);
            }
        }
        for (name, value) in [("line", first.line), ("offset", first.offset)] {
            error = error.with(name, value);
        }
        let kind = serde_json::to_value(first.kind).unwrap_or_default();
        Some(
            error
                .with("kind", kind)
                .with("seq", first.seq)
                .hint("look at the line with sed -n LINEp; cp-ledger(5) explains each kind"),
        )
    }
}

impl Reply for Verified {
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {} lines, {} bytes, {}", self.file, self.lines, self.bytes, self.tail)];
        lines.extend(self.faults.iter().map(|fault| {
            let kind = serde_json::to_value(fault.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default();
            let seq = fault.seq.map_or("-".to_owned(), |seq| seq.to_string());
            format!("  line {} byte {} seq {seq} {kind}: {}", fault.line, fault.offset, fault.message)
        }));
        lines.join("\n")
    }
}

/// What must hold beyond the lines themselves.
struct Requirements {
    dialect: Dialect,
    checkpoint: Option<PathBuf>,
    key: Option<Verifier>,
}

impl Requirements {
    /// What is wrong with a ledger according to its checkpoint.
    fn fault(&self, path: &Path, report: &Report) -> Result<Option<Fault>> {
        // The checkpoint is that of the whole ledger, and compared with its last file.
        let found = if segments::is_closed(path) { None } else { self.deviation(path, report)? };
        Ok(found.map(|(kind, message)| Fault {
            line: report.lines,
            offset: report.bytes,
            seq: report.last.map(|(seq, _)| seq),
            kind,
            message,
        }))
    }

    fn deviation(&self, path: &Path, report: &Report) -> Result<Option<(Kind, String)>> {
        let file = self.checkpoint.clone().unwrap_or_else(|| checkpoint_path(path));
        let Some((note, checkpoint)) = read_checkpoint(&file)? else {
            if self.checkpoint.is_some() {
                return Err(Error::not_found("no such checkpoint").in_file(&file));
            }
            let unsigned = |key: &Verifier| (Kind::Unsigned, format!("no checkpoint is signed by {}", key.name()));
            return Ok(self.key.as_ref().map(unsigned));
        };
        if let Some(fault) = self.key.as_ref().and_then(|key| wrong_signature(&note, key)) {
            return Ok(Some(fault));
        }
        match changed_history(path, &checkpoint) {
            // The damage is reported line by line already.
            Err(e) if e.code() == Code::Integrity && report.fault_count > 0 => Ok(None),
            found => found,
        }
    }
}

fn wrong_signature(note: &Note, key: &Verifier) -> Option<(Kind, String)> {
    match note.is_signed_by(key) {
        Some(true) => None,
        Some(false) => Some((Kind::Signature, format!("the signature of {} is wrong", key.name()))),
        None => Some((Kind::Unsigned, format!("the checkpoint is not signed by {}", key.name()))),
    }
}

/// How the lines of a ledger differ from those that a checkpoint covers.
fn changed_history(path: &Path, checkpoint: &Checkpoint) -> Result<Option<(Kind, String)>> {
    let mut tree = Tree::default();
    let walked = walk(path, |leaf| {
        if tree.size() < checkpoint.size {
            tree.push(leaf);
        }
        if tree.size() < checkpoint.size { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(if walked.origin != checkpoint.origin {
        Some((Kind::Fork, format!("the checkpoint is about {}, not {}", checkpoint.origin, walked.origin)))
    } else if tree.size() < checkpoint.size {
        Some((Kind::Rollback, format!("there are {} lines, but {} were signed", tree.size(), checkpoint.size)))
    } else if checkpoint.size > 0 && tree.root() != checkpoint.root {
        Some((Kind::Fork, format!("the first {} lines are not those that were signed", checkpoint.size)))
    } else {
        None
    })
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let targets = to_read(&args.files, context)?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let options =
        Options { json: !args.no_json, closed: args.closed, threads: args.threads.unwrap_or_else(processors).min(64) };
    let key = args.key.as_deref().map(Verifier::load).transpose()?;
    let requirements = Requirements { dialect: args.dialect, checkpoint: args.checkpoint.clone(), key };
    if let [only] = &targets[..]
        && only.named
    {
        let verified = one(only, None, &options, &requirements, context)?.0;
        note_missing(&verified, None, context);
        return match verified.error() {
            None => context.out.answer(&verified),
            Some(error) => context.out.refuse(&verified, error),
        };
    }
    many(&targets, &options, &requirements, context)
}

fn many(targets: &[Target], options: &Options, requirements: &Requirements, context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let (mut first_failure, mut before): (Option<Error>, Option<(&Path, State)>) = (None, None);
    for target in targets {
        let state = before.filter(|(path, _)| follows(&target.path, path)).map(|(_, state)| state);
        let outcome = one(target, state, options, requirements, context);
        let error = match outcome {
            Ok((verified, report)) => {
                note_missing(&verified, state, context);
                before = Some((&target.path, report.end));
                if !target.named && report.intact == 0 && report.lines > 0 {
                    context.out.item_skipped();
                    let message = format!("{} is not a ledger", target.path.display());
                    context.out.notice("not_a_ledger", Severity::Info, message);
                    continue;
                }
                let Some(error) = verified.error() else {
                    context.out.record(Record::Item, &verified)?;
                    context.out.item_succeeded();
                    continue;
                };
                error
            }
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => {
                before = None;
                e
            }
        };
        first_failure.get_or_insert_with(|| Error::new(error.code(), error.message()));
        context.out.item_failed(error)?;
    }
    match first_failure {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Warns of a ledger that begins in the middle: its first segments may be kept elsewhere, or be lost.
fn note_missing(verified: &Verified, before: Option<State>, context: &mut Context) {
    if let (Some(first @ 1..), None) = (verified.first_seq, before) {
        let message = format!("{} begins with line {first}: earlier segments are missing", verified.file);
        context.out.notice("segments_missing", Severity::Warning, message);
    }
}

/// Whether a file goes on where a sealed segment ends.
fn follows(path: &Path, before: &Path) -> bool {
    let stem = |path: &Path| {
        let name = stem_of(path).unwrap_or_default().to_owned();
        match name.rsplit_once('.') {
            Some((stem, _)) if is_segment_of(&format!("{name}.jsonl"), stem) => stem.to_owned(),
            _ => name,
        }
    };
    path.parent() == before.parent() && stem(path) == stem(before)
}

fn one(
    target: &Target,
    before: Option<State>,
    options: &Options,
    requirements: &Requirements,
    context: &Context,
) -> Result<(Verified, Report)> {
    let mut reported = Instant::now();
    let mut progress = |done: u64, size: u64| {
        if reported.elapsed() >= Duration::from_secs(1) {
            reported = Instant::now();
            context.progress(&format!("{}: {}%", target.path.display(), done.saturating_mul(100) / size.max(1)));
        }
    };
    if requirements.dialect == Dialect::ControlPlane {
        let report = dialect::verify(&target.path, options.closed)?;
        return Ok((Verified::new(&target.path, &report), report));
    }
    // Nothing is written to a closed segment any more.
    let options = Options { closed: options.closed || segments::is_closed(&target.path), ..*options };
    let mut report = verifier::verify(&target.path, before, &options, &mut progress)?;
    if is_stdin(&target.path) {
        if requirements.checkpoint.is_some() || requirements.key.is_some() {
            return Err(Error::usage("standard input can be read only once, and a checkpoint needs a second time")
                .hint("name the file instead of -"));
        }
    } else if report.intact > 0
        && let Some(fault) = requirements.fault(&target.path, &report)?
    {
        report.faults.push(fault);
        report.fault_count += 1;
    }
    Ok((Verified::new(&target.path, &report), report))
}
