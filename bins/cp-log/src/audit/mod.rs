//! `cp-log audit`: recompute the claims of entries: hashes, files that were read, receipts, pairs and approvals. No claim needs the order of
//! entries or compares texts, so that a run that was stopped anywhere has no false one.

mod claim;
mod grants;
mod hashes;
mod pairs;
mod references;

use std::path::{Path, PathBuf};

use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::format::line::Line;
use cp_ledger::proof::verifier::{Options, verify};
use cp_ledger::read::End;
use cp_ledger::read::segments::ledger_of;
use cp_ledger::read::source::lines_of;

use self::claim::{Claims, Entry, Source};
use crate::bundle::check::first_fault;
use crate::reading::{Target, by_ledger, is_ledger, run_ledger, to_prove};

#[cfg(test)]
pub(crate) use self::claim::Judged;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "audit",
    class: Class::Query,
    output: "claim",
    also: &["summary"],
    examples: &["{} append hello && {} audit", "{} append hello && {} audit --format text"],
    sort: Some("ledger, then seq; what needs a whole ledger comes after it"),
    ..VerbDoc::EMPTY
};

/// Compute again what entries claim, one record for each claim
///
/// A claim holds, does not hold, or cannot be judged any more: a file that was read has changed since, a secret was taken out. Only one
/// that does not hold makes the audit fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions, runs, ledgers, bundles or directories of them (default: the session's, else all of home's)
    #[arg(value_name = "SESSION|RUN|LEDGER|BUNDLE")]
    subjects: Vec<String>,
}

/// The state that is kept from one entry to the next.
#[derive(Default)]
struct Auditor {
    pairs: pairs::Pairs,
    grants: grants::Grants,
    reads: references::Reads,
    receipts: references::Receipts,
    keys: references::LedgerKeys,
}

impl Auditor {
    /// Judges what one entry claims, and what earlier entries claimed that it answers.
    fn entry(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        entry.blobs(claims)?;
        hashes::judge(entry, claims)?;
        self.reads.judge(entry, claims)?;
        self.receipts.gather(entry);
        self.keys.judge(entry, claims)?;
        self.pairs.judge(entry, claims)?;
        self.grants.judge(entry, claims)
    }

    /// Judges what could not be before all entries were seen.
    fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        self.pairs.finish(claims)?;
        self.grants.finish(claims)?;
        self.receipts.finish(claims)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let ledgers = to_prove(&paths(&args.subjects, context)?, context)?;
    context.out.streaming()?;
    let mut claims = Claims::new(context);
    let mut auditor = Auditor::default();
    // The files of a bundle are there until the end.
    let bundles: Vec<_> = ledgers.iter().filter_map(|target| target.bundle.clone()).collect();
    each_line(ledgers, &mut claims, &mut |line, ledger, claims| match Entry::of(line, ledger)? {
        Some(entry) => auditor.entry(&entry, claims),
        None => Ok(()),
    })?;
    auditor.finish(&mut claims)?;
    drop(bundles);
    claims.close()
}

/// A function that gets each line of a ledger that has the shape of an entry.
type EachLine<'a> = dyn FnMut(&Line<'_>, &Path, &mut Claims<'_>) -> Result<()> + 'a;

/// Judges the chain of each ledger, and passes its lines on.
fn each_line(targets: Vec<Target>, claims: &mut Claims<'_>, each: &mut EachLine<'_>) -> Result<()> {
    for (rank, files) in by_ledger(targets) {
        let mut before = None;
        for target in files {
            if !is_ledger(&target)? {
                continue;
            }
            claims.ledgers += 1;
            let ledger = ledger_of(&target.path);
            if let Some(bundle) = &target.bundle
                && claims.name_ledger(&ledger, &rank.ledger, bundle.is_part(&ledger), bundle.bundle())
            {
                let fault = first_fault(bundle.bundle())?;
                let at = Source { ledger: bundle.bundle().to_owned(), seq: None };
                claims.record(at, "chain", fault.map_or(claim::Verdict::Holds, claim::Verdict::Broken))?;
            }
            if target.bundle.as_ref().is_some_and(|bundle| bundle.is_part(&ledger)) {
                file(&target.path, &ledger, claims, each)?;
                continue;
            }
            let options = Options { json: true, closed: false };
            let report = verify(&target.path, before, &options, &mut |_, _| {})?;
            before = Some(report.end);
            let fault = report.faults.first().map(|fault| format!("line {}: {}", fault.line, fault.message));
            let at = Source { ledger: ledger.clone(), seq: report.last.map(|(seq, _)| seq) };
            claims.record(at, "chain", fault.map_or(claim::Verdict::Holds, claim::Verdict::Broken))?;
            file(&target.path, &ledger, claims, each)?;
        }
    }
    Ok(())
}

fn file(path: &Path, ledger: &Path, claims: &mut Claims<'_>, each: &mut EachLine<'_>) -> Result<()> {
    let mut lines = lines_of(path)?;
    let mut count = 0_u64;
    while let Some(raw) = lines.next()? {
        if raw.end == End::File {
            break;
        }
        // Damaged lines are reported with the chain; the claims of the entries after them are still checked.
        if let Some(line) = raw.stored() {
            each(&line, ledger, claims)?;
        }
        count += 1;
        if count.is_multiple_of(256) {
            signals::check()?;
        }
    }
    Ok(())
}

/// The failure that stands for the claims that do not hold.
fn broken(count: u64, all: u64, first: &str) -> Error {
    let which = match count {
        1 => format!("1 of {all} claims does not hold: "),
        _ => format!("{count} of {all} claims do not hold; the first: "),
    };
    Error::new(Code::Integrity, which + first)
        .hint("each is a record with `holds` false; cp-ledger(5) has every formula")
}

/// The paths that the operands stand for.
fn paths(subjects: &[String], context: &Context) -> Result<Vec<PathBuf>> {
    subjects.iter().map(|subject| path(subject, context)).collect()
}

fn path(subject: &str, context: &Context) -> Result<PathBuf> {
    let named = PathBuf::from(subject);
    if subject == "-" {
        return Err(Error::usage("an audit reads what lies beside a ledger, so standard input cannot be audited")
            .hint("name the file"));
    }
    if subject.contains('/') || named.extension().is_some_and(|end| end == "jsonl") || named.exists() {
        return Ok(named);
    }
    if let Some(ledger) = run_ledger(subject, context)? {
        return Ok(ledger);
    }
    match context.home.session(subject) {
        Ok(session) => Ok(session.directory),
        Err(_) => Err(Error::not_found(format!("no session, run or ledger `{subject}`"))
            .hint("cp-session list and cp-toolloop runs list them; a ledger is named by its path")),
    }
}
