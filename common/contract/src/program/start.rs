//! Start, run and exit of a program.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Parser, ValueEnum as _};
use rustix::stdio::stdout;
use rustix::termios::isatty;

use crate::context::Context;
use crate::context::options::Shared;
use crate::home::config::{Config, Origin};
use crate::home::{Home, is_id};
use crate::output::{Format, Output, Severity, bug, check_open, fail_closed, fails_closed, last_words, status_of};
use crate::program::arguments::{Parsed, command_of, parse, verb_of};
use crate::program::describe;
use crate::program::identity::{Class, Finished, Program, VerbDoc};
use crate::program::standard;
use crate::program::usage::usage_error;
use crate::signals;
use crate::wire::{Code, Error, Result, bytes_of};

static WITHOUT_HOME: AtomicBool = AtomicBool::new(false);

/// Runs this process without a home: no settings are read and no command line is recorded, because the calling program
/// does both.
pub fn without_home() {
    WITHOUT_HOME.store(true, Ordering::Relaxed);
}

/// Runs a program from its arguments to its exit status. This is the whole body of `main`.
pub fn main<C: Parser>(program: &'static Program, run: fn(C, &mut Context) -> Result<()>) -> ExitCode {
    let started = Instant::now();
    install_hooks();
    ExitCode::from(status_of(start(program, run, started)))
}

/// Runs a command for people from its arguments to its exit status. Its output is text without an envelope; `run`
/// returns the status.
pub fn main_for_person(program: &'static str, run: fn(&[OsString], &mut Output) -> Result<u8>) -> ExitCode {
    let started = Instant::now();
    install_hooks();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = Output::new(program, Format::Raw, false, started);
    let outcome = check_open().and_then(|()| run(&arguments, &mut out)).map(|status| out.ended_with(status));
    ExitCode::from(out.close(outcome))
}

/// Installs the handlers of bugs and signals, which write the last line.
fn install_hooks() {
    std::panic::set_hook(Box::new(|panic| {
        last_words(&bug(&format!("internal error: {panic}")));
        leave(Code::Unknown);
    }));
    signals::install(|| {
        if last_words(&Error::new(Code::Interrupted, "interrupted by a signal")) {
            leave(Code::Interrupted);
        }
    });
}

/// Exits from anywhere: after a bug, or if the work does not react to a signal.
#[expect(clippy::disallowed_methods, clippy::exit, reason = "the one place that must leave from anywhere")]
fn leave(code: Code) -> ! {
    std::process::exit(i32::from(status_of(code.row().exit)))
}

/// The verb of a command line.
struct Asked {
    program: &'static Program,
    verb: String,
    /// Its documentation; `None` for a verb of every program.
    doc: Option<&'static VerbDoc>,
    matches: ArgMatches,
}

fn start<C: Parser>(program: &'static Program, run: fn(C, &mut Context) -> Result<()>, started: Instant) -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = Output::new(program.name, early_format(program, &arguments), false, started);
    let (matches, options) = match check_open().and_then(|()| parse::<C>(program, &arguments)) {
        Ok(Parsed::Matches(matches, options)) => (matches, *options),
        Ok(Parsed::Words(text, exit)) => {
            let outcome = out.raw(text.as_bytes());
            out.ended_with(exit);
            return out.close(outcome);
        }
        Err(error) => return out.close(Err(error)),
    };
    let verb = verb_of(&matches);
    let doc = program.verbs.iter().find(|doc| doc.path == verb);
    let asked = Asked { program, verb, doc, matches };
    let (home, config, format) = match settings(&asked, &options) {
        Ok(settings) => settings,
        Err(error) => return out.close(Err(error)),
    };
    out.set_format(format, options.quiet);
    let mut context = Context { program: program.name, options, home, config, out };
    let result = perform(&asked, run, &mut context);
    if !WITHOUT_HOME.load(Ordering::Relaxed) {
        audit(&asked, &result, started.elapsed(), &mut context);
    }
    context.out.close(result)
}

/// Finds the requested format before the arguments are validated, so that an error about them is written in it.
fn early_format(program: &Program, arguments: &[OsString]) -> Format {
    let words: Vec<&str> = arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let named = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--format") {
        Some("") => words.get(at + 1).copied(),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    });
    let asked = named.or_else(|| words.contains(&"--json").then_some("json")).and_then(format_of);
    // Any words that match a verb that fails closed count as that verb, unless they match one that begins like it.
    let may_be = |doc: &VerbDoc| doc.path.split(' ').all(|word| arguments.iter().any(|argument| argument == word));
    let is_longer = |one: &VerbDoc, other: &VerbDoc| one.path != other.path && other.path.starts_with(one.path);
    let is_closed = |doc: &VerbDoc| {
        doc.fails_closed && may_be(doc) && !program.verbs.iter().any(|other| is_longer(doc, other) && may_be(other))
    };
    fail_closed(matches!(asked, None | Some(Format::Raw)) && program.verbs.iter().any(is_closed));
    let of_environment = || std::env::var("CP_FORMAT").ok().and_then(|name| format_of(&name));
    asked.or_else(of_environment).unwrap_or_else(default_format)
}

/// Finds the home and its settings, and the format.
fn settings(asked: &Asked, options: &Shared) -> Result<(Home, Config, Format)> {
    let given = if options.json { Some(Format::Json) } else { options.format };
    let is_closed = asked.doc.is_some_and(|doc| doc.fails_closed) && matches!(given, None | Some(Format::Raw));
    fail_closed(is_closed);
    let given = if is_closed { Some(Format::Raw) } else { given };
    let is_without_home = WITHOUT_HOME.load(Ordering::Relaxed);
    let home = Home::find(if is_without_home { Some(Path::new("/")) } else { options.home.as_deref() })?;
    let config = match Config::load(&home.config_file()) {
        _ if is_without_home => Config::default(),
        // `doctor` must be able to report a broken file.
        Err(_) if asked.describes() => Config::default(),
        loaded => loaded?,
    };
    let format = match (given, config.get("format", None)) {
        (Some(given), _) => given,
        (None, Some(set)) if set.origin != Origin::Default => format_of(&set.text).ok_or_else(|| {
            Error::config("the format is not json, text or raw").hint("see CP_FORMAT and `format` in config/cp.toml")
        })?,
        (None, _) => default_format(),
    };
    Ok((home, config, format))
}

/// Runs the verb.
fn perform<C: Parser>(asked: &Asked, run: fn(C, &mut Context) -> Result<()>, context: &mut Context) -> Result<()> {
    let Asked { program, verb, doc, matches } = asked;
    if fails_closed() {
        watch()?;
    }
    if verb.is_empty() {
        context.out.filtering();
    }
    // The dry run of an append answers like the append that it leaves out.
    if doc.is_some_and(|doc| doc.class == Class::Append) && standard::is_set(matches, "dry_run") {
        let message = "dry run: nothing was changed";
        context.out.notice("dry_run", Severity::Info, message);
        if context.out.format() == Format::Text {
            context.out.warn(message);
        }
    }
    context.out.fields = standard::selected_fields(program, verb, matches)?;
    if let Some(named) = &context.options.session {
        check_session(named)?;
    }
    if asked.describes() {
        return describe::run::<C>(program, verb, matches, context);
    }
    let cli = C::from_arg_matches(matches);
    run(cli.map_err(|e| usage_error(program, &command_of::<C>(program), verb, &e))?, context)
}

impl Asked {
    /// True if the verb is one by which every program describes itself.
    fn describes(&self) -> bool {
        standard::VERBS.iter().any(|doc| doc.path == self.verb)
    }
}

/// Rejects an invalid session id. The session need not exist, because it may only label a record.
fn check_session(named: &str) -> Result<()> {
    if named.contains('/') || is_id(named) {
        return Ok(());
    }
    let message = format!("`{named}` is not a session id: ids are letters, digits, `-` and `_`");
    Err(Error::validation(message).with("session", named).hint("the path of a session starts with / or ./"))
}

/// Ends a verb that fails closed if it takes too long.
fn watch() -> Result<()> {
    let end = || {
        std::thread::sleep(VerbDoc::PATIENCE);
        last_words(&Error::new(Code::Timeout, format!("no answer within {} s", VerbDoc::PATIENCE.as_secs())));
        leave(Code::Timeout);
    };
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(end)
        .map_err(|e| Error::io("starting a thread", e))
        .map(drop)
}

/// Records the command line: of every governed verb and every write, and every failure other than a usage error.
fn audit(asked: &Asked, result: &Result<()>, took: Duration, context: &mut Context) {
    let Asked { program, verb, doc, .. } = asked;
    let (exit, code) = context.out.prediction(result);
    let exit = status_of(exit);
    let wanted = match doc.map_or(Class::Query, |doc| doc.class) {
        Class::Query => false,
        // A denial has its own entry. A status that differs from that of its code cannot be proved.
        Class::Governed if fails_closed() => code.is_some_and(|code| code != Code::Usage && code.row().exit == exit),
        Class::Append => exit != 0 && code != Some(Code::Usage),
        Class::Governed | Class::Write => code != Some(Code::Usage),
    };
    if !wanted {
        return;
    }
    let argv = redact_argv(std::env::args_os());
    let bytes: Vec<Option<String>> = argv.iter().map(bytes_of).collect();
    let argv: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let failure = result.as_ref().err().filter(|error| !error.is_reader_gone());
    let finished = Finished {
        verb,
        argv: &argv,
        argv_bytes: &bytes,
        exit,
        code: code.map(|code| code.row().name),
        message: failure.map(Error::message).or(context.out.first_failure.as_ref().map(Error::message)),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    let outcome = (program.audit)(context).and_then(|sink| sink.map_or(Ok(()), |mut sink| sink.finished(&finished)));
    // The cause that also made the command line fail is reported once.
    let cause = |error: &Error| error.message().rsplit(": ").next().map(str::to_owned);
    if let Err(error) = outcome
        && failure.is_none_or(|failure| failure.code() != error.code() || cause(failure) != cause(&error))
    {
        context.warn(&format!("this command line is not on the ledger: {error}"));
    }
}

/// Redacts a command line for the ledger: removes values of environment variables for a command.
fn redact_argv(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let name_of = |pair: &[u8]| {
        let name = pair.iter().position(|byte| *byte == b'=').map_or("…".as_bytes(), |end| &pair[..end]);
        OsString::from_vec([name, "=…".as_bytes()].concat())
    };
    let (mut shown, mut is_pair, mut is_command) = (Vec::new(), false, false);
    for argument in arguments {
        let is_next = !is_command && argument == "--env";
        is_command |= argument == "--";
        shown.push(match argument.as_bytes().strip_prefix(b"--env=").filter(|_| !is_command) {
            Some(pair) => [OsString::from("--env="), name_of(pair)].into_iter().collect(),
            None if std::mem::replace(&mut is_pair, is_next) => name_of(argument.as_bytes()),
            None => argument,
        });
    }
    shown
}

/// Returns the format of a program that was asked for none: text for a person at a terminal.
fn default_format() -> Format {
    if isatty(stdout()) { Format::Text } else { Format::Json }
}

fn format_of(name: &str) -> Option<Format> {
    Format::from_str(name, false).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn redact_argv_removes_environment_values() {
        let line = "cp-exec --env A=one --env=B=two --env three --timeout 1 -- env --env D=mine";
        let shown = redact_argv(line.split(' ').map(OsString::from)).join(OsStr::new(" "));
        assert_eq!(shown, "cp-exec --env A=… --env=B=… --env …=… --timeout 1 -- env --env D=mine");
    }
}
