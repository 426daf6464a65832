//! The tests over arguments that the data of the rules contains.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A test over arguments: all of its members hold.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Clause {
    /// The program's own command is one of these: `push`, or `stash drop`.
    pub(super) command: Vec<String>,
    pub(super) not_command: Vec<String>,
    /// One of these options is given.
    pub(super) options: Vec<String>,
    /// None of these options is given.
    pub(super) no_options: Vec<String>,
    /// One of these options has a value of one of these forms.
    pub(super) values: BTreeMap<String, Vec<String>>,
    /// An operand after the command has one of these forms.
    pub(super) operands: Vec<String>,
    /// An operand, or the value of an option, has one of these forms, whatever the case of its letters.
    pub(super) words: Vec<String>,
    /// At least this many operands follow the command.
    pub(super) at_least: usize,
    /// An operand follows `--`.
    pub(super) after_dashes: bool,
    /// An operand names an existing file, or is a pattern.
    pub(super) existing: bool,
    /// An operand resolves to one of these places.
    pub(super) places: Vec<Place>,
}

/// A place whose removal destroys more than the files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    /// The project's root, the home, or a directory above one of them.
    Root,
    /// `.git`, or a part of it that is not a lock.
    Repository,
}
