//! The verbs that every program has, and `--fields` of every query.

use serde_json::Value;

use crate::program::identity::{Class, Program, VerbDoc};
use crate::wire::fields::Fields;
use crate::wire::{Code, Error, Result, schemas};

/// The verbs of every program.
pub(crate) const VERBS: [VerbDoc; 5] = [
    doc(
        "reference",
        "reference",
        &["{} reference", "{} reference --fields options", "{} reference --verb doctor --fields commands"],
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

/// The schemas of these verbs, and those that any verb may use.
pub(crate) const SCHEMAS: [(&str, &str); 8] = [
    ("reference", include_str!("../../schemas/reference.json")),
    ("context", include_str!("../../schemas/context.json")),
    ("doctor", include_str!("../../schemas/doctor.json")),
    ("changelog", include_str!("../../schemas/changelog.json")),
    ("completions", include_str!("../../schemas/completions.json")),
    schemas::PREVIEW,
    schemas::SUMMARY,
    schemas::ERROR,
];

/// Returns the words that people try first. Help does not list them.
pub(super) fn customary(program: &Program) -> Vec<clap::Command> {
    let words = clap::Arg::new("words").num_args(0..).trailing_var_arg(true);
    let update = program.doc("update").is_none().then(|| clap::Command::new("update"));
    let all = [clap::Command::new("help").arg(words), clap::Command::new("version")].into_iter().chain(update);
    all.map(|word| word.hide(true)).collect()
}

/// Returns the commands of these verbs.
pub(crate) fn commands(program: &Program) -> Vec<clap::Command> {
    vec![
        clap::Command::new("reference").about("Print every verb, option, schema, exit status and error code").arg(
            clap::Arg::new("verb").long("verb").value_name("VERB").help(
                "Only this verb, or those below it, and their schemas; '' is the verb that runs if none is named",
            ),
        ),
        clap::Command::new("context").about("Print the effective settings and the source of each"),
        clap::Command::new("doctor").about("Check the setup and report how to fix it").args(program.doctor.iter().map(
            |key| {
                clap::Arg::new(*key)
                    .long(*key)
                    .value_name("VALUE")
                    .help(format!("The {key} to check, instead of the configured one"))
            },
        )),
        clap::Command::new("changelog")
            .about("Print the changes of each version")
            .arg(clap::Arg::new("since").long("since").value_name("VERSION").help("Only versions newer than this one")),
        clap::Command::new("completions").about("Print the completions of a shell").arg(
            clap::Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(["bash", "zsh", "fish"])
                .help("The shell: bash, zsh or fish"),
        ),
    ]
}

const NAME: &str = "fields";

/// Adds the option to every query among a command and those below it.
pub(super) fn with_fields_option(program: &Program, command: clap::Command, path: &str) -> clap::Command {
    let is_query = program.doc(path).is_some_and(|doc| doc.class == Class::Query);
    let command = if is_query { command.arg(fields_option()) } else { command };
    command.mut_subcommands(|verb| {
        let path = format!("{path} {}", verb.get_name());
        with_fields_option(program, verb, path.trim_start())
    })
}

fn fields_option() -> clap::Arg {
    clap::Arg::new(NAME)
        .long(NAME)
        .value_name("A,B.C")
        .value_delimiter(',')
        .action(clap::ArgAction::Append)
        .hide_short_help(true)
        .help("Only these members, dotted names, separated by commas")
        .help_heading("Options of a query")
}

/// Returns the arguments of the verb itself.
fn own(matches: &clap::ArgMatches) -> &clap::ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| own(below))
}

/// True if the verb has a flag, and the command line gives it.
pub(super) fn is_set(matches: &clap::ArgMatches, flag: &str) -> bool {
    matches!(own(matches).try_get_one::<bool>(flag), Ok(Some(true)))
}

/// Returns the members that the command line selects, checked against the schema of the output.
pub(super) fn selected_fields(program: &Program, verb: &str, matches: &clap::ArgMatches) -> Result<Option<Fields>> {
    let Ok(Some(names)) = own(matches).try_get_many::<String>(NAME) else { return Ok(None) };
    let names: Vec<String> = names.cloned().collect();
    let output = program.doc(verb).map(|doc| doc.output).unwrap_or_default();
    let schema = program.schemas.iter().chain(&SCHEMAS).find(|(name, _)| *name == output);
    let text = schema.map_or("true", |(_, text)| *text);
    let schema: Value = serde_json::from_str(text)
        .map_err(|e| Error::new(Code::Unknown, format!("the schema `{output}` is broken: {e}")))?;
    Fields::of(&names, &schema).map(Some)
}
