//! One claim and what became of it, and the stream of them.

use std::path::PathBuf;

use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Context, Result};
use serde::Serialize;

/// A claim of an entry, computed again.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Judged {
    /// What is claimed: `chain`, `blob`, `command_hash` and the like; see cp-ledger(5).
    claim: &'static str,
    /// The ledger that it stands on.
    ledger: String,
    /// The entry that claims it; none for a ledger without lines.
    seq: Option<u64>,
    /// Whether it holds; null where that cannot be found out any more.
    holds: Option<bool>,
    /// Why it does not hold, or cannot be judged; of one that holds, that its entry has an older form.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Judged {
    /// The claim in words, without its verdict.
    pub(super) fn words(&self) -> String {
        let seq = self.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        let why = self.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        format!("{}{seq}, {}{why}", self.ledger, self.claim)
    }
}

impl Reply for Judged {
    fn text(&self) -> String {
        let mark = match self.holds {
            Some(true) => '✓',
            Some(false) => '✗',
            None => '?',
        };
        format!("{mark} {}", self.words())
    }
}

/// Where a claim stands.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ledger: PathBuf,
    pub(super) seq: Option<u64>,
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Holds,
    /// Holds, on an entry of a form that no program writes any more.
    HoldsInOlderForm(&'static str),
    Broken(String),
    /// Nobody can tell any more, and why.
    Unknown(String),
}

impl Verdict {
    /// Whether a hash that was computed again is the one that was claimed.
    pub(super) fn same(computed: &str, claimed: &str) -> Self {
        if computed == claimed { Self::Holds } else { Self::Broken(format!("it is {computed}, not {claimed}")) }
    }

    /// Holds, or is broken for this reason.
    pub(super) fn when(holds: bool, why: impl FnOnce() -> String) -> Self {
        if holds { Self::Holds } else { Self::Broken(why()) }
    }
}

/// The stream of claims, counted.
pub(super) struct Claims<'a> {
    context: &'a mut Context,
    pub(super) ledgers: u64,
    held: u64,
    broken: u64,
    unknown: u64,
    first: Option<Judged>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(context: &'a mut Context) -> Self {
        Self { context, ledgers: 0, held: 0, broken: 0, unknown: 0, first: None }
    }

    pub(super) fn say(&mut self, at: Source, claim: &'static str, verdict: Verdict) -> Result<()> {
        let (holds, why) = match verdict {
            Verdict::Holds => (Some(true), None),
            Verdict::HoldsInOlderForm(form) => (Some(true), Some(format!("older form: {form}"))),
            Verdict::Broken(why) => (Some(false), Some(why)),
            Verdict::Unknown(why) => (None, Some(why)),
        };
        let Source { ledger, seq } = at;
        let claim = Judged { claim, ledger: ledger.display().to_string(), seq, holds, why };
        match holds {
            Some(true) => self.held += 1,
            Some(false) => self.broken += 1,
            None => self.unknown += 1,
        }
        self.context.out.record(Kind::Item, &claim)?;
        self.context.out.item_succeeded();
        if holds == Some(false) {
            self.first.get_or_insert(claim);
        }
        Ok(())
    }

    /// Ends the stream: with a failure if a claim does not hold.
    pub(super) fn close(self) -> Result<()> {
        let out = &mut self.context.out;
        for (name, count) in
            [("ledgers", self.ledgers), ("held", self.held), ("broken", self.broken), ("unknown", self.unknown)]
        {
            out.extra(name, count);
        }
        match &self.first {
            Some(first) => Err(super::broken(self.broken, self.held + self.broken + self.unknown, first)),
            None => Ok(()),
        }
    }
}
