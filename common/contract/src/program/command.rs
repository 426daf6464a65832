//! The command tree of a program as a table, which help, `reference`, completions and the tests of the manual read.

use clap::{Arg, ArgAction, Command};

use crate::program::identity::{Program, VerbDoc};
use crate::program::standard;

/// Returns the verbs that can run, with their words, in the order of the tree. The default verb has none.
pub(super) fn verbs(root: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found
}

fn collect<'a>(command: &'a Command, path: &str, into: &mut Vec<(String, &'a Command)>) {
    if runs(command) {
        into.push((path.to_owned(), command));
    }
    for verb in below(command) {
        collect(verb, format!("{path} {}", verb.get_name()).trim_start(), into);
    }
}

/// Returns the verbs below a verb that help names.
pub(super) fn below(verb: &Command) -> impl Iterator<Item = &Command> {
    verb.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// True if a verb can run without a verb below it.
pub(super) fn runs(verb: &Command) -> bool {
    !verb.has_subcommands() || !verb.is_subcommand_required_set()
}

/// Returns the description of a verb.
pub(super) fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Returns the name as a user types it: `--long` or `-s`, or the name of the operand.
pub(super) fn name(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => value_name(argument),
    }
}

/// Returns the name of an option's value, or of an operand.
pub(super) fn value_name(argument: &Arg) -> String {
    match argument.get_value_names().unwrap_or_default() {
        [] => argument.get_id().as_str().to_uppercase(),
        words => words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// True if an argument may be given more than once.
pub(super) fn is_multiple(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append | ArgAction::Count)
        || argument.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// True if an operand is a command line to run, whose options are its own, as with env and timeout.
pub(super) fn is_command(operand: &Arg) -> bool {
    operand.is_last_set() || operand.is_trailing_var_arg_set()
}

impl Program {
    /// Returns the documentation of the verb with these words.
    pub(super) fn doc(&self, path: &str) -> Option<&VerbDoc> {
        self.verbs.iter().chain(&standard::VERBS).find(|doc| doc.path == path)
    }
}
