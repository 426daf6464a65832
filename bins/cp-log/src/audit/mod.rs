//! `cp-log audit`: recompute the claims of entries: hashes, receipts, pairs and approvals.

mod claims;
mod entry;
mod fold;
mod formulas;
mod receipts;

use std::path::PathBuf;

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result, signals};
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::proof::verifier::{Options, verify};
use cp_ledger::read::End;
use cp_ledger::read::segments::ledger_of;
use cp_ledger::read::source::lines_of;

use self::claims::{Claims, Place, Verdict};
use self::entry::{Entry, blobs};
use self::fold::Fold;
use crate::reading::{Target, by_ledger, is_ledger, to_prove};

#[cfg(test)]
pub(crate) use self::claims::Judged;

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
/// A claim holds, does not hold, or cannot be judged: a secret was taken out, the work is unfinished. Only one that
/// does not hold makes the audit fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs, sessions, ledgers, bundles or directories of them (default: the run's, the session's, else all of home's)
    #[arg(value_name = "RUN|SESSION|LEDGER")]
    subjects: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let targets = to_prove(&args.subjects, context)?;
    context.out.streaming()?;
    let (mut claims, mut fold) = (Claims::new(context), Fold::default());
    for (rank, files) in by_ledger(targets.clone()) {
        let (mut before, mut index) = (None, None);
        for target in files {
            if !is_ledger(&target)? {
                continue;
            }
            let index = match index {
                Some(index) => index,
                None => *index.insert(claims.begin(&ledger_of(&target.path), &rank.ledger, origin_of(&target.path)?)),
            };
            let report = verify(&target.path, before, &Options { json: true, closed: false }, &mut |_, _| {})?;
            before = Some(report.end);
            let fault = report.faults.first().map(|fault| format!("line {}: {}", fault.line, fault.message));
            let place = Place { ledger: index, seq: report.last.map(|(seq, _)| seq) };
            claims.record(place, "chain", fault.map_or(Verdict::Holds, Verdict::Broken))?;
            entries(&target, index, &mut fold, &mut claims)?;
        }
    }
    fold.finish(&mut claims)?;
    claims.close()
}

/// Judges the entries of a file. Damaged lines are reported with the chain; the claims of the entries after them are
/// still checked.
fn entries(target: &Target, index: usize, fold: &mut Fold, claims: &mut Claims<'_>) -> Result<()> {
    let (mut lines, ledger) = (lines_of(&target.path)?, ledger_of(&target.path));
    while let Some(raw) = lines.next()?.filter(|raw| raw.end != End::File) {
        if raw.number % 256 == 0 {
            signals::check()?;
        }
        let Some(line) = raw.stored() else { continue };
        let place = Place { ledger: index, seq: Some(line.seq()) };
        let Some(entry) = Entry::of(&line, place, &ledger)? else { continue };
        blobs(&line, place, &ledger, claims)?;
        formulas::judge(&entry, claims)?;
        fold.add(&entry, claims)?;
    }
    Ok(())
}
