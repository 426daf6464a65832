//! The claims of entries and the verdicts on them, as a stream of records, or for a person in three groups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::output::Format;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;

/// A claim of an entry, computed again.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Judged {
    /// The kind of claim: `chain`, `blob`, `command_hash` and others; see cp-ledger(5).
    claim: &'static str,
    /// The ledger with the entry.
    ledger: String,
    /// The entry that claims it; none for a ledger without lines.
    seq: Option<u64>,
    /// True if it holds; null where that cannot be found out any more.
    holds: Option<bool>,
    /// Why it does not hold, or cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Judged {
    /// The claim in words, without its ledger.
    fn words(&self) -> String {
        let seq = self.seq.map_or(String::new(), |seq| format!("line {seq}, "));
        format!("{seq}{}: {}", self.claim, self.why.as_deref().unwrap_or("it holds"))
    }
}

impl Reply for Judged {
    fn text(&self) -> String {
        format!("{}: {}", self.ledger, self.words())
    }
}

/// The entry of a claim: which of the ledgers, and which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) ledger: usize,
    pub(super) seq: Option<u64>,
}

/// The verdict on a claim.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Holds,
    Broken(String),
    /// Cannot be judged any more, for this reason.
    Unknown(String),
}

/// A ledger that is audited.
pub(super) struct Ledger {
    pub(super) path: PathBuf,
    pub(super) origin: Option<String>,
    shown: String,
}

/// What a person reads of the claims of one verdict: for each ledger a line for each claim.
type Group = BTreeMap<String, Vec<String>>;

/// The stream of claims, counted.
pub(super) struct Claims<'a> {
    context: &'a mut Context,
    pub(super) ledgers: Vec<Ledger>,
    held: u64,
    broken: u64,
    unknown: u64,
    /// The first claim that does not hold, in words.
    first: Option<String>,
    contradicted: Group,
    unchecked: Group,
}

impl<'a> Claims<'a> {
    pub(super) fn new(context: &'a mut Context) -> Self {
        let (contradicted, unchecked) = (Group::new(), Group::new());
        Self { context, ledgers: Vec::new(), held: 0, broken: 0, unknown: 0, first: None, contradicted, unchecked }
    }

    /// Begins with a ledger. Its index.
    pub(super) fn begin(&mut self, path: &Path, shown: &Path, origin: Option<String>) -> usize {
        self.ledgers.push(Ledger { path: path.to_owned(), origin, shown: shown.display().to_string() });
        self.ledgers.len() - 1
    }

    /// The name of the ledger of a place.
    pub(super) fn name(&self, place: Place) -> &str {
        &self.ledgers[place.ledger].shown
    }

    /// True if the ledger at a path was read.
    pub(super) fn has(&self, path: &str) -> bool {
        self.ledgers.iter().any(|ledger| ledger.path == Path::new(path))
    }

    pub(super) fn record(&mut self, at: Place, claim: &'static str, verdict: Verdict) -> Result<()> {
        let (holds, why) = match verdict {
            Verdict::Holds => (Some(true), None),
            Verdict::Broken(why) => (Some(false), Some(why)),
            Verdict::Unknown(why) => (None, Some(why)),
        };
        let claim = Judged { claim, ledger: self.ledgers[at.ledger].shown.clone(), seq: at.seq, holds, why };
        let (count, group) = match holds {
            Some(true) => (&mut self.held, None),
            Some(false) => (&mut self.broken, Some(&mut self.contradicted)),
            None => (&mut self.unknown, Some(&mut self.unchecked)),
        };
        *count += 1;
        if holds == Some(false) {
            self.first.get_or_insert_with(|| claim.text());
        }
        if self.context.out.format() == Format::Text {
            if let Some(group) = group {
                group.entry(claim.ledger.clone()).or_default().push(claim.words());
            }
        } else {
            self.context.out.record(Kind::Item, &claim)?;
        }
        self.context.out.item_succeeded();
        Ok(())
    }

    /// Ends the stream: with a failure if a claim does not hold.
    pub(super) fn close(self) -> Result<()> {
        let (out, ledgers) = (&mut self.context.out, self.ledgers.len() as u64);
        for (name, count) in
            [("ledgers", ledgers), ("held", self.held), ("broken", self.broken), ("unknown", self.unknown)]
        {
            out.extra(name, count);
        }
        if out.format() == Format::Text {
            for (title, group) in [("Contradicted:", self.contradicted), ("Cannot be checked:", self.unchecked)] {
                if !group.is_empty() {
                    out.piece(&format!("{title}\n"))?;
                }
                for (ledger, claims) in group {
                    out.piece(&format!("  {ledger}\n    {}\n", claims.join("\n    ")))?;
                }
            }
            let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (held, ledgers) = (counted(self.held, "claim"), counted(ledgers, "ledger"));
            out.piece(&format!("Nothing wrong: {held} of {ledgers}\n"))?;
        }
        let Some(first) = &self.first else { return Ok(()) };
        let all = self.held + self.broken + self.unknown;
        let which = match self.broken {
            1 => format!("1 of {all} claims does not hold: "),
            count => format!("{count} of {all} claims do not hold; the first: "),
        };
        Err(Error::new(Code::Integrity, which + first)
            .hint("each is a record with `holds` false; cp-ledger(5) has every formula"))
    }
}
