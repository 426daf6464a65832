//! `cp-log verify`: prove ledgers, and name every line that is not what was written.

use std::path::{Path, PathBuf};

use cp_common::output::{Format, Severity};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply as _;
use cp_common::wire::record::Kind as Record;
use cp_common::{Context, Error, Result};
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::note::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::verifier::{self, Options, Report, State};
use cp_ledger::proof::whole::{Findings, Whole};
use cp_ledger::proof::{Fault, Kind, NotProved};
use cp_ledger::read::segments;
use cp_ledger::read::source::is_stdin;

use crate::reading::{Group, Origins, Target, await_input, by_ledger, to_prove};
use crate::verified::{Sum, UNSIGNED, Verified};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "verify",
    class: Class::Query,
    output: "verified",
    also: &["summary"],
    examples: &["{} append hello && {} verify", "{} append hello && {} bundle -o b && {} verify b"],
    ..VerbDoc::EMPTY
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

/// Requirements beyond the lines themselves.
struct Requirements {
    checkpoint: Option<PathBuf>,
    keys: Vec<Verifier>,
}

impl Requirements {
    /// The checkpoint that a ledger has to go on from.
    fn checkpoint_of(&self, ledger: &Path) -> Result<Option<(Note, Checkpoint)>> {
        let file = self.checkpoint.clone().unwrap_or_else(|| checkpoint_path(ledger));
        let found = read_checkpoint(&file)?;
        if found.is_none() && self.checkpoint.is_some() {
            return Err(Error::not_found("no such checkpoint").in_file(&file));
        }
        Ok(found)
    }

    /// The fault of a ledger that none of the given keys has signed.
    fn unsigned(&self, why: &str) -> Option<(Kind, String)> {
        let names: Vec<&str> = self.keys.iter().map(Verifier::name).collect();
        (!names.is_empty()).then(|| (Kind::Unsigned, format!("not signed by {}: {why}", names.join(" or "))))
    }

    /// Compares a ledger with its checkpoint: adds what the checkpoint proves, or why it proves nothing. Returns the
    /// fault if they differ.
    fn compare(
        &self,
        whole: &Whole,
        signed: Option<&(Note, Checkpoint)>,
        last: Option<u64>,
        found: &mut Findings,
    ) -> Option<(Kind, String)> {
        let mut not_proved = |what, why| found.not_proved.push(NotProved { what, why });
        let Some((note, checkpoint)) = signed else {
            let fault = self.unsigned("there is no checkpoint");
            if fault.is_none() {
                not_proved("checkpoint", UNSIGNED.to_owned());
            }
            return fault;
        };
        let is_signed = |key: &&Verifier| note.is_signed_by(key) == Some(true);
        let known: Vec<&Verifier> = self.keys.iter().chain(whole.signer()).collect();
        if let Some(key) = known.iter().find(|key| note.is_signed_by(key) == Some(false)) {
            return Some((Kind::Signature, format!("the signature of {} is wrong", key.name())));
        }
        if let Some(signer) = whole.signer().filter(|signer| !is_signed(signer)) {
            return Some((Kind::Unsigned, format!("the checkpoint is not signed by {}", signer.name())));
        }
        if !self.keys.iter().any(|key| is_signed(&key))
            && let Some(fault) = self.unsigned("the checkpoint is signed by others")
        {
            return Some(fault);
        }
        match known.into_iter().filter(is_signed).count() {
            0 => not_proved("signature", "line 0 names no key, and --trust was not given".to_owned()),
            count => drop(found.proved.insert("signature", count as u64)),
        }
        match whole.deviation(checkpoint, last) {
            Ok(None) => {
                found.proved.insert("checkpoint", checkpoint.size);
                let lines = last.map_or(0, |last| last + 1);
                // The entry that records a checkpoint always comes after the lines that it covers.
                if lines > checkpoint.size + 1 {
                    let why = format!("it covers {} of {lines} lines: sign a new one for the others", checkpoint.size);
                    not_proved("checkpoint", why);
                }
                None
            }
            Ok(fault) => fault,
            Err(why) => {
                not_proved("checkpoint", why);
                None
            }
        }
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.files.is_empty() {
        await_input()?;
    }
    let targets = to_prove(&args.files, context)?;
    let options = Options { json: !args.no_json, closed: args.closed };
    let keys = args.keys.iter().map(|key| Verifier::load(key)).collect::<Result<_>>()?;
    Origins::of(&targets, context);
    let groups = by_ledger(targets);
    let requirements = Requirements { checkpoint: args.checkpoint.clone(), keys };
    if let [group] = &groups[..]
        && let [only] = &group.files[..]
        && only.named
    {
        let verified = Walk::of(group, &options, &requirements)?.file(only, context)?;
        return match verified.error() {
            None => context.out.answer(&verified),
            Some(error) => context.out.refuse(&verified, error),
        };
    }
    context.out.streaming()?;
    let (mut sum, mut first_failure) = (Sum::default(), None);
    for group in &groups {
        let mut is_ledger = false;
        match Walk::of(group, &options, &requirements) {
            Ok(mut walk) => {
                for target in &group.files {
                    let outcome = walk.file(target, context);
                    is_ledger |= report_outcome(target, outcome, &mut sum, &mut first_failure, context)?;
                }
            }
            Err(e) => drop(report_outcome(&group.files[0], Err(e), &mut sum, &mut first_failure, context)?),
        }
        sum.ledgers += u64::from(is_ledger);
    }
    if context.out.format() == Format::Text && sum.ledgers > 0 {
        context.out.piece(&(sum.text() + "\n"))?;
    }
    first_failure.map_or(Ok(()), Err)
}

/// True if the file could be read and is one of a ledger.
fn report_outcome(
    target: &Target,
    outcome: Result<Verified>,
    sum: &mut Sum,
    first_failure: &mut Option<Error>,
    context: &mut Context,
) -> Result<bool> {
    let is_text = context.out.format() == Format::Text;
    let is_read = outcome.is_ok();
    let error = match outcome {
        Ok(verified) if !target.must_be_ledger() && verified.is_foreign() => {
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
    first_failure.get_or_insert_with(|| Error::new(error.code(), error.message()));
    context.out.item_failed(error)?;
    Ok(is_read)
}

/// One ledger, file after file.
struct Walk<'a> {
    group: &'a Group,
    options: &'a Options,
    requirements: &'a Requirements,
    signed: Option<(Note, Checkpoint)>,
    whole: Whole,
    /// The end of the previous file.
    before: Option<State>,
}

impl<'a> Walk<'a> {
    fn of(group: &'a Group, options: &'a Options, requirements: &'a Requirements) -> Result<Self> {
        // A stream has no path, so no file lies beside it.
        let signed = if is_stdin(&group.ledger) { None } else { requirements.checkpoint_of(&group.ledger)? };
        let wanted = signed.as_ref().map(|(_, checkpoint)| checkpoint.size);
        let whole = Whole::new(&group.ledger, wanted);
        Ok(Self { group, options, requirements, signed, whole, before: None })
    }

    fn file(&mut self, target: &Target, context: &Context) -> Result<Verified> {
        let path = &target.path;
        let can_be_read_twice = !is_stdin(path) && path.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut report = self.lines(path, context)?;
        let mut found = Findings::default();
        if !can_be_read_twice {
            if self.requirements.checkpoint.is_some() || !self.requirements.keys.is_empty() {
                return Err(Error::usage("standard input can be read only once, and a checkpoint needs a second time")
                    .hint("name the file instead of -"));
            }
            let why = "what comes through a pipe can be read only once: name the file".to_owned();
            found.not_proved.push(NotProved { what: "beside", why });
        } else if report.lines == 0 || report.unchained < report.lines {
            found = self.whole.file(path, &report)?;
            if self.group.files.last().is_some_and(|last| last.path == *path) {
                self.end(&mut found, &report);
            }
        }
        found.faults.drain(..).for_each(|fault| report.add(fault));
        report.faults.sort_by_key(|fault| (fault.offset, fault.kind != Kind::Segment));
        let mut not_proved = |what, why: &str| found.not_proved.push(NotProved { what, why: why.to_owned() });
        if report.in_flight {
            not_proved("lines", "the last one is being written, or is torn");
        }
        if report.fault_count == 0 && report.lines > 0 {
            found.proved.insert("lines", report.intact);
            if self.options.json {
                found.proved.insert("json", report.intact);
            } else {
                not_proved("json", "--no-json was given");
            }
        }
        Ok(Verified::new(&target.shown(), report, found))
    }

    /// Proves the lines of the next file.
    fn lines(&mut self, path: &Path, context: &Context) -> Result<Report> {
        let mut shown = context.out.progress();
        let mut progress = |done: u64, size: u64| {
            shown.report(|| format!("{}: {}%", path.display(), done.saturating_mul(100) / size.max(1)));
        };
        // A closed segment does not grow.
        let options = Options { closed: self.options.closed || segments::is_closed(path), ..*self.options };
        let report = verifier::verify(path, self.before.take(), &options, &mut progress)?;
        self.before = Some(report.end);
        Ok(report)
    }

    /// Adds the faults of the ledger as a whole to the report of its last file.
    fn end(&mut self, found: &mut Findings, report: &Report) {
        found.faults.extend(self.whole.end(report).faults);
        let last = report.last.map(|(seq, _)| seq);
        // A file without an intact line has faults already; an emptied file has none.
        if (report.intact > 0 || report.lines == 0)
            && let Some((kind, message)) = self.requirements.compare(&self.whole, self.signed.as_ref(), last, found)
        {
            found.faults.push(Fault { line: report.lines, offset: report.bytes, seq: last, kind, message });
        }
    }
}
