//! `cp-log verify`: prove ledgers, and name every line that is not what was written, the properties that were proved, and
//! those that were not.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind as Record;
use cp_common::wire::{FileName, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::note::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::verifier::{self, Options, Report, State};
use cp_ledger::proof::whole::Whole;
use cp_ledger::proof::{Fault, Kind};
use cp_ledger::read::segments;
use cp_ledger::read::source::is_stdin;
use serde::Serialize;

use crate::reading::{Group, Target, await_input, beginnings, no_ledger, not_a_ledger, to_prove};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["{} append hello && {} verify", "{} append hello && {} bundle -o b && {} verify b"],
    ..VerbDoc::new("verify", Class::Query, "verified")
};

/// Prove that ledgers are what was written
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out the check that each line is JSON in normal form
    #[arg(long)]
    no_json: bool,
    /// The ledger is complete: a partial last line is a fault
    #[arg(long = "complete")]
    closed: bool,
    /// A checkpoint that the ledger must go on from (default: the one beside it, if there is one)
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// A public key; one of those that are given must have signed the checkpoint of each ledger (repeatable)
    #[arg(long = "trust", value_name = "KEY")]
    keys: Vec<PathBuf>,
    /// Ledgers, runs, sessions, bundles, directories, or - (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.files.is_empty() {
        await_input()?;
    }
    let groups = to_prove(&args.files, context)?;
    let required = Required {
        options: Options { json: !args.no_json, closed: args.closed },
        checkpoint: args.checkpoint.clone(),
        keys: args.keys.iter().map(|key| Verifier::load(key)).collect::<Result<_>>()?,
    };
    beginnings(&groups, context);
    if let [group] = &groups[..]
        && let [only] = &group.files[..]
        && only.named
    {
        let verified = Walk::of(group, &required)?.file(only, context)?;
        return match verified.error() {
            None => context.out.answer(&verified),
            Some(error) => context.out.refuse(&verified, error),
        };
    }
    context.out.streaming()?;
    let (mut sum, mut failure) = (Sum::default(), None);
    for group in &groups {
        let mut is_ledger = false;
        match Walk::of(group, &required) {
            Ok(mut walk) => {
                for target in &group.files {
                    let outcome = walk.file(target, context);
                    is_ledger |= report_outcome(target, outcome, &mut sum, &mut failure, context)?;
                }
            }
            Err(e) => drop(report_outcome(&group.files[0], Err(e), &mut sum, &mut failure, context)?),
        }
        sum.ledgers += u64::from(is_ledger);
    }
    if context.out.is_prose() && sum.ledgers > 0 {
        context.out.piece(&(sum.text() + "\n"))?;
    }
    if sum.ledgers == 0 && failure.is_none() {
        return Err(no_ledger(&args.files, context));
    }
    failure.map_or(Ok(()), Err)
}

/// True if the file could be read and is one of a ledger.
fn report_outcome(
    target: &Target,
    outcome: Result<Verified>,
    sum: &mut Sum,
    failure: &mut Option<Error>,
    context: &mut Context,
) -> Result<bool> {
    let is_text = context.out.is_prose();
    let is_read = outcome.is_ok();
    let error = match outcome {
        Err(e) if !target.must_be_ledger() && e.code() == Code::Validation => {
            context.out.item_skipped();
            let message = format!("{} is not a ledger", target.shown().display());
            context.out.notice("not_a_ledger", Severity::Info, message);
            return Ok(false);
        }
        Ok(verified) => {
            sum.add(&verified);
            let error = verified.error();
            // For a person the sum at the end stands for what is well.
            if error.is_some() && is_text {
                context.out.piece(&(verified.text() + "\n"))?;
            }
            let Some(error) = error else {
                if !is_text {
                    context.out.record(Record::Item, &verified)?;
                }
                context.out.item_succeeded();
                return Ok(true);
            };
            error
        }
        Err(e) if e.is_fatal() => return Err(e),
        Err(e) => e,
    };
    // A fault is worse than a ledger that cannot be read; else the first failure stands for all.
    if failure.as_ref().is_none_or(|first| first.code() != Code::Integrity && error.code() == Code::Integrity) {
        *failure = Some(Error::new(error.code(), error.message()));
    }
    context.out.item_failed(error)?;
    Ok(is_read)
}

/// What a ledger has to be.
struct Required {
    options: Options,
    checkpoint: Option<PathBuf>,
    keys: Vec<Verifier>,
}

/// One ledger, file after file.
struct Walk<'a> {
    group: &'a Group,
    required: &'a Required,
    /// The checkpoint that it has to go on from.
    signed: Option<(Note, Checkpoint)>,
    whole: Whole,
    /// The end of the previous file.
    before: Option<State>,
}

impl<'a> Walk<'a> {
    fn of(group: &'a Group, required: &'a Required) -> Result<Self> {
        let file = required.checkpoint.clone().unwrap_or_else(|| checkpoint_path(&group.ledger));
        // A stream has no path, so no file lies beside it.
        let signed = if is_stdin(&group.ledger) { None } else { read_checkpoint(&file)? };
        if signed.is_none() && required.checkpoint.is_some() && !is_stdin(&group.ledger) {
            return Err(Error::not_found("no such checkpoint").in_file(&file));
        }
        let whole = Whole::new(&group.ledger, signed.as_ref().map(|(_, checkpoint)| checkpoint.size));
        Ok(Self { group, required, signed, whole, before: None })
    }

    fn file(&mut self, target: &Target, context: &Context) -> Result<Verified> {
        let path = &target.path;
        let can_be_read_twice = !is_stdin(path) && path.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut report = self.lines(path, context)?;
        // What was signed was a ledger.
        if report.bytes > 0 && !report.is_claimed && self.signed.is_none() {
            return Err(not_a_ledger(target));
        }
        if can_be_read_twice {
            report = self.whole.file(path, report)?;
            if self.group.files.last().is_some_and(|last| last.path == *path) {
                self.end(&mut report);
            }
        } else if self.required.checkpoint.is_some() || !self.required.keys.is_empty() {
            return Err(Error::usage("standard input can be read only once, and a checkpoint needs a second time")
                .hint("name the file instead of -"));
        } else {
            report.not_proved("beside", "what comes through a pipe can be read only once: name the file");
        }
        report.faults.sort_by_key(|fault| (fault.offset, fault.kind != Kind::Segment));
        if report.in_flight {
            report.not_proved("lines", "the last one is being written, or is torn");
        }
        if report.fault_count == 0 && report.lines > 0 {
            report.proved.insert("lines", report.intact);
            if self.required.options.json {
                report.proved.insert("json", report.intact);
            } else {
                report.not_proved("json", "--no-json was given");
            }
        }
        Ok(Verified::new(&target.shown(), report))
    }

    /// Proves the lines of the next file.
    fn lines(&mut self, path: &Path, context: &Context) -> Result<Report> {
        let mut shown = context.out.progress();
        let mut progress = |done: u64, size: u64| {
            shown.report(|| format!("{}: {}%", path.display(), done.saturating_mul(100) / size.max(1)));
        };
        let Options { json, closed } = self.required.options;
        // A closed segment does not grow.
        let options = Options { json, closed: closed || segments::is_closed(path) };
        let report = verifier::verify(path, self.before.take(), &options, &mut progress)?;
        self.before = Some(report.end);
        Ok(report)
    }

    /// Adds the faults of the ledger as a whole to the report of its last file.
    fn end(&self, report: &mut Report) {
        self.whole.end(report);
        // A file without an intact line has faults already; an emptied file has none.
        if (report.intact > 0 || report.lines == 0)
            && let Some((kind, message)) = self.compare(report)
        {
            report.add_at_end(kind, message);
        }
    }

    /// The fault of a ledger that none of the given keys has signed.
    fn unsigned(&self, why: &str) -> Option<(Kind, String)> {
        let names: Vec<&str> = self.required.keys.iter().map(Verifier::name).collect();
        (!names.is_empty()).then(|| (Kind::Unsigned, format!("not signed by {}: {why}", names.join(" or "))))
    }

    /// Compares the ledger with its checkpoint: adds what the checkpoint proves, or why it proves nothing. Returns the
    /// fault if they differ.
    fn compare(&self, report: &mut Report) -> Option<(Kind, String)> {
        let Some((note, checkpoint)) = &self.signed else {
            let fault = self.unsigned("there is no checkpoint");
            if fault.is_none() {
                report.not_proved("checkpoint", UNSIGNED);
            }
            return fault;
        };
        let (keys, signer) = (&self.required.keys, self.whole.signer());
        let is_signed = |key: &&Verifier| note.is_signed_by(key) == Some(true);
        let known: Vec<&Verifier> = keys.iter().chain(signer).collect();
        if let Some(key) = known.iter().find(|key| note.is_signed_by(key) == Some(false)) {
            return Some((Kind::Signature, format!("the signature of {} is wrong", key.name())));
        }
        if let Some(signer) = signer.filter(|signer| !is_signed(signer)) {
            return Some((Kind::Unsigned, format!("the checkpoint is not signed by {}", signer.name())));
        }
        if !keys.iter().any(|key| is_signed(&key))
            && let Some(fault) = self.unsigned("the checkpoint is signed by others")
        {
            return Some(fault);
        }
        match known.into_iter().filter(is_signed).count() {
            0 => report.not_proved("signature", "line 0 names no key, and --trust was not given"),
            count => drop(report.proved.insert("signature", count as u64)),
        }
        let last = report.last_seq;
        match self.whole.deviation(checkpoint, last) {
            Ok(None) => {
                report.proved.insert("checkpoint", checkpoint.size);
                let lines = last.map_or(0, |last| last + 1);
                // The entry that records a checkpoint always comes after the lines that it covers.
                if lines > checkpoint.size + 1 {
                    let why = format!("it covers {} of {lines} lines: sign a new one for the others", checkpoint.size);
                    report.not_proved("checkpoint", why);
                }
                None
            }
            Ok(fault) => fault,
            Err(why) => {
                report.not_proved("checkpoint", why);
                None
            }
        }
    }
}

/// The report on one file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verified {
    #[serde(flatten)]
    file: FileName,
    /// True if nothing is wrong.
    intact: bool,
    /// How the file ends: complete, or `in_flight` with bytes of a line that is not whole.
    tail: &'static str,
    #[serde(flatten)]
    report: Report,
}

impl Verified {
    fn new(path: &Path, report: Report) -> Self {
        let tail = if report.in_flight { "in_flight" } else { "complete" };
        Self { file: path.into(), intact: report.fault_count == 0, tail, report }
    }

    /// The error that stands for the faults, with the message of the first.
    fn error(&self) -> Option<Error> {
        let Report { faults, fault_count, .. } = &self.report;
        let first = faults.first()?;
        let seq = first.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        let more = if *fault_count > 1 { format!("; {fault_count} faults in all") } else { String::new() };
        let message = format!("line {} at byte {}{seq}: {}{more}", first.line, first.offset, first.message);
        let members = serde_json::to_value(self).unwrap_or_default();
        let members = members.as_object().into_iter().flatten();
        let error = Error::new(Code::Integrity, message).in_file(Path::new(&self.file.file));
        let error = members.fold(error, |error, (name, value)| error.with(name, value.clone()));
        Some(
            error
                .with("line", first.line)
                .with("offset", first.offset)
                .with("kind", serde_json::to_value(first.kind).unwrap_or_default())
                .with("seq", first.seq)
                .hint("look at the line with sed -n LINEp; cp-ledger(5) explains each kind"),
        )
    }
}

impl Reply for Verified {
    /// A line for each fault, or one that says that there is none.
    fn text(&self) -> String {
        if self.report.faults.is_empty() {
            let mut sum = Sum { ledgers: 1, ..Sum::default() };
            sum.add(self);
            return sum.text();
        }
        let line = |fault: &Fault| {
            let kind = serde_json::to_value(fault.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default();
            let seq = fault.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
            format!("{}:{}: {kind} at byte {}{seq}: {}", self.file.file, fault.line, fault.offset, fault.message)
        };
        self.report.faults.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The reason why the number of lines is not proved where nothing was signed.
const UNSIGNED: &str = "there is no checkpoint, so last lines may have been removed: cp-log checkpoint signs one";

/// A count, and what is counted.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is well, in one line for a person.
#[derive(Default)]
struct Sum {
    /// The ledgers that were looked at.
    ledgers: u64,
    lines: u64,
    faults: u64,
    unsigned: u64,
    /// What else could not be proved.
    open: Vec<String>,
}

impl Sum {
    /// Adds a file.
    fn add(&mut self, one: &Verified) {
        self.lines += one.report.lines;
        self.faults += one.report.fault_count;
        for open in &one.report.not_proved {
            if open.why == UNSIGNED {
                self.unsigned += 1;
            } else {
                self.open.push(format!("{}: not proved: {}: {}", one.file.file, open.what, open.why));
            }
        }
    }

    /// One line, and one for each property that could not be proved.
    fn text(&self) -> String {
        let (ledgers, lines) = (counted(self.ledgers, "ledger"), counted(self.lines, "line"));
        let result = if self.faults == 0 { "intact".to_owned() } else { counted(self.faults, "fault") };
        let mut sum = format!("{ledgers}, {lines}: {result}.");
        if self.unsigned > 0 {
            let some = if self.unsigned == self.ledgers { "Not".to_owned() } else { format!("{} not", self.unsigned) };
            let _ = write!(sum, " {some} signed, so removed last lines would not be noticed: cp-log checkpoint.");
        }
        [&[sum], &self.open[..]].concat().join("\n")
    }
}
