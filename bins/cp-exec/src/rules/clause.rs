//! Evaluates the clauses of rules over the arguments of a command and the places that they name.

use std::path::{Path, PathBuf};

use super::arguments::{Arguments, has_option, values_of};
use super::data::{Clause, Place};
use crate::glob::name_matches;
use crate::policy::{Policy, expand};

/// The directories that words are resolved against.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub cwd: &'a Path,
    pub project: &'a Path,
    pub home: &'a str,
}

impl<'a> Places<'a> {
    pub(super) fn of(policy: &'a Policy, home: &'a str, cwd: &'a Path) -> Self {
        Self { cwd, project: &policy.base, home }
    }

    /// The working directory of a command, after the options that change it.
    pub(super) fn directory(&self, arguments: &Arguments<'_>) -> PathBuf {
        arguments.directories().fold(self.cwd.to_owned(), |path, next| path.join(next))
    }

    /// The resolved path of a word.
    pub(super) fn path(&self, directory: &Path, word: &str) -> PathBuf {
        cp_common::home::resolved(&directory.join(expand(word, self.home)))
    }
}

impl Place {
    fn contains(self, path: &Path, places: &Places<'_>) -> bool {
        match self {
            Self::Root => [places.project, Path::new(places.home)].iter().any(|root| root.starts_with(path)),
            Self::Repository => {
                path.iter().any(|part| part == ".git") && path.extension().is_none_or(|extension| extension != "lock")
            }
        }
    }
}

impl Clause {
    pub(super) fn holds(&self, arguments: &Arguments<'_>, places: &Places<'_>) -> bool {
        let of_form = |forms: &[String], word: &str| forms.iter().any(|form| name_matches(form, word));
        let is_of_command = !self.command.is_empty();
        let options = arguments.options(is_of_command);
        let operands = if is_of_command { arguments.operands_of_command() } else { arguments.operands() };
        let values = options.iter().filter_map(|(_, value)| *value);
        let mut words = values.chain(arguments.operands().iter().map(|operand| operand.word));
        let is_off = |off: &[String]| values_of(options, off).any(|value| ["false", "none"].contains(&value));
        let exists = |word: &str| {
            let path = || places.directory(arguments).join(word);
            word != "-" && (word.contains(['*', '?', '[']) || std::fs::symlink_metadata(path()).is_ok())
        };
        let in_place = |word: &str| {
            let path = places.path(&places.directory(arguments), word);
            self.places.iter().any(|place| place.contains(&path, places))
        };
        (!is_of_command || arguments.is_command(&self.command))
            && !arguments.is_command(&self.not_command)
            && (self.options.is_empty() || has_option(options, &self.options))
            && (!has_option(options, &self.no_options) || is_off(&self.no_options))
            && self
                .values
                .iter()
                .all(|(option, forms)| values_of(options, &[option]).any(|value| of_form(forms, value)))
            && (self.operands.is_empty() || operands.iter().any(|operand| of_form(&self.operands, operand.word)))
            && (self.words.is_empty() || words.any(|word| of_form(&self.words, &word.to_ascii_lowercase())))
            && (self.at_least == 0 || operands.len() >= self.at_least)
            && (!self.after_dashes || operands.iter().any(|operand| operand.after_dashes))
            && (!self.existing || operands.iter().any(|operand| exists(operand.word)))
            && (self.places.is_empty() || operands.iter().any(|operand| in_place(operand.word)))
    }
}
