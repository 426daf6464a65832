//! `cp-log audit`: recompute the claims of entries: hashes, files that were read, receipts, exits, and the edges of the model of a run.

mod calls;
mod check;
mod claim;
mod hashes;
mod input;
mod judged_call;
mod references;
mod run;
mod sessions;
mod steps;

use std::collections::HashSet;
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
use crate::reading::{Target, by_ledger, is_ledger, run_ledger, to_prove, to_read};

#[cfg(test)]
pub(crate) use self::claim::Judged;
#[cfg(test)]
pub(crate) use self::judged_call::JudgedCall;
use crate::transcript;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "audit",
    class: Class::Query,
    output: "claim",
    also: &["call", "summary"],
    exits: &[10],
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
    /// Compare the tool calls of an agent's own transcript with the decisions of its hook (repeatable)
    #[arg(long, value_name = "FILE")]
    transcript: Vec<PathBuf>,
}

/// The state that is kept from one entry to the next.
#[derive(Default)]
struct Auditor {
    pairs: steps::Pairs,
    steps: steps::Steps,
    reads: references::Reads,
    receipts: references::Receipts,
    keys: references::LedgerKeys,
    sessions: sessions::Sessions,
    runs: run::Runs,
    /// The ledgers of agents that were begun, which are read after the others.
    agents: Vec<PathBuf>,
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
        self.steps.judge(entry, claims)?;
        self.sessions.judge(entry, claims)?;
        self.runs.judge(entry, &mut self.agents, claims)
    }

    /// Judges what could not be before all entries were seen.
    fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        self.pairs.finish(claims)?;
        self.sessions.finish(claims)?;
        self.runs.finish(claims)?;
        self.receipts.finish(claims)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let ledgers = to_prove(&paths(&args.subjects, context)?, context)?;
    context.out.streaming()?;
    if !args.transcript.is_empty() {
        return transcripts(args, ledgers, context);
    }
    let mut claims = Claims::new(context);
    let mut auditor = Auditor::default();
    // The files of a bundle are there until the end.
    let bundles: Vec<_> = ledgers.iter().filter_map(|target| target.bundle.clone()).collect();
    let mut waiting = ledgers;
    let mut seen: HashSet<PathBuf> = waiting.iter().map(|target| ledger_of(&target.path)).collect();
    while !waiting.is_empty() {
        each_line(
            std::mem::take(&mut waiting),
            &mut claims,
            &mut |line, ledger, claims| match Entry::of(line, ledger)? {
                Some(entry) => auditor.entry(&entry, claims),
                None => Ok(()),
            },
        )?;
        let begun = std::mem::take(&mut auditor.agents).into_iter();
        let new: Vec<PathBuf> = begun.filter(|path| path.is_file() && seen.insert(path.clone())).collect();
        waiting = if new.is_empty() { Vec::new() } else { to_read(&new, claims.context())? };
    }
    auditor.finish(&mut claims)?;
    drop(bundles);
    claims.close()
}

/// Compares transcripts with the decisions on ledgers. Of the other claims only those of the chains are judged.
fn transcripts(args: &Args, ledgers: Vec<Target>, context: &mut Context) -> Result<()> {
    let files: Vec<PathBuf> =
        args.transcript.iter().map(|path| transcript::files_of(path)).collect::<Result<Vec<_>>>()?.concat();
    let mut claims = Claims::new(context);
    claims.is_of_transcripts = true;
    let mut calls = calls::Calls::default();
    each_line(ledgers, &mut claims, &mut |line, ledger, _| {
        if calls::EVENTS.iter().any(|event| line.is_event(event))
            && let Some(entry) = Entry::of(line, ledger)?
        {
            calls.gather(&entry, line.ts());
        }
        Ok(())
    })?;
    for path in &files {
        let each = &mut |host, item| calls.judge(path, host, item, &mut claims);
        if let Some(line) = transcript::read(path, each)? {
            claims.notice_torn(path, line);
        }
    }
    calls.finish(&mut claims)?;
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
            let options = Options { json: true, closed: false, threads: 1 };
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

/// The failure that stands for the effects without an approval.
fn unapproved(count: u64, all: u64, first: &str) -> Error {
    let which = format!("{count} of {all} claims do not hold; the first effect without its approval: ");
    Error::new(Code::Unseen, which + first).hint("each is a record with `holds` false; cp-ledger(5) has every formula")
}

/// The failure that stands for the calls that no decision accounts for.
fn unseen(count: u64, first: &str) -> Error {
    let which = match count {
        1 => "1 call of the transcript is unseen or contradicts its decision: ".to_owned(),
        _ => format!("{count} calls of the transcript are unseen or contradict their decisions; the first: "),
    };
    Error::new(Code::Unseen, which + first)
        .hint("each is a record with `holds` false; cp-exec hook doctor checks the routes of the host")
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
