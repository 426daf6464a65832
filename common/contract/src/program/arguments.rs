//! The command line: the verb may stand anywhere before `--`, free text needs no verb, and every mistake is an
//! [`Error`].

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory};
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;

use crate::context::options::Shared;
use crate::program::help::{Length, help};
use crate::program::identity::{Input, Program, VERSION};
use crate::program::usage::{not_utf8_error, usage_error};
use crate::program::{command, standard};
use crate::spelling::misspelt_verb;
use crate::wire::{Code, Error, Result};

pub(super) fn verb_of(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut here = matches;
    while let Some((name, below)) = here.subcommand() {
        words.push(name);
        here = below;
    }
    words.join(" ")
}

/// Builds the command tree of a program: its own verbs, and the verbs and options of every program.
pub(super) fn command_of<C: CommandFactory>(program: &'static Program) -> clap::Command {
    standard::with_fields_option(program, root_of(C::command(), program).subcommands(standard::commands(program)), "")
}

/// Builds the root of the command tree.
fn root_of(command: clap::Command, program: &'static Program) -> clap::Command {
    Shared::augment_args(command)
        .name(program.name)
        .about(program.about)
        .version(VERSION)
        .propagate_version(true)
        .disable_help_subcommand(true)
        .subcommand_required(program.implicit.is_none())
}

pub(super) enum Parsed {
    Matches(clap::ArgMatches),
    /// Help or the version, and the exit status to print it with.
    Words(String, u8),
}

pub(super) fn parse(program: &'static Program, command: &clap::Command, arguments: &[OsString]) -> Result<Parsed> {
    if let Some(words) = requested_text(program, command, arguments)? {
        return Ok(words);
    }
    let arguments = with_verb_first(program, command, arguments)?;
    // Only the selected verb is parsed, because building the others would take most of the start time.
    let meant = arguments.first().and_then(|verb| command.find_subcommand(verb)).cloned();
    let mut parser = match meant {
        Some(verb) => root_of(clap::Command::new(program.name), program).subcommand(verb),
        None => command.clone(),
    };
    let name = OsString::from(program.name);
    match parser.try_get_matches_from_mut(std::iter::once(name).chain(arguments.iter().cloned())) {
        Ok(matches) => Ok(Parsed::Matches(matches)),
        Err(e) if e.kind() == ErrorKind::DisplayHelp => {
            let length = if arguments.iter().any(|word| word == "--help") { Length::Long } else { Length::Short };
            Ok(Parsed::Words(help(program, command, &path_of(command, &arguments), length), 0))
        }
        Err(e) if e.kind() == ErrorKind::DisplayVersion => Ok(version(program)),
        Err(e) if is_verb_missing(&e) => Err(no_verb(program, command, &arguments)),
        Err(e) if e.kind() == ErrorKind::InvalidUtf8 => {
            Err(not_utf8_error(&arguments, |option| takes_path(command, option)))
        }
        Err(e) => Err(usage_error(program, command, &path_of(command, &arguments).join(" "), &e)),
    }
}

fn version(program: &Program) -> Parsed {
    Parsed::Words(format!("{} {VERSION}\n", program.name), 0)
}

/// Returns the help or the version if the command line requests it by the words `help` and `version`, or by being empty
/// at a terminal. Words after `--` are data.
fn requested_text(program: &Program, command: &clap::Command, arguments: &[OsString]) -> Result<Option<Parsed>> {
    let show = |path: &[String], length, exit| Ok(Some(Parsed::Words(help(program, command, path, length), exit)));
    let words = words_before_dashes(command, arguments);
    let operands: Vec<String> = words.into_iter().filter(|word| !is_option(word)).collect();
    let ends_in_dashes = arguments.iter().any(|word| word == "--");
    match operands.first().map(String::as_str).filter(|_| !ends_in_dashes) {
        Some("help") if command::at(command, &operands[1..]).is_some() => show(&operands[1..], Length::Long, 0),
        Some("version") if operands.len() == 1 => Ok(Some(version(program))),
        Some("update") if operands.len() == 1 && program.doc("update").is_none() => {
            let word = program.implicit.map(|_| format!("; to send the word: {} -- update", program.name));
            let hint = format!("cp-shell update updates all programs{}", word.unwrap_or_default());
            Err(Error::usage(format!("{} does not update itself", program.name)).hint(hint))
        }
        _ if arguments.is_empty() && has_nothing_to_do(program) => show(&[], Length::Short, Code::Usage.row().exit),
        _ => Ok(None),
    }
}

/// True if an empty command line at a terminal gives the program nothing to work on.
fn has_nothing_to_do(program: &Program) -> bool {
    let talks = program.doc("").is_some_and(|doc| doc.input.contains(&Input::Person));
    !talks && isatty(stdin()) && isatty(stdout())
}

/// Returns the words before `--`, without the values of options.
fn words_before_dashes(command: &clap::Command, arguments: &[OsString]) -> Vec<String> {
    let (mut words, mut skip) = (Vec::new(), false);
    for word in arguments.iter().take_while(|word| *word != "--") {
        if std::mem::take(&mut skip) {
            continue;
        }
        let word = word.to_string_lossy();
        skip = is_option(&word) && takes_the_next_word(command, &word);
        words.push(word.into_owned());
    }
    words
}

fn is_option(word: &str) -> bool {
    word != "-" && word.starts_with('-')
}

/// Returns the words of the selected verb; empty for the implicit verb.
fn path_of(command: &clap::Command, arguments: &[OsString]) -> Vec<String> {
    let words = words_before_dashes(command, arguments);
    let (mut here, mut path) = (command, Vec::new());
    for word in words.into_iter().filter(|word| !is_option(word)) {
        match here.find_subcommand(&word).filter(|verb| !verb.is_hide_set()) {
            Some(verb) => here = verb,
            None => break,
        }
        path.push(word);
    }
    path
}

fn is_verb_missing(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Makes the error for a command line that ends before its verb, or between the words of one.
fn no_verb(program: &Program, command: &clap::Command, arguments: &[OsString]) -> Error {
    let path = path_of(command, arguments).join(" ");
    let below: Vec<String> = command::verbs(program, command)
        .into_iter()
        .map(|verb| verb.path)
        .filter(|verb| path.is_empty() || verb.starts_with(&format!("{path} ")))
        .collect();
    let named = format!("{} {path}", program.name);
    Error::usage(format!("`{}` needs a verb", named.trim_end()))
        .with("verbs", below)
        .hint(format!("`{} --help` lists them", named.trim_end()))
}

/// True if an option of any verb takes a path, which may contain any bytes.
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

/// Moves the verb to the front, so that options may come before it, or inserts the implicit verb.
fn with_verb_first(program: &Program, command: &clap::Command, arguments: &[OsString]) -> Result<Vec<OsString>> {
    let mut arguments = arguments.to_vec();
    let first = first_operand(command, &arguments);
    let word = first.and_then(|at| arguments[at].to_str()).unwrap_or_default().to_owned();
    let named = command.find_subcommand(&word).is_some() && program.implicit != Some(word.as_str());
    if let (true, Some(at)) = (named, first) {
        let verb = arguments.remove(at);
        arguments.insert(0, verb);
        return Ok(arguments);
    }
    let Some(implicit) = program.implicit else { return Ok(arguments) };
    let before_end = arguments.iter().position(|word| word == "--").is_none_or(|end| first.is_some_and(|at| at < end));
    if before_end
        && is_alone(&arguments, first.unwrap_or_default())
        && let Some(verb) = misspelt(program, command, &word)
    {
        return Err(Error::usage(format!("`{word}` is close to the verb `{verb}`"))
            .with("nearest", verb)
            .hint(format!("write `{verb}`, or use -- to send it: {} -- {word}", program.name)));
    }
    arguments.insert(0, implicit.into());
    Ok(arguments)
}

/// True if no word follows the one at an index.
fn is_alone(arguments: &[OsString], at: usize) -> bool {
    arguments.len() == at + 1
}

/// The verb that a word misspells. A word that a shell finds as a program is not misspelt where programs are run.
fn misspelt<'a>(program: &Program, command: &'a clap::Command, word: &str) -> Option<&'a str> {
    let verbs = command.get_subcommands().map(clap::Command::get_name);
    let verb = misspelt_verb(word, verbs.filter(|name| Some(*name) != program.implicit))?;
    let implicit = program.implicit.and_then(|name| command.find_subcommand(name));
    let runs = implicit.is_some_and(|line| line.get_positionals().next().is_some_and(command::is_command));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = || std::env::split_paths(&path).any(|directory| directory.join(word).is_file());
    (!runs || !is_program()).then_some(verb)
}

/// Returns the index of the first operand before `--`.
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
        if !is_option(&word) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::identity::{Credentials, VerbDoc};

    #[derive(clap::Parser)]
    struct Cli {
        #[command(subcommand)]
        _verb: Verb,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        #[command(hide = true)]
        Run {
            #[arg(long)]
            _name: Option<String>,
            #[arg(trailing_var_arg = true)]
            _words: Vec<String>,
        },
        Check,
    }

    static PROGRAM: Program = Program {
        name: "cp-test",
        about: "a test",
        risk_tier: "T0",
        verbs: &[VerbDoc { path: "check", ..VerbDoc::EMPTY }],
        implicit: Some("run"),
        groups: &[],
        doctor: &[],
        environment: &[],
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
    fn help_words_after_dashes_are_data() {
        let command = command_of::<Cli>(&PROGRAM);
        let asks = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            matches!(parse(&PROGRAM, &command, &arguments), Ok(Parsed::Words(_, 0)))
        };
        let data =
            ["-- git --version", "-- df -h", "-- sort -V f", "-- --help", "--name x -- -h", "-- check", "-- help"];
        let data = data.into_iter().chain(["git --version", "df -h", "--name x df --help"]);
        for line in data.chain(["--name --help", "help me", "versions", "word help"]) {
            assert!(!asks(line), "{line}");
        }
        for line in ["--help", "-h", "--version", "-V", "--name x --help", "-h -- git", "help", "help check", "version"]
        {
            assert!(asks(line), "{line}");
        }
        assert_eq!(ordered("-- git --version"), "run -- git --version");
        assert_eq!(ordered("run"), "run run");
        assert_eq!(ordered("--name x check"), "check --name x");
    }

    #[test]
    fn program_help_lists_options_of_implicit_verb() {
        let command = command_of::<Cli>(&PROGRAM);
        let page = help(&PROGRAM, &command, &[], Length::Long);
        assert!(page.contains("\n      --name <NAME>") && page.contains("\n  check"), "{page}");
        assert!(!page.contains("cp-test run") && !page.contains("\n  run"), "{page}");
        let path = path_of(&command, &["run".into(), "--help".into()]);
        assert!(path.is_empty(), "{path:?}");
    }
}
