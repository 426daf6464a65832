//! What ledgers are named in their first lines: a copy is reported, and where lines are counted each counts once.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use cp_common::Context;
use cp_common::output::Severity;
use cp_ledger::proof::leaves::head_of;
use cp_ledger::read::source::is_stdin;

use super::files::{Rank, Target};

/// How many copies are named one by one.
const NAMED: usize = 100;

/// The names of ledgers, and the lines that were read of those that are there twice.
#[derive(Default)]
pub(crate) struct Origins {
    /// What a file belongs to, and the number of its first line.
    files: HashMap<PathBuf, (String, u64)>,
    twice: HashSet<String>,
    read: HashMap<String, Vec<Range<u64>>>,
    /// How many entries were left out because another file has them.
    pub(crate) repeated: u64,
}

/// A file that is being read.
pub(crate) struct Reading {
    /// The name of its ledger.
    pub(crate) origin: Option<String>,
    is_twice: bool,
    /// The lines of that ledger that were in files before.
    before: Vec<Range<u64>>,
    lines: Range<u64>,
    repeated: u64,
}

impl Origins {
    /// Looks up the names. What can be read only once has none, and what cannot be read is reported where it is read.
    pub(crate) fn of(targets: &[Target], context: &mut Context) -> Self {
        let (mut this, mut named) = (Self::default(), HashMap::<Rank, String>::new());
        let (mut seen, mut said) = (HashMap::<(String, u64), Rank>::new(), HashSet::new());
        for target in targets.iter().filter(|target| !is_stdin(&target.path) && target.path.is_file()) {
            let Ok(Some((first, origin))) = head_of(&target.path) else { continue };
            let rank = target.rank();
            // Only the first file of a ledger need say it.
            let Some(origin) = named.get(&rank).cloned().or(origin) else { continue };
            let other = seen.entry((origin.clone(), first)).or_insert_with(|| rank.clone());
            if *other != rank {
                this.twice.insert(origin.clone());
                if other.ledger != rank.ledger && said.len() < NAMED && said.insert(rank.ledger.clone()) {
                    let (other, one) = (other.ledger.display(), rank.ledger.display());
                    let message =
                        format!("{other} and {one} have the same origin {origin}: one is a copy of the other");
                    context.out.notice("origin_twice", Severity::Warning, message);
                }
            }
            this.files.insert(target.path.clone(), (origin.clone(), first));
            named.insert(rank, origin);
        }
        this
    }

    /// Begins a file.
    pub(crate) fn enter(&self, path: &Path) -> Reading {
        let (origin, first) = self.files.get(path).cloned().unzip();
        let is_twice = origin.as_ref().is_some_and(|origin| self.twice.contains(origin));
        let before = origin.as_ref().and_then(|origin| self.read.get(origin)).cloned().unwrap_or_default();
        let first = first.unwrap_or_default();
        Reading { origin, is_twice, before, lines: first..first, repeated: 0 }
    }

    /// Ends it.
    pub(crate) fn leave(&mut self, reading: Reading) {
        self.repeated += reading.repeated;
        if let Some(origin) = reading.origin.filter(|_| reading.is_twice && !reading.lines.is_empty()) {
            self.read.entry(origin).or_default().push(reading.lines);
        }
    }
}

impl Reading {
    /// Whether no file before had the line.
    pub(crate) fn is_new(&mut self, seq: u64) -> bool {
        let is_new = !self.is_twice || !self.before.iter().any(|lines| lines.contains(&seq));
        self.lines.end = self.lines.end.max(seq.saturating_add(1));
        self.repeated += u64::from(!is_new);
        is_new
    }
}
