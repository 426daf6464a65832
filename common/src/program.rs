//! What a program says of itself, and how it starts, runs and leaves.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, CommandFactory, FromArgMatches, Parser};
use serde::Serialize;

use crate::config::Config;
use crate::context::Context;
use crate::describe;
use crate::error::{Code, Error, Result};
use crate::home::Home;
use crate::options::Shared;
use crate::output::{Format, Output, last_words, to_stderr};
use crate::signals;
use crate::text::nearest;

/// The class of a verb: what gates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Class {
    /// Reads, and writes nothing.
    Query,
    /// Adds, and takes nothing away.
    Append,
    /// Policy and budget decide.
    Governed,
    /// Changes or deletes: needs a confirm token.
    Write,
}

/// What `reference` says of a verb beyond its options.
#[derive(Clone, Copy, Debug)]
pub struct VerbDoc {
    /// Its words after the program's name; empty for the verb that is meant when none is named.
    pub path: &'static str,
    /// What gates it.
    pub class: Class,
    /// The name of its output in the program's schemas.
    pub output: &'static str,
    /// Command lines that run as they are, in an empty home.
    pub examples: &'static [&'static str],
    /// Whether it also needs `--dangerous`.
    pub dangerous: bool,
}

/// One line of `doctor`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How a [`Check`] came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Status {
    /// Fine.
    Pass,
    /// Works, but not as well as it could.
    Warn,
    /// Does not work.
    Fail,
}

impl Check {
    /// A check that came out fine.
    pub fn pass(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Status::Pass, found: found.into(), fix: None }
    }

    /// A check that came out `status`, with its cure.
    pub fn not_fine(check: &str, status: Status, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Whether the program has the credentials it needs, never the credentials.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Credentials {
    /// Whether any are there. A program that needs none says true.
    pub configured: bool,
    /// Where each was found: the name of a provider and the name of a variable or file.
    pub sources: Vec<CredentialSource>,
}

/// Where a credential was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CredentialSource {
    /// Whose it is.
    pub provider: String,
    /// The variable or file that holds it.
    pub source: String,
}

/// What happened, for the ledger.
#[derive(Clone, Debug, Serialize)]
pub struct Finished<'a> {
    /// The verb's words.
    pub verb: &'a str,
    /// The command line. The sink redacts it.
    pub argv: &'a [String],
    /// The exit status.
    pub exit: u8,
    /// The code, if it failed.
    pub code: Option<&'static str>,
    /// Why it failed.
    pub message: Option<&'a str>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Where a program's command lines, refusals and errors are recorded.
pub trait Audit {
    /// Records that a command line has finished.
    fn finished(&mut self, what: &Finished<'_>) -> Result<()>;
}

/// The sink of a program's audit; `None` for a program that keeps none.
pub type AuditSink = Result<Option<Box<dyn Audit>>>;

/// What a program is.
pub struct Program {
    /// Its name: binary, folder, manual page.
    pub name: &'static str,
    /// One line, as in its manual page.
    pub about: &'static str,
    /// T0 reads, T1 writes, T2 cannot be undone.
    pub risk_tier: &'static str,
    /// Its verbs, but those that every program has.
    pub verbs: &'static [VerbDoc],
    /// The hidden subcommand that a free text or an empty command line goes to.
    pub implicit: Option<&'static str>,
    /// JSON Schemas of what its verbs print, by name.
    pub schemas: &'static [(&'static str, &'static str)],
    /// What its `doctor` looks at.
    pub checks: fn(&mut Context) -> Vec<Check>,
    /// What its `context` says of credentials.
    pub credentials: fn(&Context) -> Credentials,
    /// The sink of the audit, if the program has one.
    pub audit: fn(&Context) -> AuditSink,
}

impl Program {
    /// The name of a verb as a person types it: the hidden implicit verb has none.
    pub fn shown<'a>(&self, verb: &'a str) -> &'a str {
        if self.implicit == Some(verb) { "" } else { verb }
    }
}

/// The version of every program of this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs a program from its arguments to its exit status. The whole of a `main`.
pub fn main<C: Parser>(program: &'static Program, run: fn(C, &mut Context) -> Result<()>) -> ExitCode {
    let started = Instant::now();
    std::panic::set_hook(Box::new(|panic| {
        last_words(&format!("internal error: {panic}"));
        to_stderr(&format!("internal error: {panic}\n"));
        #[expect(clippy::disallowed_methods, reason = "the one place that must leave from anywhere: after a bug")]
        std::process::exit(i32::from(Code::Unknown.row().exit));
    }));
    signals::install();
    ExitCode::from(start(program, run, started))
}

fn start<C: Parser>(program: &'static Program, run: fn(C, &mut Context) -> Result<()>, started: Instant) -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = command_of::<C>(program);
    let mut early = Output::new(program.name, asked_format(&arguments), false, started);
    let matches = match parse(program, command, &arguments) {
        Ok(Parsed::Matches(matches)) => matches,
        Ok(Parsed::Words(text)) => {
            let outcome = early.raw(text.as_bytes());
            early.ended_with(0);
            return early.close(outcome);
        }
        Err(error) => return early.close(Err(error)),
    };
    match Shared::from_arg_matches(&matches) {
        Ok(options) => with_options(program, run, &matches, options, started),
        Err(error) => early.close(Err(usage_error(program, &error))),
    }
}

fn with_options<C: Parser>(
    program: &'static Program,
    run: fn(C, &mut Context) -> Result<()>,
    matches: &clap::ArgMatches,
    options: Shared,
    started: Instant,
) -> u8 {
    let verb = verb_of(matches);
    let describes = describe::VERBS.iter().any(|doc| doc.path == verb);
    let flag = if options.json { Some("json") } else { options.format.map(format_name) };
    let loaded = Home::find(options.home.as_deref()).and_then(|home| {
        let config = match Config::load(&home.config_file()) {
            // A broken file must not keep `doctor` from saying so.
            Err(_) if describes => Config::default(),
            other => other?,
        };
        Ok((home, config))
    });
    let (home, config) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let format = options.format.unwrap_or(Format::Json);
            return Output::new(program.name, format, options.quiet, started).close(Err(error));
        }
    };
    let format = config.text("format", flag).and_then(|name| format_of(&name));
    let out = Output::new(program.name, format.unwrap_or(Format::Json), options.quiet, started);
    let mut context = Context { program, options, home, config, out };
    if program.implicit == Some(verb.as_str()) {
        context.out.filtering();
    }
    let result = if format.is_none() {
        Err(Error::config("the format is not json, text or raw").hint("see CP_FORMAT and `format` in config/cp.toml"))
    } else if describes {
        describe::run::<C>(&verb, matches, &mut context)
    } else {
        C::from_arg_matches(matches).map_err(|e| usage_error(program, &e)).and_then(|cli| run(cli, &mut context))
    };
    audit(program, &verb, &result, started.elapsed(), &mut context);
    context.out.close(result)
}

/// Records the command line: every governed and every write, and every failure that is not about the command line itself.
fn audit(program: &'static Program, verb: &str, result: &Result<()>, took: Duration, context: &mut Context) {
    let shown = program.shown(verb);
    let class = program.verbs.iter().find(|doc| doc.path == shown).map_or(Class::Query, |doc| doc.class);
    let failure = result.as_ref().err().filter(|error| !error.is_reader_gone());
    let wanted = match class {
        Class::Query => false,
        Class::Append => failure.is_some_and(|error| error.code() != Code::Usage),
        Class::Governed | Class::Write => failure.is_none_or(|error| error.code() != Code::Usage),
    };
    if !wanted {
        return;
    }
    let argv = told(std::env::args());
    let finished = Finished {
        verb: shown,
        argv: &argv,
        exit: failure.map_or(0, |error| error.code().row().exit),
        code: failure.map(|error| error.code().row().name),
        message: failure.map(Error::message),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    let outcome = (program.audit)(context).and_then(|sink| sink.map_or(Ok(()), |mut sink| sink.finished(&finished)));
    if let Err(error) = outcome {
        context.warn(&format!("this command line is not on the ledger: {error}"));
    }
}

/// A command line as it may be told: the values that a command is given for its environment are for the command alone.
fn told(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let name_of = |pair: &str| pair.split_once('=').map_or("…", |(name, _)| name).to_owned() + "=…";
    let (mut told, mut is_pair, mut is_command) = (Vec::new(), false, false);
    for argument in arguments {
        let is_next = !is_command && argument == "--env";
        is_command |= argument == "--";
        told.push(match argument.strip_prefix("--env=").filter(|_| !is_command) {
            Some(pair) => format!("--env={}", name_of(pair)),
            None if std::mem::replace(&mut is_pair, is_next) => name_of(&argument),
            None => argument,
        });
    }
    told
}

fn verb_of(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut here = matches;
    while let Some((name, below)) = here.subcommand() {
        words.push(name);
        here = below;
    }
    words.join(" ")
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Text => "text",
        Format::Raw => "raw",
    }
}

fn format_of(name: &str) -> Option<Format> {
    [Format::Json, Format::Text, Format::Raw].into_iter().find(|format| format_name(*format) == name)
}

/// The format that the arguments ask for, before they are known to be right: an error about them is written in it too.
fn asked_format(arguments: &[OsString]) -> Format {
    let words: Vec<&str> = arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let named = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--format") {
        Some("") => words.get(at + 1).copied(),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    });
    named
        .map(str::to_owned)
        .or_else(|| std::env::var("CP_FORMAT").ok())
        .and_then(|name| format_of(&name))
        .unwrap_or(Format::Json)
}

/// The whole command tree of a program: its own verbs, the verbs and options of every program.
pub(crate) fn command_of<C: CommandFactory>(program: &'static Program) -> clap::Command {
    root_of(C::command(), program).subcommands(describe::commands())
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

enum Parsed {
    Matches(clap::ArgMatches),
    /// Help or version.
    Words(String),
}

fn parse(program: &'static Program, command: clap::Command, arguments: &[OsString]) -> Result<Parsed> {
    let arguments = with_verb_first(program, &command, arguments)?;
    // Most of the time to start would go into verbs that are not meant.
    let meant = arguments.first().and_then(|verb| command.find_subcommand(verb)).cloned();
    let mut command = match meant {
        Some(verb) => root_of(clap::Command::new(program.name), program).subcommand(verb),
        None => command,
    };
    let name = OsString::from(program.name);
    match command.try_get_matches_from_mut(std::iter::once(name).chain(arguments)) {
        Ok(matches) => Ok(Parsed::Matches(matches)),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Parsed::Words(e.to_string()))
        }
        Err(e) => Err(usage_error(program, &e)),
    }
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
    if first.is_none() && arguments.iter().any(only_help) {
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
fn usage_error(program: &Program, error: &clap::Error) -> Error {
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

    #[test]
    fn what_a_command_gets_in_its_environment_is_not_told() {
        let line = "cp-exec --env A=one --env=B=two --env three --timeout 1 -- env --env D=mine";
        let told = told(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(told, "cp-exec --env A=… --env=B=… --env …=… --timeout 1 -- env --env D=mine");
    }
}
