//! What ledgers are named in their first lines: a copy is reported, and where lines are counted each counts once.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use cp_common::Context;
use cp_common::output::Severity;
use cp_ledger::proof::leaves::head_of;
use cp_ledger::read::source::is_stdin;

use super::files::{Rank, Target};

/// How many copies are named one by one.
const NAMED: usize = 100;

/// What a file begins with: the name of its ledger, and the number of its first line. Copies begin alike.
pub(super) type Beginning = (String, u64);

#[derive(Default)]
pub(crate) struct Origins {
    pub(super) files: HashMap<PathBuf, Beginning>,
    /// The line up to which a file was read that begins so.
    pub(super) read: HashMap<Beginning, u64>,
    /// How many entries were left out because they were read in another file.
    pub(crate) repeated: u64,
}

impl Origins {
    /// Looks up the names. What can be read only once has none, and what cannot be read is reported where it is read.
    pub(crate) fn of(targets: &[Target], context: &mut Context) -> Self {
        let (mut this, mut named) = (Self::default(), HashMap::<Rank, String>::new());
        let (mut seen, mut said) = (HashMap::<Beginning, Rank>::new(), HashSet::new());
        for target in targets.iter().filter(|target| !is_stdin(&target.path) && target.path.is_file()) {
            let Ok(Some((first, origin))) = head_of(&target.path) else { continue };
            let rank = target.rank();
            // Only the first file of a ledger need say it.
            let Some(origin) = named.get(&rank).cloned().or(origin) else { continue };
            let other = &seen.entry((origin.clone(), first)).or_insert_with(|| rank.clone()).ledger;
            if *other != rank.ledger && said.len() < NAMED && said.insert(rank.ledger.clone()) {
                let (other, one) = (other.display(), rank.ledger.display());
                let message = format!("{other} and {one} have the same origin {origin}: one is a copy of the other");
                context.out.notice("origin_twice", Severity::Warning, message);
            }
            this.files.insert(target.path.clone(), (origin.clone(), first));
            named.insert(rank, origin);
        }
        this
    }
}
