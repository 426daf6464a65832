//! The command tree of a program as a table, which help, `reference`, completions and the tests of the manual read.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};

use crate::program::identity::{Program, VerbDoc};
use crate::program::standard;

/// A verb that a user can name, or the default verb.
pub(super) struct Verb<'a> {
    /// Its words; empty for the default verb, whose options are those of the root.
    pub(super) path: String,
    pub(super) command: &'a Command,
}

/// Returns the verbs that can run, in the order of the tree.
pub(super) fn verbs(root: &Command) -> Vec<Verb<'_>> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found
}

fn collect<'a>(command: &'a Command, path: &str, into: &mut Vec<Verb<'a>>) {
    if runs(command) {
        into.push(Verb { path: path.to_owned(), command });
    }
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        collect(verb, format!("{path} {}", verb.get_name()).trim_start(), into);
    }
}

/// True if a verb can run without a verb below it.
pub(super) fn runs(verb: &Command) -> bool {
    !verb.has_subcommands() || !verb.is_subcommand_required_set()
}

/// Returns the command at this path of visible verbs.
pub(super) fn at<'a>(root: &'a Command, path: &[String]) -> Option<&'a Command> {
    path.iter().try_fold(root, |here, word| here.find_subcommand(word).filter(|verb| !verb.is_hide_set()))
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

/// Returns the possible values of an argument; empty for a flag.
pub(super) fn values(argument: &Arg) -> Vec<PossibleValue> {
    let values = if argument.get_action().takes_values() { argument.get_possible_values() } else { Vec::new() };
    let is_boolean = values.iter().all(|value| matches!(value.get_name(), "true" | "false"));
    if is_boolean { Vec::new() } else { values.into_iter().filter(|value| !value.is_hide_set()).collect() }
}

/// Returns the default value.
pub(super) fn default(argument: &Arg) -> Option<String> {
    let values = if argument.get_action().takes_values() { argument.get_default_values() } else { &[] };
    let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
    (!values.is_empty()).then(|| values.join(","))
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

    /// Returns three example command lines for the program's help: of the default verb, of each group, then of each
    /// verb; long lines are excluded.
    pub(super) fn examples(&self) -> Vec<&'static str> {
        let main = self.doc("").map(|doc| doc.examples).unwrap_or_default().iter().copied();
        let groups = self.groups.iter().filter_map(|(_, paths)| self.doc(paths.first()?)?.examples.first().copied());
        let verbs = self.verbs.iter().filter_map(|doc| doc.examples.first().copied());
        let mut chosen: Vec<&'static str> = Vec::new();
        for example in main.chain(groups).chain(verbs).filter(|example| example.replace("{}", self.name).len() <= 78) {
            if !chosen.contains(&example) && chosen.len() < 3 {
                chosen.push(example);
            }
        }
        chosen
    }
}
