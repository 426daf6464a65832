//! The command tree of a program: the verbs that every program has, `--fields` of every query, the tree as a table for
//! `reference` and completions, and help. clap formats usage and options; the verbs below a verb, which clap would omit,
//! and the examples are put around them.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, ArgMatches, Command, Subcommand as _};
use serde_json::Value;

use crate::program::identity::{Class, Input, Program, VerbDoc};
use crate::wire::Result;
use crate::wire::fields::Fields;

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
        self.verbs.iter().chain(&VERBS).find(|doc| doc.path == path)
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
        let standard = VERBS.map(|doc| doc.path).join(", ");
        format!("Every program has: {standard}.\n`{name} --help` has every option")
    } else {
        format!("`{} VERB --help` has a verb's options", program.name)
    };
    let parts = [format!("{name}: {about}"), format!("Usage: {usage}"), examples, options, verbs];
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
    format!(
        "{}\n\nResults are text at a terminal and JSON elsewhere; --format chooses.\n{more}, `man {}` the manual.\n",
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
    let standard = VERBS.map(|doc| doc.path);
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

/// The verbs of every program.
pub(crate) const VERBS: [VerbDoc; 5] = [
    doc(
        "reference",
        "reference",
        &["{} reference", "{} reference --fields risk_tier", "{} reference --verb doctor --fields commands"],
    ),
    doc("context", "context", &["{} context"]),
    doc("doctor", "doctor", &["{} doctor"]),
    doc("changelog", "changelog", &["{} changelog", "{} changelog --since 0.0.1"]),
    doc("completions", "completions", &["{} completions bash"]),
];

const fn doc(path: &'static str, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, output, examples, ..VerbDoc::EMPTY }
}

/// The variables of the environment that every program reads.
pub(crate) const ENVIRONMENT: [(&str, &str); 5] = [
    ("CP_HOME", "The home directory, unless --home names one"),
    ("XDG_DATA_HOME", "The directory of data: cp in it is the home, unless CP_HOME is set"),
    (
        "XDG_CONFIG_HOME",
        "The directory of configuration: cp in it has the settings and the policy, unless CP_HOME is set",
    ),
    ("XDG_STATE_HOME", "The directory of state: cp in it has approvals and locks, unless CP_HOME is set"),
    ("CP_FORMAT", "The format of results: json, text or raw"),
];

/// The verbs by which every program describes itself.
#[derive(clap::Subcommand)]
pub(super) enum Standard {
    /// Print every verb, option, schema, status and error code
    Reference {
        /// Only this verb, or those below it, and their schemas; '' is the verb that runs if none is named
        #[arg(long)]
        verb: Option<String>,
    },
    /// Print the effective settings and the source of each
    Context,
    /// Check the setup and report how to fix it
    Doctor,
    /// Print the changes of each version
    Changelog {
        /// Only versions newer than this one
        #[arg(long, value_name = "VERSION")]
        since: Option<String>,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell: bash, zsh or fish
        #[arg(value_parser = ["bash", "zsh", "fish"])]
        shell: String,
    },
}

/// Adds these verbs, and the words that people try first, which help does not list.
pub(super) fn with_verbs(program: &Program, command: Command) -> Command {
    let words = Arg::new("words").num_args(0..).trailing_var_arg(true);
    let update = program.doc("update").is_none().then(|| Command::new("update"));
    let customary = [Command::new("help").arg(words), Command::new("version")].into_iter().chain(update);
    Standard::augment_subcommands(command).subcommands(customary.map(|word| word.hide(true)))
}

const NAME: &str = "fields";

/// Adds the option to every query among a command and those below it.
pub(super) fn with_fields_option(program: &Program, command: Command, path: &str) -> Command {
    let is_query = program.doc(path).is_some_and(|doc| doc.class == Class::Query);
    let command = if is_query { command.arg(fields_option()) } else { command };
    // The parser of an option refuses a negative number with the reason.
    let command = command.mut_args(|arg| {
        let takes_number = !arg.is_positional() && arg.get_action().takes_values();
        if takes_number { arg.allow_negative_numbers(true) } else { arg }
    });
    command.mut_subcommands(|verb| {
        let path = format!("{path} {}", verb.get_name());
        with_fields_option(program, verb, path.trim_start())
    })
}

fn fields_option() -> Arg {
    Arg::new(NAME)
        .long(NAME)
        .value_name("A,B.C")
        .value_delimiter(',')
        .action(ArgAction::Append)
        .hide_short_help(true)
        .help("Only these members, dotted names, separated by commas")
        .help_heading("Options of a query")
}

/// Returns the arguments of the verb itself.
fn own(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| own(below))
}

/// True if the verb has a flag, and the command line gives it.
pub(super) fn is_set(matches: &ArgMatches, flag: &str) -> bool {
    matches!(own(matches).try_get_one::<bool>(flag), Ok(Some(true)))
}

/// Returns the members that the command line selects, checked against the schema of the output.
pub(super) fn selected_fields(program: &Program, verb: &str, matches: &ArgMatches) -> Result<Option<Fields>> {
    let Ok(Some(names)) = own(matches).try_get_many::<String>(NAME) else { return Ok(None) };
    let names: Vec<String> = names.cloned().collect();
    let output = program.doc(verb).map(|doc| doc.output).unwrap_or_default();
    let schema = program.schemas.iter().chain(SHARED).find(|(name, _)| *name == output);
    let schema = schema.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or(Value::Bool(true));
    Fields::of(&names, &schema).map(Some)
}

macro_rules! shared {
    ($($name:literal),*) => {
        /// The schemas, each a name and a text. `reference` has those that an output of the program names.
        pub(crate) const SHARED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*];
    };
}

shared!(
    "changelog",
    "completions",
    "context",
    "delta",
    "doctor",
    "error",
    "message",
    "passed",
    "preview",
    "prompt",
    "receipt",
    "reference",
    "summary",
    "tool_call",
    "tool_result"
);
