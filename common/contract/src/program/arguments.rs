//! The command line as clap reads it. Free text needs no verb, and every mistake is an [`Error`].

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, Command, CommandFactory, FromArgMatches as _};
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;

use crate::context::options::Shared;
use crate::program::help::{Length, help};
use crate::program::identity::{Input, Program, VERSION};
use crate::program::usage::usage_error;
use crate::program::{command, completion, standard};
use crate::spelling::misspelt_verb;
use crate::wire::{Code, Error, Result};

/// Returns the words of the verb; empty for the default verb.
pub(super) fn verb_of(matches: &ArgMatches) -> String {
    let verbs = std::iter::successors(matches.subcommand(), |(_, below)| below.subcommand());
    verbs.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Builds the command tree of a program: its own verbs, and the verbs and options of every program.
pub(super) fn command_of<C: CommandFactory>(program: &Program) -> Command {
    let command = C::command().subcommands(standard::commands(program)).subcommands(standard::customary(program));
    Shared::augment_args(standard::with_fields_option(program, command, ""))
        .name(program.name)
        .about(program.about)
        .version(VERSION)
        .propagate_version(true)
        .disable_help_subcommand(true)
        .subcommand_required(program.doc("").is_none())
        // What the default verb requires, no other verb does.
        .subcommand_negates_reqs(true)
}

pub(super) enum Parsed {
    Matches(ArgMatches, Box<Shared>),
    /// Help, the version or completions, and the exit status to print it with.
    Words(String, u8),
}

pub(super) fn parse<C: CommandFactory>(program: &Program, arguments: &[OsString]) -> Result<Parsed> {
    if let Some((_, words)) = arguments.split_first().filter(|(first, _)| *first == completion::ASK) {
        return Ok(Parsed::Words(completion::candidates(&command_of::<C>(program), words), 0));
    }
    let page = |path: &[String], length| help(program, &command_of::<C>(program), path, length);
    if arguments.is_empty() && has_nothing_to_do(program) {
        return Ok(Parsed::Words(page(&[], Length::Short), Code::Usage.row().exit));
    }
    let taken = |matches: ArgMatches| match Shared::from_arg_matches(&matches) {
        Ok(options) => Ok(Parsed::Matches(matches, Box::new(options))),
        Err(error) => Err(usage_error(program, &command_of::<C>(program), &verb_of(&matches), &error)),
    };
    let version = || Ok(Parsed::Words(format!("{} {VERSION}\n", program.name), 0));
    let mut command = command_of::<C>(program);
    let matches = match command.try_get_matches_from_mut(line(arguments)) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayVersion => return version(),
        Err(e) => {
            let command = command_of::<C>(program);
            let path = path_of(&command, arguments);
            if e.kind() == ErrorKind::DisplayHelp {
                let length = if arguments.iter().any(|word| word == "--help") { Length::Long } else { Length::Short };
                return Ok(Parsed::Words(page(&path, length), 0));
            }
            return Err(refused(program, &command, &path.join(" "), &e));
        }
    };
    match matches.subcommand() {
        Some(("version", _)) => version(),
        Some(("help", own)) => {
            let path: Vec<String> = own.get_many("words").unwrap_or_default().cloned().collect();
            if command::at(&command, &path).is_none() {
                return Err(Error::usage(format!("{} has no verb `{}`", program.name, path.join(" ")))
                    .hint(format!("`{0} --help` lists them; to send a text: {0} -- TEXT", program.name)));
            }
            Ok(Parsed::Words(page(&path, Length::Long), 0))
        }
        Some(("update", _)) if program.doc("update").is_none() => {
            let word = program.doc("").map(|_| format!("; to send the word: {} -- update", program.name));
            let hint = format!("cp-shell update updates all programs{}", word.unwrap_or_default());
            Err(Error::usage(format!("{} does not update itself", program.name)).hint(hint))
        }
        Some((verb, _)) => check_nothing_before(&command, &matches, verb).and_then(|()| taken(matches)),
        None => check_spelling(program, &command, &matches, arguments).and_then(|()| taken(matches)),
    }
}

/// Returns the whole command line, because clap skips its first word.
fn line(arguments: &[OsString]) -> impl Iterator<Item = OsString> {
    std::iter::once(OsString::new()).chain(arguments.iter().cloned())
}

/// Returns the words of the verb that a command line names, though clap refuses the line or it requests help.
fn path_of(command: &Command, arguments: &[OsString]) -> Vec<String> {
    let lenient = command.clone().ignore_errors(true).disable_help_flag(true).disable_version_flag(true);
    let verb = lenient.try_get_matches_from(line(arguments)).map(|matches| verb_of(&matches)).unwrap_or_default();
    let path: Vec<String> = verb.split_whitespace().map(str::to_owned).collect();
    if command::at(command, &path).is_some() { path } else { Vec::new() }
}

/// True if an empty command line at a terminal gives the program nothing to work on.
fn has_nothing_to_do(program: &Program) -> bool {
    let talks = program.doc("").is_some_and(|doc| doc.input.contains(&Input::Person));
    !talks && isatty(stdin()) && isatty(stdout())
}

/// Makes the error for a command line that clap refuses.
fn refused(program: &Program, command: &Command, path: &str, error: &clap::Error) -> Error {
    match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            no_verb(program, command, path)
        }
        ErrorKind::InvalidUtf8 => {
            Error::usage("an argument is not UTF-8").hint("write it as UTF-8; only the paths of files may be any bytes")
        }
        _ => usage_error(program, command, path, error),
    }
}

/// Makes the error for a command line that ends before its verb, or between the words of one.
fn no_verb(program: &Program, command: &Command, path: &str) -> Error {
    let below: Vec<String> = command::verbs(command)
        .into_iter()
        .map(|verb| verb.path)
        .filter(|verb| path.is_empty() || verb.starts_with(&format!("{path} ")))
        .collect();
    let named = format!("{} {path}", program.name);
    Error::usage(format!("`{}` needs a verb", named.trim_end()))
        .with("verbs", below)
        .hint(format!("`{} --help` lists them", named.trim_end()))
}

/// Fails if an option or text of the default verb precedes another verb, which would ignore it.
fn check_nothing_before(root: &Command, matches: &ArgMatches, verb: &str) -> Result<()> {
    let is_given = |argument: &&clap::Arg| {
        let source = matches.value_source(argument.get_id().as_str());
        !argument.is_global_set() && source == Some(ValueSource::CommandLine)
    };
    let Some(argument) = root.get_arguments().find(is_given) else { return Ok(()) };
    let name = command::name(argument);
    Err(Error::usage(format!("{name} precedes the verb `{verb}`"))
        .hint("options of a verb come after it; a text that begins with a verb comes after --"))
}

/// Fails if all that the default verb gets is one word that misspells a verb. After `--` it is data.
fn check_spelling(program: &Program, root: &Command, matches: &ArgMatches, arguments: &[OsString]) -> Result<()> {
    let given = root.get_positionals().filter_map(|operand| matches.get_raw(operand.get_id().as_str()));
    let words: Vec<&str> = given.flatten().filter_map(|word| word.to_str()).collect();
    let [word] = words[..] else { return Ok(()) };
    let verbs = root.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name);
    let Some(verb) = misspelt_verb(word, verbs) else { return Ok(()) };
    // Where programs are run, a word that a shell finds as a program is not misspelt.
    let runs = root.get_positionals().any(command::is_command);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = || std::env::split_paths(&path).any(|directory| directory.join(word).is_file());
    if arguments.iter().any(|word| word == "--") || (runs && is_program()) {
        return Ok(());
    }
    Err(Error::usage(format!("`{word}` is close to the verb `{verb}`"))
        .with("nearest", verb)
        .hint(format!("write `{verb}`, or use -- to send it: {} -- {word}", program.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::identity::{Credentials, VerbDoc};

    #[derive(clap::Parser)]
    struct Cli {
        #[arg(long)]
        _name: Option<String>,
        #[arg(trailing_var_arg = true)]
        _words: Vec<String>,
        #[command(subcommand)]
        _verb: Option<Verb>,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        Check {
            #[arg(long)]
            _name: Option<String>,
        },
    }

    static PROGRAM: Program = Program {
        name: "cp-test",
        about: "a test",
        risk_tier: "T0",
        verbs: &[VerbDoc::EMPTY, VerbDoc { path: "check", ..VerbDoc::EMPTY }],
        groups: &[],
        doctor: &[],
        environment: &[],
        schemas: &[],
        checks: |_| Vec::new(),
        credentials: |_| Credentials::none_needed(),
        audit: |_| Ok(None),
    };

    fn parsed(line: &str) -> Result<Parsed> {
        parse::<Cli>(&PROGRAM, &line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn help_words_after_dashes_are_data() {
        let data =
            ["-- git --version", "-- df -h", "-- sort -V f", "-- --help", "--name x -- -h", "-- check", "-- help"];
        for line in data.into_iter().chain(["git --version", "df -h", "--name x df --help", "versions", "word help"]) {
            assert!(matches!(parsed(line), Ok(Parsed::Matches(matches, _)) if verb_of(&matches).is_empty()), "{line}");
        }
        for line in ["--name --help", "help me"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        for line in ["--help", "-h", "--version", "-V", "--name x --help", "-h -- git", "help", "help check", "version"]
        {
            assert!(matches!(parsed(line), Ok(Parsed::Words(_, 0))), "{line}");
        }
    }

    /// Only options of every program may precede a verb. A word near a verb is refused only alone.
    #[test]
    fn verb_follows_only_options_of_every_program() {
        let verb = |line: &str| match parsed(line) {
            Ok(Parsed::Matches(matches, _)) => verb_of(&matches),
            Ok(Parsed::Words(text, _)) => text,
            Err(error) => error.message().to_owned(),
        };
        for line in ["check --name x", "--home /x --json check", "check --home /x --json", "doctor --quiet"] {
            assert_eq!(verb(line), line.split(' ').find(|word| ["check", "doctor"].contains(word)).unwrap(), "{line}");
        }
        assert_eq!(verb("--name x check"), "--name precedes the verb `check`");
        assert_eq!(verb("--name x chek"), "`chek` is close to the verb `check`");
        for line in ["chek it", "-- chek", "--name chek", "run check", "che"] {
            assert_eq!(verb(line), "", "{line}");
        }
    }

    #[test]
    fn program_help_lists_options_of_default_verb() {
        let Ok(Parsed::Words(page, 0)) = parsed("--home /x --help") else { panic!("no help") };
        assert!(page.contains("\n      --name <NAME>") && page.contains("\n  check"), "{page}");
        assert!(!page.contains("\n  help") && !page.contains("\n  version"), "{page}");
    }
}
