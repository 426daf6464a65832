//! The words of a command, with patterns expanded in what policy lets commands see: what is hidden is not there.

use std::fs;
use std::path::Path;

use crate::lowering::glob::{Tree, expand};
use crate::lowering::steps::Word;
use crate::policy::{Policy, Seen};

/// What patterns are expanded in.
pub(crate) struct Expansion<'a>(Seen<'a>);

impl<'a> Expansion<'a> {
    pub(crate) fn of(policy: &'a Policy) -> Self {
        Self(policy.seen())
    }

    /// The words that a command is started with in a directory.
    pub(super) fn words(&self, words: &[Word], directory: &Path, status: u8) -> Vec<String> {
        let mut tree = Below { seen: &self.0, directory };
        words.iter().flat_map(|word| expand(word, status, &mut tree)).collect()
    }
}

/// What commands see from a directory.
struct Below<'a> {
    seen: &'a Seen<'a>,
    directory: &'a Path,
}

impl Tree for Below<'_> {
    fn names(&mut self, directory: &str) -> Vec<String> {
        let directory = self.directory.join(directory);
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        // A name that is not UTF-8 cannot be a word.
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| self.seen.shows(&directory.join(name))).collect()
    }

    fn exists(&mut self, path: &str) -> bool {
        let path = self.directory.join(path);
        path.symlink_metadata().is_ok() && self.seen.shows(&path)
    }

    fn is_directory(&mut self, path: &str) -> bool {
        let path = self.directory.join(path);
        path.is_dir() && self.seen.shows(&path)
    }
}
