//! How the ledgers that `cp-log verify` finds stand to a bound of many.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use cp_common::output::Severity;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::bound::{Bound, Member};
use cp_ledger::proof::fault::Kind;
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::read::source::is_stdin;

use crate::reading::Group;
use crate::verified::Standing;

/// A bound, and which ledgers were found.
pub(crate) struct Bounded {
    bound: Bound,
    origins: HashMap<PathBuf, String>,
}

impl Bounded {
    /// Reads a bound. A wrong signature fails at once: nothing could be said of any ledger.
    pub(crate) fn load(path: &Path, key: Option<&Verifier>) -> Result<Bound> {
        let bound = Bound::load(path)?;
        key.map_or(Ok(()), |key| bound.demand(key, path))?;
        Ok(bound)
    }

    /// Looks up what each ledger is named. Of two that have one name each has to hold; one that was moved gets a notice.
    pub(crate) fn of(bound: Bound, groups: &[Group], context: &mut Context) -> Result<Self> {
        let mut origins = HashMap::new();
        for group in groups {
            let Some(first) = group.files.first().filter(|_| !group.is_part()) else { continue };
            if is_stdin(&first.path) || first.path.exists() && !first.path.is_file() {
                let error = Error::usage("cannot compare a pipe or standard input with a bound");
                return Err(error.in_file(&first.path).hint("name a file or a directory"));
            }
            // What cannot be read is reported with the rest.
            let Ok(Some(origin)) = origin_of(&first.path) else { continue };
            if let Some((_, member)) = bound.find(&origin).filter(|(_, one)| !group.ledger.ends_with(&one.file)) {
                let message = format!("{} was bound as {}", group.ledger.display(), member.file);
                context.out.notice("moved", Severity::Warning, message);
            }
            origins.insert(group.ledger.clone(), origin);
        }
        Ok(Self { bound, origins })
    }

    fn member(&self, ledger: &Path) -> Option<&Member> {
        self.bound.find(self.origins.get(ledger)?).map(|(_, member)| member)
    }

    /// What was signed of a ledger that is bound.
    pub(crate) fn signed(&self, ledger: &Path) -> Option<(Note, Checkpoint)> {
        Some((self.bound.note().clone(), self.member(ledger)?.checkpoint.clone()))
    }

    /// Whether a note is the bound's.
    pub(crate) fn is_signed_by(&self, note: &Note) -> bool {
        self.bound.note() == note
    }

    /// How a ledger stands that has these faults and this last line, of whose lines so many were found to be those that were signed.
    pub(crate) fn standing(
        &self,
        ledger: &Path,
        fault: Option<Kind>,
        covered: Option<u64>,
        last: Option<u64>,
    ) -> Option<Standing> {
        self.origins.get(ledger)?;
        Some(match (self.member(ledger), fault, covered) {
            (None, ..) => Standing::Added,
            (Some(_), Some(Kind::Rollback), _) => Standing::WentBack,
            // The one where what was bound ends in a closed segment that is absent, the other where its lines are damaged.
            (Some(_), Some(Kind::Segment), _) | (Some(_), None, None) => Standing::Damaged,
            (Some(_), Some(_), _) => Standing::Changed,
            (Some(_), None, Some(size)) if last.is_some_and(|last| last >= size) => Standing::Grown,
            (Some(_), None, Some(_)) => Standing::Intact,
        })
    }

    /// An error for each ledger that is bound and is none of those that were judged: what only has its name does not stand for it.
    pub(crate) fn missing(&self, judged: &HashSet<&Path>) -> impl Iterator<Item = Error> {
        let is_judged = |(ledger, _): &(&PathBuf, &String)| judged.contains(ledger.as_path());
        let found: HashSet<&String> = self.origins.iter().filter(is_judged).map(|(_, origin)| origin).collect();
        let is_missing = move |member: &&Member| !found.contains(&member.checkpoint.origin);
        self.bound.members().iter().filter(is_missing).map(|member| {
            let Checkpoint { origin, size, .. } = &member.checkpoint;
            let message = format!("missing: the bound has {origin} with {size} lines");
            Error::new(Code::Integrity, message)
                .in_file(Path::new(&member.file))
                .with("bound", "missing")
                .with("origin", origin.as_str())
                .with("lines", *size)
                .hint("restore it; if it was moved, also name the directory where it is now")
        })
    }
}
