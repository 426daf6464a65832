//! Commands within a program: their other names, and how what follows them reads.

use super::grammar::{Grammar, permuted};
use super::tables::{Levels, Then};

impl Levels {
    /// How the words behind a command read, where that differs from the words before it.
    pub(super) fn grammar_of(&self, command: &str) -> Option<Grammar> {
        match self.then {
            Then::Same => None,
            Then::All(grammar) => Some(grammar),
            Then::Each(commands) => {
                let known = commands.iter().find(|(name, ..)| *name == command);
                Some(known.map_or(permuted("", ""), |(_, letters, long)| permuted(letters, long)))
            }
        }
    }

    /// The name of a command that goes by another, or by an unambiguous beginning.
    pub(super) fn canonical(&self, word: &str) -> Option<&'static str> {
        let hyphened = hyphened(word);
        let word = hyphened.as_deref().unwrap_or(word);
        let aliased = |word: &str| self.aliases.iter().find(|(alias, _)| *alias == word).map(|(_, name)| *name);
        if let Some(name) = self.commands.iter().find(|name| **name == word).copied().or_else(|| aliased(word)) {
            return Some(name);
        }
        if !self.abbreviates {
            return None;
        }
        let names = self.commands.iter().chain(self.aliases.iter().map(|(alias, _)| alias));
        let mut meant = names.filter(|name| name.starts_with(word)).map(|name| aliased(name).unwrap_or(name));
        // Several that mean the same are still one; a version that has other commands may read it otherwise.
        meant.next()
    }
}

/// npm takes `distTag` for `dist-tag`.
fn hyphened(word: &str) -> Option<String> {
    word.bytes().any(|byte| byte.is_ascii_uppercase()).then(|| {
        let mut text = String::new();
        for c in word.chars() {
            if c.is_ascii_uppercase() {
                text.push('-');
            }
            text.push(c.to_ascii_lowercase());
        }
        text
    })
}
