//! A governed tree, named with `--root`: commands do not write its pristine paths and its append-only ledgers.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::Result;
use cp_common::home::{PathClass, classify, governed_roots};

use crate::refusal::denied;

/// A control plane root and its governed roots.
#[derive(Clone)]
pub(crate) struct Governed {
    root: PathBuf,
    roots: Vec<String>,
}

impl Governed {
    /// Reads the declarations of a root.
    pub(super) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), roots: governed_roots(root) }
    }

    /// Its governed roots and ledgers, including those that do not exist.
    pub(super) fn protected(&self) -> Vec<PathBuf> {
        self.pristine().into_iter().chain(self.ledgers()).collect()
    }

    /// Its governed roots. A prefix that points out of the tree is ignored.
    fn pristine(&self) -> Vec<PathBuf> {
        let roots = self.roots.iter().map(|prefix| self.root.join(prefix));
        roots.filter(|path| path.starts_with(&self.root) && *path != self.root).collect()
    }

    /// The directories of its ledgers.
    fn ledgers(&self) -> Vec<PathBuf> {
        let planes = fs::read_dir(self.root.join("planes")).into_iter().flatten().flatten();
        let below = planes.flat_map(|plane| ["ledger", "sessions"].map(|name| plane.path().join(name)));
        std::iter::once(self.root.join("ledger")).chain(below).collect()
    }

    /// Refuses to write a pristine path or a ledger.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        let class = classify(&self.root, path, &self.roots);
        let (rule, hint) = match class {
            PathClass::Pristine => {
                ("pristine", "governed parts of a tree are changed by its own programs, never by a command")
            }
            PathClass::AppendOnly => {
                ("append_only", "ledgers are written by the programs that keep them, never by a command")
            }
            PathClass::Derived | PathClass::Unknown | PathClass::External => return Ok(()),
        };
        Err(denied("write", path).with("rule", rule).with("class", class.name()).hint(hint))
    }
}
