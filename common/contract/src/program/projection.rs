//! `--fields` of every query: the option, and the selected members.

use serde_json::Value;

use crate::program::identity::{Class, Program};
use crate::program::standard;
use crate::wire::fields::Fields;
use crate::wire::{Code, Error, Result};

const NAME: &str = "fields";

/// Adds the option to every query below a command.
pub(super) fn with_option(program: &'static Program, mut command: clap::Command, above: &str) -> clap::Command {
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in verbs {
        let path = format!("{above} {}", program.shown(&verb)).trim().to_owned();
        command = command.mut_subcommand(verb, |verb| {
            let verb = with_option(program, verb, &path);
            if class_of(program, &path) == Some(Class::Query) { verb.arg(option()) } else { verb }
        });
    }
    command
}

fn option() -> clap::Arg {
    clap::Arg::new(NAME)
        .long(NAME)
        .value_name("A,B.C")
        .value_delimiter(',')
        .action(clap::ArgAction::Append)
        .hide_short_help(true)
        .help("Only these members, dotted names, separated by commas")
        .help_heading("Options of a query")
}

fn class_of(program: &'static Program, path: &str) -> Option<Class> {
    program.verbs.iter().chain(&standard::VERBS).find(|doc| doc.path == path).map(|doc| doc.class)
}

/// Returns the members that the command line selects, checked against the schema of the output.
pub(super) fn asked(program: &'static Program, verb: &str, matches: &clap::ArgMatches) -> Result<Option<Fields>> {
    let mut own = matches;
    while let Some((_, below)) = own.subcommand() {
        own = below;
    }
    let Ok(Some(names)) = own.try_get_many::<String>(NAME) else { return Ok(None) };
    let names: Vec<String> = names.cloned().collect();
    let shown = program.shown(verb);
    let doc = program.verbs.iter().chain(&standard::VERBS).find(|doc| doc.path == shown);
    let output = doc.map(|doc| doc.output).unwrap_or_default();
    let schema = program.schemas.iter().chain(&standard::SCHEMAS).find(|(name, _)| *name == output);
    let text = schema.map_or("true", |(_, text)| *text);
    let schema: Value = serde_json::from_str(text)
        .map_err(|e| Error::new(Code::Unknown, format!("the schema `{output}` is broken: {e}")))?;
    Fields::of(&names, &schema).map(Some)
}
