//! `cp-log audit`: recompute the claims of entries: hashes, receipts, pairs and approvals.

mod entry;
mod fold;

use std::path::{Path, PathBuf};

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind;
use cp_common::wire::{LedgerName, Receipt, Reply};
use cp_common::{Code, Context, Error, Result, json, signals};
use cp_ledger::blob;
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::proof::verifier::{Options, verify};
use cp_ledger::read::segments::ledger_of;
use cp_ledger::read::{End, lines};
use serde::Serialize;

use self::entry::Entry;
use self::fold::Fold;
use crate::reading::ledgers;
use crate::verify::counted;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["{} append hello && {} audit", "{} append hello && {} audit --format text"],
    sort: Some("ledger, then seq; what needs a whole ledger comes after it"),
    ..VerbDoc::new("audit", Class::Query, "claim")
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
    let groups = ledgers(&args.subjects, context)?;
    context.out.streaming()?;
    let mut claims = Claims { context, ledgers: Vec::new(), held: 0, doubtful: Vec::new() };
    let mut fold = Fold::default();
    for group in groups {
        claims.ledgers.push((Path::new(&group.rank.ledger).into(), origin_of(&group.files[0].path)?));
        let mut before = None;
        for target in group.files {
            let report = verify(&target.path, before, &Options { json: true, closed: false }, &mut |_, _| {})?;
            before = Some(report.end);
            let fault = report.faults.first().map(|fault| format!("line {}: {}", fault.line, fault.message));
            let place = Place { ledger: claims.ledgers.len() - 1, seq: report.last_seq };
            claims.record(place, "chain", fault.map_or(Verdict::Holds, Verdict::Broken))?;
            entries(&target.path, &mut fold, &mut claims)?;
        }
    }
    fold.finish(&mut claims)?;
    claims.close()
}

/// Judges the entries of a file of the last ledger. Damaged lines are reported with the chain; the claims of the entries
/// after them are still checked.
fn entries(file: &Path, fold: &mut Fold, claims: &mut Claims<'_>) -> Result<()> {
    let (mut lines, ledger) = (lines(file)?, ledger_of(file));
    while let Some(raw) = lines.next()?.filter(|raw| raw.end != End::File) {
        if raw.number % 256 == 0 {
            signals::check()?;
        }
        let Some(line) = raw.stored().filter(|line| json::check(line.bytes()).is_ok()) else { continue };
        let place = Place { ledger: claims.ledgers.len() - 1, seq: Some(line.seq()) };
        for hash in blob::references(line.body()) {
            let flaw = blob::flaw(&ledger, &hash)?.map(|flaw| format!("the large value {hash} {flaw}"));
            claims.record(place, "blob", flaw.map_or(Verdict::Holds, Verdict::Broken))?;
        }
        let entry = Entry::of(&line, place, &ledger);
        entry::judge(&entry, claims)?;
        fold.add(&entry, claims)?;
    }
    Ok(())
}

/// A claim of an entry, computed again.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Judged {
    /// The kind of claim: `chain`, `blob`, `command_hash` and others; see cp-ledger(5).
    claim: &'static str,
    #[serde(flatten)]
    ledger: LedgerName,
    /// The entry that claims it; none for a ledger without lines.
    seq: Option<u64>,
    /// True if it holds; null where that cannot be found out any more.
    holds: Option<bool>,
    /// Why it does not hold, or cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Reply for Judged {
    fn text(&self) -> String {
        let seq = self.seq.map_or(String::new(), |seq| format!("line {seq}, "));
        format!("{}: {seq}{}: {}", self.ledger.ledger, self.claim, self.why.as_deref().unwrap_or("it holds"))
    }
}

/// The entry of a claim: which of the ledgers, and which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    ledger: usize,
    seq: Option<u64>,
}

/// The verdict on a claim.
enum Verdict {
    Holds,
    Broken(String),
    /// Cannot be judged any more, for this reason.
    Unknown(String),
}

/// The stream of claims.
struct Claims<'a> {
    context: &'a mut Context,
    /// The names of ledgers: for people, and in checkpoints.
    ledgers: Vec<(LedgerName, Option<String>)>,
    held: u64,
    /// The others, in their order.
    doubtful: Vec<Judged>,
}

impl Claims<'_> {
    /// True if the ledger of a receipt was read: itself, or a copy of it, also in a bundle.
    fn have_read(&self, receipt: &Receipt) -> bool {
        let is_it = |origin: &Option<String>| origin.is_some() && *origin == receipt.origin;
        self.ledgers.iter().any(|(name, origin)| is_it(origin) || name.ledger == receipt.ledger)
    }

    fn record(&mut self, at: Place, claim: &'static str, verdict: Verdict) -> Result<()> {
        let (holds, why) = match verdict {
            Verdict::Holds => (Some(true), None),
            Verdict::Broken(why) => (Some(false), Some(why)),
            Verdict::Unknown(why) => (None, Some(why)),
        };
        let judged = Judged { claim, ledger: self.ledgers[at.ledger].0.clone(), seq: at.seq, holds, why };
        if !self.context.out.is_prose() {
            self.context.out.record(Kind::Item, &judged)?;
        }
        self.context.out.item_succeeded();
        match holds {
            Some(true) => self.held += 1,
            _ => self.doubtful.push(judged),
        }
        Ok(())
    }

    fn broken(&mut self, at: Place, claim: &'static str, why: impl Into<String>) -> Result<()> {
        self.record(at, claim, Verdict::Broken(why.into()))
    }

    /// Ends the stream: with a failure if a claim does not hold.
    fn close(mut self) -> Result<()> {
        let first = self.doubtful.iter().find(|judged| judged.holds.is_some()).map(Judged::text);
        // The name of a ledger is read once.
        self.doubtful.sort_by(|a, b| a.ledger.ledger.cmp(&b.ledger.ledger));
        let of = |holds: Option<bool>| self.doubtful.iter().filter(move |judged| judged.holds == holds);
        let (broken, unknown) = (of(Some(false)).count() as u64, of(None).count() as u64);
        let (out, ledgers) = (&mut self.context.out, self.ledgers.len() as u64);
        for (name, count) in [("ledgers", ledgers), ("held", self.held), ("broken", broken), ("unknown", unknown)] {
            out.extra(name, count);
        }
        let all = self.held + broken + unknown;
        if out.is_prose() {
            for (title, holds) in [("Contradicted:\n", Some(false)), ("Cannot be checked:\n", None)] {
                let mut ledger = "";
                for judged in of(holds) {
                    if judged.ledger.ledger != ledger {
                        let title = if ledger.is_empty() { title } else { "" };
                        ledger = &judged.ledger.ledger;
                        out.piece(&format!("{title}  {ledger}\n"))?;
                    }
                    out.piece(&format!("    {}\n", &judged.text()[ledger.len() + 2..]))?;
                }
            }
            let counts = format!("{broken} contradicted, {unknown} cannot be checked, {} hold", self.held);
            out.piece(&format!("{} of {}: {counts}\n", counted(all, "claim"), counted(ledgers, "ledger")))?;
        }
        let Some(first) = first else { return Ok(()) };
        let error = Error::new(Code::Integrity, format!("{broken} of {all} claims contradicted; the first: {first}"));
        Err(error.hint("each is a record with `holds` false; cp-ledger(5) has every formula"))
    }
}
