//! The bounds of a policy or a module: paths that may be read, written and executed, and forbidden paths.

use std::fs;
use std::path::{Path, PathBuf};

use super::patterns::{Anchors, Pattern, covering, patterns};
use crate::nofollow::{self, Link};

/// The kind of access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Execute,
}

impl Access {
    /// The verb of a refusal.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Bounds {
    /// The lists of paths, by [`Access`].
    lists: [Vec<Pattern>; 3],
    /// Paths that may be neither read nor written, even if another list contains them.
    pub forbidden: Vec<Pattern>,
    /// True if nothing may be written now. The write list still tells which paths other commands may have written.
    pub read_only: bool,
}

impl Bounds {
    /// Parses the lists of a policy or a module: read, write and execute.
    pub(super) fn of(lists: [&[String]; 3], forbidden: &[String], at: &Anchors) -> Self {
        let lists = lists.map(|texts| patterns(texts, at));
        Self { lists, forbidden: patterns(forbidden, at), read_only: false }
    }

    /// Adds a path that may be read, and executed if it is a program or a directory of programs.
    pub(super) fn allow(&mut self, pattern: Pattern, is_program: bool) {
        self.lists[Access::Execute as usize].extend(is_program.then(|| pattern.clone()));
        self.lists[Access::Read as usize].push(pattern);
    }

    pub(super) fn list(&self, access: Access) -> &[Pattern] {
        if access == Access::Write && self.read_only { &[] } else { &self.lists[access as usize] }
    }

    /// True if a path is listed for this access. Forbidden paths are checked separately.
    pub(crate) fn lists(&self, access: Access, path: &Path) -> bool {
        self.list(access).iter().any(|pattern| pattern.matches(path))
    }

    /// True if commands may have written a path.
    pub(super) fn is_written(&self, path: &Path) -> bool {
        self.lists[Access::Write as usize].iter().any(|pattern| pattern.matches(path))
    }

    /// The pattern that forbids a path.
    pub(crate) fn forbidding(&self, path: &Path) -> Option<&Pattern> {
        covering(&self.forbidden, path)
    }

    /// Every pattern that grants access.
    pub(super) fn granting(&self) -> impl Iterator<Item = &Pattern> {
        self.lists.iter().flatten()
    }

    /// The links on the granted paths. Programs use these paths by their names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.granting().flat_map(Pattern::links)
    }

    /// The listed trees that exist. The kernel can enforce these. The root stands for the directories in it, because
    /// nothing can be mounted over the root of a view.
    pub(crate) fn trees(&self, access: Access) -> Vec<PathBuf> {
        let all = self.list(access).iter().filter_map(Pattern::tree).flat_map(|path| match path.parent() {
            Some(_) => vec![path.to_owned()],
            None => directories_of_root(),
        });
        all.filter(|path| is_there(path)).collect()
    }

    /// The trees that may be executed. Kernel rules need an existing path, so a missing tree below a writable one is
    /// represented by its nearest existing ancestor.
    pub(crate) fn executable(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let is_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        let declared = self.list(Access::Execute).iter().filter_map(Pattern::tree);
        let absent =
            declared.filter(|path| !is_there(path) && is_writable(path) && nofollow::first_link(path).is_none());
        let above = absent.filter_map(|path| path.ancestors().find(|above| is_there(above)).map(Path::to_owned));
        self.trees(Access::Execute).into_iter().chain(above).collect()
    }

    /// Removes patterns that grant access through a hostile link, and returns one message for each. A link is hostile
    /// if commands can write to its directory, or if it leaves the directory under which the pattern was declared.
    pub(super) fn remove_linked(&mut self) -> Vec<String> {
        let roots = self.written();
        let mut removed = Vec::new();
        for patterns in &mut self.lists {
            patterns.retain(|pattern| {
                let refused = pattern.check_links(&roots).and_then(|()| pattern.check_root()).err();
                removed.extend(refused.as_ref().map(|error| error.message().to_owned()));
                refused.is_none()
            });
        }
        removed
    }

    /// The trees that are writable by name, even if they are guarded.
    pub(crate) fn written(&self) -> Vec<PathBuf> {
        self.lists[Access::Write as usize].iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)).collect()
    }
}

/// True if a path exists and has no link on it.
fn is_there(path: &Path) -> bool {
    nofollow::open(path).is_ok_and(|file| file.is_some())
}

/// Directories that each view makes itself.
const OF_VIEW: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];

fn directories_of_root() -> Vec<PathBuf> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| path.is_dir() && !OF_VIEW.iter().any(|other| path == Path::new(other));
    entries.map(|entry| entry.path()).filter(is_shown).collect()
}
