//! The command line: the verb may stand anywhere before `--`, a free text needs none, and every mistake is an [`Error`].

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, CommandFactory};

use crate::context::options::Shared;
use crate::program::identity::{Program, VERSION};
use crate::program::not_text::not_text;
use crate::program::standard;
use crate::spelling::nearest;
use crate::wire::{Error, Result};

pub(super) fn verb_of(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut here = matches;
    while let Some((name, below)) = here.subcommand() {
        words.push(name);
        here = below;
    }
    words.join(" ")
}

/// The whole command tree of a program: its own verbs, the verbs and options of every program.
pub(super) fn command_of<C: CommandFactory>(program: &'static Program) -> clap::Command {
    root_of(C::command(), program).subcommands(standard::commands())
}

/// What stands above the verbs.
fn root_of(command: clap::Command, program: &'static Program) -> clap::Command {
    Shared::augment_args(command)
        .name(program.name)
        .about(program.about)
        .version(VERSION)
        .disable_help_subcommand(true)
        .subcommand_required(program.implicit.is_none())
}

pub(super) enum Parsed {
    Matches(clap::ArgMatches),
    /// Help or version.
    Words(String),
}

pub(super) fn parse(program: &'static Program, command: clap::Command, arguments: &[OsString]) -> Result<Parsed> {
    let arguments = with_verb_first(program, &command, arguments)?;
    // Most of the time to start would go into verbs that are not meant.
    let meant = arguments.first().and_then(|verb| command.find_subcommand(verb)).cloned();
    let mut command = match meant {
        Some(verb) => root_of(clap::Command::new(program.name), program).subcommand(verb),
        None => command,
    };
    let name = OsString::from(program.name);
    match command.try_get_matches_from_mut(std::iter::once(name).chain(arguments.iter().cloned())) {
        Ok(matches) => Ok(Parsed::Matches(matches)),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Parsed::Words(e.to_string()))
        }
        Err(e) if e.kind() == ErrorKind::InvalidUtf8 => {
            Err(not_text(&arguments, |option| takes_path(&command, option)))
        }
        Err(e) => Err(usage_error(program, &e)),
    }
}

/// Whether an option of any verb takes the path of a file, which may be any bytes.
fn takes_path(command: &clap::Command, name: &str) -> bool {
    let named = |option: &clap::Arg| {
        let short = option
            .get_short()
            .is_some_and(|short| name.strip_prefix('-').is_some_and(|rest| rest == short.to_string()));
        short || name.strip_prefix("--").is_some_and(|long| option.get_long() == Some(long))
    };
    let path = clap::builder::ValueParser::path_buf().type_id();
    let all = std::iter::once(command).chain(command.get_subcommands());
    all.flat_map(clap::Command::get_arguments)
        .any(|option| named(option) && option.get_value_parser().type_id() == path)
}

/// Moves the verb to the front, so that options may come before it; puts the implicit verb there where none is named.
fn with_verb_first(program: &Program, command: &clap::Command, arguments: &[OsString]) -> Result<Vec<OsString>> {
    let mut arguments = arguments.to_vec();
    let first = first_operand(command, &arguments);
    let word = first.and_then(|at| arguments[at].to_str()).unwrap_or_default().to_owned();
    let named =
        command.get_subcommands().any(|verb| verb.get_name() == word && program.implicit != Some(word.as_str()));
    if let (true, Some(at)) = (named, first) {
        let verb = arguments.remove(at);
        arguments.insert(0, verb);
        return Ok(arguments);
    }
    let Some(implicit) = program.implicit else { return Ok(arguments) };
    let only_help = |word: &OsString| ["--help", "-h", "--version", "-V"].iter().any(|known| word == known);
    // What follows `--` is data, whatever it looks like.
    if first.is_none() && arguments.iter().take_while(|word| *word != "--").any(only_help) {
        return Ok(arguments);
    }
    let verbs = command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != implicit);
    let before_end = arguments.iter().position(|word| word == "--").is_none_or(|end| first.is_some_and(|at| at < end));
    if before_end
        && !word.contains(char::is_whitespace)
        && let Some(verb) = nearest(&word, verbs)
    {
        return Err(Error::usage(format!("`{word}` is close to the verb `{verb}`"))
            .with("nearest", verb)
            .hint(format!("write `{verb}`, or use -- to send it: {} -- {word}", program.name)));
    }
    arguments.insert(0, implicit.into());
    Ok(arguments)
}

/// Where the first operand stands, if it stands before `--`.
fn first_operand(command: &clap::Command, arguments: &[OsString]) -> Option<usize> {
    let mut skip = false;
    for (at, word) in arguments.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let word = word.to_string_lossy();
        if word == "--" {
            return None;
        }
        if word == "-" || !word.starts_with('-') {
            return Some(at);
        }
        skip = takes_the_next_word(command, &word);
    }
    None
}

fn takes_the_next_word(command: &clap::Command, word: &str) -> bool {
    let all = std::iter::once(command).chain(command.get_subcommands());
    let mut options =
        all.flat_map(clap::Command::get_arguments).filter(|argument| argument.get_action().takes_values());
    if let Some(long) = word.strip_prefix("--") {
        return !long.contains('=') && options.any(|option| option.get_long() == Some(long));
    }
    let mut letters = word[1..].chars();
    let first = letters.next();
    letters.next().is_none() && options.any(|option| option.get_short() == first)
}

/// What clap found wrong, as our error: what, the nearest known name, and where to read on.
pub(super) fn usage_error(program: &Program, error: &clap::Error) -> Error {
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let message = first.strip_prefix("error: ").unwrap_or(&first).replace("subcommand", "verb");
    let known = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let suggestion = known.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(one)) => Some(one.clone()),
        Some(ContextValue::Strings(many)) => many.first().cloned(),
        _ => None,
    });
    let usage = Error::usage(message);
    match suggestion {
        Some(nearest) => usage.with("nearest", nearest.clone()).hint(format!("did you mean `{nearest}`?")),
        None => usage.hint(format!("`{} --help` lists the options", program.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::identity::Credentials;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(subcommand)]
        _verb: Verb,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        Run {
            #[arg(long)]
            _name: Option<String>,
            _words: Vec<String>,
        },
        Check,
    }

    static PROGRAM: Program = Program {
        name: "cp-test",
        about: "a test",
        risk_tier: "T0",
        verbs: &[],
        implicit: Some("run"),
        schemas: &[],
        checks: |_| Vec::new(),
        credentials: |_| Credentials::none_needed(),
        audit: |_| Ok(None),
    };

    fn ordered(line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let arguments = with_verb_first(&PROGRAM, &command_of::<Cli>(&PROGRAM), &arguments).unwrap();
        arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_that_ask_for_help_are_data_after_the_dashes() {
        for line in ["-- git --version", "-- df -h", "-- sort -V f", "-- --help", "--name x -- -h", "-- check"] {
            assert_eq!(ordered(line), format!("run {line}"));
        }
        for line in ["--help", "-h", "--version", "-V", "--name x --help", "-h -- git"] {
            assert_eq!(ordered(line), line, "help of the program itself");
        }
        assert_eq!(ordered("--name x check"), "check --name x");
    }
}
