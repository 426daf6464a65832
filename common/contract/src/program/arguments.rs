//! The command line as clap reads it. Free text needs no verb, and every mistake is an [`Error`].

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, Parser};
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;

use crate::context::options::Shared;
use crate::program::command::{self, Standard, help};
use crate::program::completion;
use crate::program::identity::{Input, Program, VERSION, VerbDoc};
use crate::wire::{Code, Error, Result, misspelt_verb, nearest};

/// Builds the command tree of a program: its own verbs, and the verbs and options of every program.
pub(super) fn command_of<C: Parser>(program: &Program) -> Command {
    let command = command::with_verbs(program, C::command());
    Shared::augment_args(command::with_fields_option(program, command, ""))
        .name(program.name)
        .about(program.about)
        .version(VERSION)
        .propagate_version(true)
        .disable_help_subcommand(true)
        .subcommand_required(program.doc("").is_none())
        // What the default verb requires, no other verb does.
        .subcommand_negates_reqs(true)
}

pub(super) enum Parsed<C> {
    Line(Box<Line>, Box<Shared>, Work<C>),
    /// Help, the version or completions, and the exit status to print it with.
    Words(Vec<u8>, u8),
}

/// A command line that can run.
pub(super) struct Line {
    pub(super) program: &'static Program,
    pub(super) matches: ArgMatches,
    /// The words of the verb; empty for the default verb.
    pub(super) verb: String,
    /// The documentation of the verb; `None` for a verb of every program.
    pub(super) doc: Option<&'static VerbDoc>,
}

pub(super) enum Work<C> {
    /// A verb of this program.
    Own(C),
    /// A verb by which every program describes itself.
    Standard(Standard),
}

pub(super) fn parse<C: Parser>(program: &'static Program, arguments: &[OsString]) -> Result<Parsed<C>> {
    if let Some(found) = completion::candidates(|| command_of::<C>(program), arguments) {
        return Ok(Parsed::Words(found, 0));
    }
    let mut command = command_of::<C>(program);
    let page = |root: &Command, verb: &Command, is_short, exit| {
        Ok(Parsed::Words(help(program, root, verb, is_short).into_bytes(), exit))
    };
    if arguments.is_empty() && has_nothing_to_do(program) {
        return page(&command, &command, true, Code::Usage.row().exit);
    }
    let version = || Ok(Parsed::Words(format!("{} {VERSION}\n", program.name).into_bytes(), 0));
    // clap skips the first word.
    let words = std::iter::once(program.name.into()).chain(arguments.iter().cloned());
    let matches = match command.try_get_matches_from_mut(words) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayVersion => return version(),
        Err(e) if e.kind() == ErrorKind::DisplayHelp => {
            let is_short = arguments.iter().all(|word| word != "--help");
            return page(&command, reached(&command), is_short, 0);
        }
        Err(e) => return Err(usage_error(program.name, &command, arguments, &e)),
    };
    match matches.subcommand() {
        Some(("version", _)) => return version(),
        Some(("help", own)) => {
            command.build();
            let mut words = own.get_many::<String>("words").unwrap_or_default();
            let verb = words.try_fold(&command, |here, word| command::below(here).find(|verb| verb.get_name() == word));
            return page(&command, verb.ok_or_else(|| no_help(program, own))?, false, 0);
        }
        Some(("update", _)) if program.doc("update").is_none() => return Err(no_update(program)),
        Some((verb, _)) => check_nothing_before(&command, &matches, verb)?,
        None => check_spelling(program, &command, &matches, arguments)?,
    }
    let verb = verb_of(&matches);
    let work = match command::VERBS.iter().find(|doc| doc.path == verb) {
        Some(_) => Standard::from_arg_matches(&matches).map(Work::Standard),
        None => C::from_arg_matches(&matches).map(Work::Own),
    };
    let read = work.and_then(|work| Ok((work, Box::new(Shared::from_arg_matches(&matches)?))));
    let (work, options) = read.map_err(|e| usage_error(program.name, &command, arguments, &e))?;
    let doc = program.verbs.iter().find(|doc| doc.path == verb);
    Ok(Parsed::Line(Box::new(Line { program, matches, verb, doc }), options, work))
}

/// Returns the words of the verb; empty for the default verb.
fn verb_of(matches: &ArgMatches) -> String {
    let verbs = std::iter::successors(matches.subcommand(), |(_, below)| below.subcommand());
    verbs.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Returns the deepest verb that clap reached, because it gives only those on the way a name with the program's.
fn reached(root: &Command) -> &Command {
    match root.get_subcommands().find(|verb| verb.get_bin_name().is_some()) {
        Some(verb) => reached(verb),
        None => root,
    }
}

/// True if an empty command line at a terminal gives the program nothing to work on.
fn has_nothing_to_do(program: &Program) -> bool {
    let talks = program.doc("").is_some_and(|doc| doc.input.contains(&Input::Person));
    !talks && isatty(stdin()) && isatty(stdout())
}

fn no_help(program: &Program, words: &ArgMatches) -> Error {
    let words: Vec<&str> = words.get_many::<String>("words").unwrap_or_default().map(String::as_str).collect();
    Error::usage(format!("{} has no verb `{}`", program.name, words.join(" ")))
        .hint(format!("`{0} --help` lists them; to send a text: {0} -- TEXT", program.name))
}

fn no_update(program: &Program) -> Error {
    let word = program.doc("").map(|_| format!("; to send the word: {} -- update", program.name)).unwrap_or_default();
    Error::usage(format!("{} does not update itself", program.name))
        .hint(format!("cp-shell update updates all programs{word}"))
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

/// Fails if the first word that the default verb gets misspells a verb. After `--` it is data, and beside `-` a text.
fn check_spelling(program: &Program, root: &Command, matches: &ArgMatches, arguments: &[OsString]) -> Result<()> {
    let given = root.get_positionals().filter_map(|operand| matches.get_raw(operand.get_id().as_str()));
    let words: Vec<&str> = given.flatten().filter_map(|word| word.to_str()).collect();
    let Some(word) = words.first().filter(|_| !words.contains(&"-")) else { return Ok(()) };
    let Some(verb) = misspelt_verb(word, command::below(root).map(Command::get_name)) else { return Ok(()) };
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

/// Converts clap's error to ours: the mistake, the nearest known name, and a hint.
pub fn usage_error(program: &str, root: &Command, arguments: &[OsString], error: &clap::Error) -> Error {
    let verb = reached(root);
    let name = verb.get_bin_name().unwrap_or(program);
    let word = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.as_str()),
        // The best one is the last.
        ContextValue::Strings(words) => words.last().map(String::as_str),
        _ => None,
    };
    match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let below: Vec<&str> = command::below(verb).map(clap::Command::get_name).collect();
            let needed = Error::usage(format!("`{name}` needs a verb")).with("verbs", below);
            return needed.hint(format!("`{name} --help` lists them"));
        }
        ErrorKind::InvalidUtf8 => return Error::not_text(),
        _ => {}
    }
    let usage = Error::usage(message_of(error).replace("subcommand", "verb"));
    let wrong = [ContextKind::InvalidSubcommand, ContextKind::InvalidValue, ContextKind::InvalidArg];
    let wrong = wrong.into_iter().find_map(word).unwrap_or_default();
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let is_near = |known: &&str| known.starts_with(wrong) || nearest(wrong, [*known]).is_some();
    let misspelt = |word: &OsString| misspelt_verb(word.to_str()?, command::below(verb).map(Command::get_name));
    let is_word = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidValue) && !wrong.is_empty();
    // A misspelt verb can be taken for an operand, so that what follows it is unexpected. No option precedes a verb.
    let words = arguments.iter().take_while(|word| is_word && !word.as_encoded_bytes().starts_with(b"-"));
    let misspelt = || words.clone().find_map(misspelt);
    if let Some(near) = suggested.into_iter().find_map(word).filter(is_near).or_else(misspelt) {
        return usage.with("nearest", near).hint(format!("did you mean `{near}`?"));
    }
    // An option has no white space, and its name after one hyphen is a letter.
    let is_text = wrong.contains(char::is_whitespace) || wrong.starts_with('-') && !wrong.starts_with("--");
    let list = wrong.trim_matches(['<', '>']).to_lowercase() + "s";
    match error.kind() {
        ErrorKind::MissingRequiredArgument if root.find_subcommand(&list).is_some() => {
            usage.hint(format!("`{program} {list}` lists them"))
        }
        ErrorKind::ArgumentConflict if verb.get_positionals().any(command::is_command) => {
            usage.hint(format!("quote a command line as one word: {program} -c 'ls -l | wc -l'"))
        }
        ErrorKind::UnknownArgument if is_text && verb.get_positionals().next().is_some() => {
            usage.hint("write -- before a text that begins with a hyphen")
        }
        _ => usage.hint(format!("`{name} --help` lists the options")),
    }
}

/// Returns what the parser says, in one line.
pub fn message_of(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = lines.join(" ").trim_start_matches("error: ").to_owned();
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    line.replace(&cause, &expected(&cause))
}

/// Returns what is expected instead of a number that Rust or clap cannot parse; another cause as it is.
fn expected(cause: &str) -> String {
    if let Some((_, range)) = cause.split_once(" is not in ") {
        let range = range.replace(&format!("..{}", u64::MAX), " or more").replace("..=", " to ");
        return format!("expected a whole number, {range}");
    }
    match cause {
        "invalid float literal" | "cannot parse float from empty string" => "expected a number",
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number in digits"
        }
        _ => cause,
    }
    .to_owned()
}

/// Rejects a path that is not UTF-8 if another process receives it as text, because it would name a different file
/// there.
pub fn require_text<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let Some(path) = paths.into_iter().find(|path| path.to_str().is_none()) else { return Ok(()) };
    Err(Error::usage("this path is not UTF-8")
        .in_file(path)
        .hint("it is passed on as text: rename it, or give a link to it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::identity::VerbDoc;

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
        compliance: None,
        verbs: &[VerbDoc::EMPTY, VerbDoc { path: "check", ..VerbDoc::EMPTY }],
        groups: &[],
        environment: &[],
        schemas: &[],
        checks: |_| Vec::new(),
        credentials: None,
        audit: |_, _| Ok(()),
    };

    fn parsed(line: &str) -> Result<Parsed<Cli>> {
        parse::<Cli>(&PROGRAM, &line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn help_words_after_dashes_are_data() {
        let data =
            ["-- git --version", "-- df -h", "-- sort -V f", "-- --help", "--name x -- -h", "-- check", "-- help"];
        for line in data.into_iter().chain(["git --version", "df -h", "--name x df --help", "versions", "word help"]) {
            assert!(matches!(parsed(line), Ok(Parsed::Line(read, ..)) if read.verb.is_empty()), "{line}");
        }
        for line in ["--name --help", "help me"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        for line in ["--help", "-h", "--version", "-V", "--name x --help", "-h -- git", "help", "help check", "version"]
        {
            assert!(matches!(parsed(line), Ok(Parsed::Words(_, 0))), "{line}");
        }
    }

    /// Only options of every program may precede a verb. A word near a verb is refused, but not after `--`.
    #[test]
    fn verb_follows_only_options_of_every_program() {
        let verb = |line: &str| match parsed(line) {
            Ok(Parsed::Line(read, ..)) => read.verb,
            Ok(Parsed::Words(..)) => String::new(),
            Err(error) => error.message().to_owned(),
        };
        for line in ["check --name x", "--home /x --json check", "check --home /x --json", "doctor --quiet"] {
            assert_eq!(verb(line), line.split(' ').find(|word| ["check", "doctor"].contains(word)).unwrap(), "{line}");
        }
        assert_eq!(verb("--name x check"), "--name precedes the verb `check`");
        assert_eq!(verb("--name x chek"), "`chek` is close to the verb `check`");
        assert_eq!(verb("chek it"), "`chek` is close to the verb `check`");
        for line in ["chek -", "-- chek", "--name chek", "run check", "che"] {
            assert_eq!(verb(line), "", "{line}");
        }
    }

    /// A refusal names the expected kind of number. Another cause stays as it is.
    #[test]
    fn number_that_cannot_be_parsed_is_refused_with_what_is_expected() {
        let of = |kind: clap::builder::ValueParser, word: &str| {
            let number = clap::Arg::new("n").long("n").value_parser(kind);
            let parsed = Command::new("p").arg(number).try_get_matches_from(["p", &format!("--n={word}")]);
            message_of(&parsed.unwrap_err()).rsplit_once(": ").unwrap().1.to_owned()
        };
        let other = |_: &str| Err::<u64, _>("no digit found in it");
        for word in ["x", "-1", ""] {
            assert_eq!(of(clap::value_parser!(usize).into(), word), "expected a whole number in digits", "{word}");
        }
        assert_eq!(of(clap::value_parser!(u64).range(1..).into(), "0"), "expected a whole number, 1 or more");
        assert_eq!(of(clap::value_parser!(u16).range(1..=32).into(), "33"), "expected a whole number, 1 to 32");
        assert_eq!(of(clap::value_parser!(f64).into(), "x"), "expected a number");
        assert_eq!(of(clap::builder::ValueParser::new(other), "x"), "no digit found in it");
    }

    #[test]
    fn program_help_lists_options_of_default_verb() {
        let Ok(Parsed::Words(page, 0)) = parsed("--home /x --help") else { panic!("no help") };
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("\n      --name <NAME>") && page.contains("\n  check"), "{page}");
        assert!(!page.contains("\n  help") && !page.contains("\n  version"), "{page}");
    }
}
