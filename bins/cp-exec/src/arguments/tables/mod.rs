//! The tables: how the options of known programs read, and which of them run another command or a script.
//!
//! Data, a file for each kind of program. A program that is in none of them has a grammar in which any option may take a value.

mod archives;
mod build;
mod git;
mod interpreters;
mod npm;
mod text;
mod wrappers;

use super::grammar::Grammar;
use crate::glob::name_matches;

/// Programs that read their arguments alike.
pub(crate) struct Family {
    /// Their names; `*` stands for any run of characters.
    pub names: &'static [&'static str],
    pub grammar: Grammar,
    pub role: Role,
}

/// What a command does with its operands, where that calls for a reading of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Plain,
    /// It runs what follows.
    Wrapper(Wraps),
    /// Its first operand is a script.
    Interpreter {
        /// Options whose value is the script.
        file: &'static [&'static str],
    },
    Sed,
    /// Its first operand is a command of its own.
    Levels(Levels),
}

/// How a program runs another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wraps {
    /// How many operands come before the command.
    pub before: Before,
    /// Options by which it takes its command as a string, runs it in another directory, or under another name.
    pub rewrites: &'static [&'static str],
    /// An option whose value is words of the command.
    pub splits: &'static [&'static str],
    /// Options with which it runs nothing.
    pub idle: &'static [&'static str],
    /// It takes further words for the command from its input.
    pub feeds: bool,
    /// Options whose value is replaced by what is read.
    pub replaces: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Operands(usize),
    /// One, where it is a number.
    Number,
}

/// Commands within a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// Other names of commands.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Its commands, where a beginning of one stands for it.
    pub commands: &'static [&'static str],
    pub abbreviates: bool,
    pub then: Then,
}

/// How the words behind a command read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// As those before it.
    Same,
    /// All commands alike.
    All(Grammar),
    /// Each command by its letters and long names. A command that is not here is none of the program's own.
    Each(&'static [(&'static str, &'static str, &'static str)]),
}

/// What is known of a program.
pub(super) fn family_of(name: &str) -> Option<&'static Family> {
    let families = [
        wrappers::FAMILIES,
        git::FAMILIES,
        npm::FAMILIES,
        interpreters::FAMILIES,
        text::FAMILIES,
        archives::FAMILIES,
        build::FAMILIES,
    ];
    families.into_iter().flatten().find(|family| family.names.iter().any(|known| name_matches(known, name)))
}
