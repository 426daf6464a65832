//! Paths that a policy hides or keeps read-only by name, such as `**/.env`. They are searched at any depth before
//! every run, because a command can move a file that an earlier command left.

use std::path::{Path, PathBuf};

use super::hidden::is_environment_file;
use super::patterns::Pattern;
use super::resolved::Policy;
use crate::glob::name_matches;

/// The paths that match names of the policy. A path is `pinned` if its pattern would no longer match after a
/// directory on the path was renamed.
#[derive(Default)]
pub(crate) struct MatchedPaths {
    pub hidden: Vec<PathBuf>,
    pub hidden_pinned: Vec<PathBuf>,
    pub kept: Vec<PathBuf>,
    pub kept_pinned: Vec<PathBuf>,
}

/// The names to search for, and the paths that match.
#[derive(Default)]
pub(super) struct NamePatterns {
    hidden: Vec<Pattern>,
    kept: Vec<Pattern>,
    pub found: MatchedPaths,
}

impl Policy {
    /// The names that this policy hides or keeps read-only.
    pub(super) fn names(&self) -> NamePatterns {
        let by_words = |patterns: &'_ [Pattern]| -> Vec<Pattern> {
            patterns.iter().filter(|pattern| pattern.tree().is_none()).cloned().collect()
        };
        let (hidden, kept) = (by_words(&self.bounds.forbidden), by_words(&self.pristine));
        NamePatterns { hidden, kept, found: MatchedPaths::default() }
    }
}

impl NamePatterns {
    /// True if an entry with this name could match. Other entries need no path, which saves time.
    pub(super) fn may_match(&self, name: &[u8]) -> bool {
        is_environment_file(name)
            || self
                .hidden
                .iter()
                .chain(&self.kept)
                .any(|pattern| pattern.last().is_none_or(|word| name_matches(word, name)))
    }

    /// Records an entry if it matches. True if it is hidden with everything in it.
    pub(super) fn record(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let meant = |patterns: &[Pattern]| {
            let meant = patterns.iter().filter(|pattern| match pattern.anywhere() {
                Some(word) => name_matches(word, name),
                None => pattern.matches(path),
            });
            // A path whose name alone decides matches again wherever it is moved.
            meant.map(|pattern| pattern.anywhere().is_none()).min()
        };
        let hidden = is_environment_file(name).then_some(false).or_else(|| meant(&self.hidden));
        match (hidden, meant(&self.kept)) {
            (Some(false), _) => self.found.hidden.push(path.to_owned()),
            (Some(true), _) => self.found.hidden_pinned.push(path.to_owned()),
            (None, Some(false)) => self.found.kept.push(path.to_owned()),
            (None, Some(true)) => self.found.kept_pinned.push(path.to_owned()),
            (None, None) => {}
        }
        hidden.is_some()
    }
}
