//! The verbs that every program has, and `--fields` of every query.

use clap::{Arg, ArgMatches, Command, Subcommand as _};
use serde_json::Value;

use crate::program::identity::{Class, Program, VerbDoc};
use crate::wire::Result;
use crate::wire::fields::Fields;
use crate::wire::schemas::SHARED;

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
    /// Print every verb, option, schema, exit status and error code
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
        .action(clap::ArgAction::Append)
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
