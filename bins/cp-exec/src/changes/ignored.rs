//! Files that git ignores: `.gitignore` of each directory up to the repository, and `info/exclude` of the repository.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The longest file of patterns that is read.
const LONGEST: u64 = 1 << 20;

/// The patterns of a directory and of the directories above it.
#[derive(Clone, Default)]
pub(super) struct Ignored(Option<Arc<Level>>);

struct Level {
    patterns: Gitignore,
    above: Ignored,
}

impl Ignored {
    /// The patterns that the directories above, in the same repository, define for a directory.
    pub(super) fn above(directory: &Path) -> Self {
        let is_repository = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
        if is_repository(directory) || !directory.ancestors().any(is_repository) {
            return Self::default();
        }
        directory.parent().map_or_else(Self::default, |parent| Self::above(parent).within(parent))
    }

    /// The patterns for a directory, including its own.
    pub(super) fn within(&self, directory: &Path) -> Self {
        let of_repository = directory.join(".git");
        let is_repository = of_repository.symlink_metadata().is_ok();
        let above = if is_repository { Self::default() } else { self.clone() };
        let mut builder = GitignoreBuilder::new(directory);
        let mut is_empty = true;
        for file in [of_repository.join("info/exclude"), directory.join(".gitignore")] {
            let is_short = file.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST);
            for line in
                is_short.then(|| fs::read(&file).ok()).flatten().unwrap_or_default().split(|byte| *byte == b'\n')
            {
                // Git also ignores invalid patterns.
                is_empty &= builder.add_line(None, &String::from_utf8_lossy(line)).is_err() || line.is_empty();
            }
        }
        match builder.build() {
            Ok(patterns) if !is_empty => Self(Some(Arc::new(Level { patterns, above }))),
            _ => above,
        }
    }

    /// True if git ignores an entry of the directory.
    pub(super) fn contains(&self, path: &Path, is_directory: bool) -> bool {
        let mut level = &self.0;
        while let Some(Level { patterns, above }) = level.as_deref() {
            match patterns.matched(path, is_directory) {
                Match::None => level = &above.0,
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
