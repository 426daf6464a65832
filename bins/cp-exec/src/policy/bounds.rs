//! What may be read, written and executed, and what is forbidden: of a policy, and of each module.

use std::path::{Path, PathBuf};

use super::patterns::{Anchors, Pattern, covering};
use crate::place::{self, Link};
use crate::refusal::linked;

/// What is done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Execute,
}

impl Access {
    /// The word for it in a refusal.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
        }
    }
}

#[derive(Clone)]
pub(crate) struct Bounds {
    pub read: Vec<Pattern>,
    pub write: Vec<Pattern>,
    pub execute: Vec<Pattern>,
    /// Neither read nor written; this wins.
    pub forbidden: Vec<Pattern>,
    /// Nothing may be written now. What is listed counts all the same where it says what others may have written.
    pub read_only: bool,
}

impl Bounds {
    fn of(&self, access: Access) -> &[Pattern] {
        match access {
            Access::Read => &self.read,
            Access::Write if self.read_only => &[],
            Access::Write => &self.write,
            Access::Execute => &self.execute,
        }
    }

    /// Whether a path is listed for this access. What is forbidden is another question.
    pub(crate) fn lists(&self, access: Access, path: &Path) -> bool {
        self.of(access).iter().any(|pattern| pattern.matches(path))
    }

    /// The pattern that forbids a path.
    pub(crate) fn forbidding(&self, path: &Path) -> Option<&Pattern> {
        covering(&self.forbidden, path)
    }

    /// Every pattern, and whether it grants something.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Pattern, bool)> {
        let granting = self.read.iter().chain(&self.write).chain(&self.execute).map(|pattern| (pattern, true));
        granting.chain(self.forbidden.iter().map(|pattern| (pattern, false)))
    }

    /// The links on the way to what is granted. Programs know these paths by their names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.all().filter(|(_, grants)| *grants).flat_map(|(pattern, _)| pattern.links())
    }

    /// The listed trees that exist. The kernel can enforce these.
    pub(crate) fn trees(&self, access: Access) -> Vec<PathBuf> {
        trees(self.of(access))
    }

    /// The trees that may be executed. Kernel rules can only name what exists, so an absent tree in a writable one is represented by
    /// the nearest directory above it that exists.
    pub(crate) fn executable(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let is_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        let declared = self.execute.iter().filter_map(Pattern::tree);
        let absent = declared.filter(|path| !is_there(path) && is_writable(path) && place::first_link(path).is_none());
        let above = absent.filter_map(|path| path.ancestors().find(|above| is_there(above)).map(Path::to_owned));
        self.trees(Access::Execute).into_iter().chain(above).collect()
    }

    /// Removes the patterns that grant access through a hostile link, and returns one sentence for each: the link lies where commands
    /// can write, or leads out of the directory that the pattern was declared under.
    pub(super) fn remove_linked(&mut self) -> Vec<String> {
        let roots: Vec<PathBuf> = self.write.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect();
        let mut removed = Vec::new();
        for patterns in [&mut self.read, &mut self.write, &mut self.execute] {
            patterns.retain(|pattern| match (pattern.hostile_link(&roots), pattern.left(), pattern.links().last()) {
                (Some(link), ..) => {
                    removed.push(linked(pattern.text(), &link.at, "which lies where commands can write"));
                    false
                }
                (None, Some(root), Some(link)) => {
                    removed.push(linked(pattern.text(), &link.at, &format!("which leads out of {}", root.display())));
                    false
                }
                _ => true,
            });
        }
        removed.iter().map(|error| error.message().to_owned()).collect()
    }
}

/// Whether anything is at a path, with no link on the way to it.
fn is_there(path: &Path) -> bool {
    place::open(path).is_ok_and(|file| file.is_some())
}

/// The patterns that some texts stand for.
pub(super) fn patterns(texts: &[String], anchors: &Anchors) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text, anchors)).collect()
}

/// Everything that some patterns name and that is there.
pub(super) fn present(patterns: &[Pattern]) -> Vec<PathBuf> {
    patterns.iter().flat_map(Pattern::present).collect()
}

/// The trees of some patterns that exist.
pub(super) fn trees(patterns: &[Pattern]) -> Vec<PathBuf> {
    patterns.iter().filter_map(Pattern::tree).filter(|path| is_there(path)).map(Path::to_owned).collect()
}
