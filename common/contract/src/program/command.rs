//! The command tree of a program: as a table, which `reference`, completions and the tests of the manual read, and as
//! help. clap formats usage and options; the verbs below a verb, which clap would omit, and the examples are put around
//! them.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};

use crate::program::identity::{Input, Program, VerbDoc};
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

/// Longer lines would be harder to read.
const WIDTH: usize = 80;

/// Formats the help of a command that clap has built: the program, or a verb of it.
pub(super) fn help(program: &Program, root: &Command, verb: &Command, is_short: bool) -> String {
    let name = verb.get_bin_name().unwrap_or(program.name);
    let path = name.strip_prefix(program.name).unwrap_or_default().trim_start();
    let is_root = path.is_empty();
    let mut page = verb
        .clone()
        .mut_args(|argument| shown(argument, is_short))
        .mut_subcommands(|below| below.hide(true))
        .help_template("{all-args}")
        .max_term_width(WIDTH);
    let about = if is_root { program.about.to_owned() } else { about(verb) };
    let runs = runs(verb);
    let own = runs.then(|| page.render_usage().to_string().replacen("Usage: ", "", 1));
    let inputs = program.doc(path).map(|doc| doc.input).unwrap_or_default().iter();
    let nouns: Vec<_> = inputs.filter(|input| **input != Input::Person).map(|input| format!("{input:?}")).collect();
    let fed = (!nouns.is_empty()).then(|| format!("{} | {name} [OPTIONS]", nouns.join(" or ").to_lowercase()));
    let below = verb.has_subcommands().then(|| format!("{name} VERB [OPTIONS] [OPERANDS]"));
    let usage = own.into_iter().chain(fed).chain(below).collect::<Vec<_>>().join("\n       ");
    let examples = examples(program, path, is_short);
    let options = page.render_help().to_string();
    let verbs = list_of_verbs(program, root, path, is_short);
    let more = if is_short {
        let standard = standard::VERBS.map(|doc| doc.path).join(", ");
        format!("Every program has: {standard}.\n`{name} --help` has every option")
    } else {
        format!("`{} VERB --help` has the options of a verb", program.name)
    };
    let parts = [format!("{name}: {about}"), format!("Usage: {usage}"), examples, options, verbs];
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
    format!(
        "{}\n\nResults are text at a terminal and JSON elsewhere; --format chooses.\n{more}, `man {}` the whole manual.\n",
        parts.join("\n\n"),
        program.name
    )
}

/// Short help has one list of options with the first clause of each description.
fn shown(argument: Arg, is_short: bool) -> Arg {
    let shared = |argument: Arg| argument.help_heading("Options of every program").hide_short_help(true);
    let argument = match argument.get_id().as_str() {
        "help" => shared(argument).help("Print help; -h prints a shorter one"),
        "version" => shared(argument).help("Print the version"),
        _ if argument.is_positional() => argument.help_heading(Resettable::Reset),
        _ => argument,
    };
    if !is_short {
        return argument.hide_short_help(false);
    }
    let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let end = text.find("; ").into_iter().chain(text.find(" (")).min().unwrap_or(text.len());
    let takes_value = argument.get_action().takes_values();
    argument.help(text[..end].to_owned()).help_heading(Resettable::Reset).hide_possible_values(takes_value)
}

/// Formats the examples of a verb; for the program those of the default verb, of each group, then of each verb.
fn examples(program: &Program, path: &str, is_short: bool) -> String {
    let own = program.doc(path).map(|doc| doc.examples).unwrap_or_default().iter();
    let groups = program.groups.iter().filter_map(|(_, paths)| program.doc(paths.first()?)?.examples.first());
    let others = groups.chain(program.verbs.iter().filter_map(|doc| doc.examples.first()));
    let mut lines: Vec<String> = Vec::new();
    for example in own.chain(others.filter(|_| path.is_empty())) {
        let line = format!("  {}", example.replace("{}", program.name));
        if !lines.contains(&line) && (line.len() <= WIDTH || !path.is_empty()) {
            lines.push(line);
        }
    }
    lines.truncate(if is_short { 1 } else { 3 });
    format!("Examples:\n{}", lines.join("\n"))
}

/// Formats the verbs below `above` that a user can name, under the program's headings.
fn list_of_verbs(program: &Program, root: &Command, above: &str, is_short: bool) -> String {
    let all = verbs(root);
    let whole = [("Verbs", &program.verbs.iter().map(|doc| doc.path).collect::<Vec<_>>()[..])];
    let groups = if program.groups.is_empty() { &whole } else { program.groups };
    let standard = standard::VERBS.map(|doc| doc.path);
    let standard = (!is_short).then_some(("Verbs of every program", &standard[..]));
    let list = |(heading, paths): (&'static str, &[&'static str])| {
        let below = paths.iter().filter(|path| {
            !path.is_empty() && (above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(' ')))
        });
        let found = below.filter_map(|path| Some((path, all.iter().find(|(verb, _)| verb == path)?.1)));
        let rows: Vec<Command> = found.map(|(path, verb)| Command::new(*path).about(about(verb))).collect();
        if rows.is_empty() {
            return String::new();
        }
        let list = Command::new("").subcommands(rows).subcommand_help_heading(heading).help_template("{all-args}");
        let mut list = list.disable_help_flag(true).disable_help_subcommand(true).max_term_width(WIDTH);
        list.render_help().to_string() + "\n"
    };
    groups.iter().copied().chain(standard).map(list).collect()
}
