//! Start, run and exit of a program.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum as _};
use rustix::stdio::stdout;
use rustix::termios::isatty;

use crate::context::Context;
use crate::context::options::Shared;
use crate::home::config::{Config, Origin};
use crate::home::{Home, OF_PROCESS, is_id};
use crate::output::{Format, Output, Severity, bug, check_open, fail_closed, fails_closed, last_words, status_of};
use crate::program::arguments::{Line, Parsed, Work, parse};
use crate::program::command;
use crate::program::describe;
use crate::program::identity::{Class, Finished, Program, VerbDoc};
use crate::signals;
use crate::wire::{Code, Error, Result};

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

fn start<C: Parser>(program: &'static Program, run: fn(C, &mut Context) -> Result<()>, started: Instant) -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = Output::new(program.name, early_format(program, &arguments), false, started);
    let (line, options, work) = match check_open().and_then(|()| parse::<C>(program, &arguments)) {
        Ok(Parsed::Line(line, options, work)) => (line, *options, work),
        Ok(Parsed::Words(text, exit)) => {
            let outcome = out.raw(&text);
            out.ended_with(exit);
            return out.close(outcome);
        }
        Err(error) => return out.close(Err(error)),
    };
    let (home, config, format) = match settings(&line, &options, matches!(work, Work::Standard(_))) {
        Ok(settings) => settings,
        Err(error) => return out.close(Err(error)),
    };
    out.set_format(format, options.quiet);
    let mut context = Context { program: program.name, options, home, config, out };
    let result = prepare(&line, &mut context).and_then(|()| match work {
        Work::Own(cli) => run(cli, &mut context),
        Work::Standard(verb) => describe::run::<C>(program, verb, &mut context),
    });
    if !WITHOUT_HOME.load(Ordering::Relaxed) {
        audit(&line, &result, started.elapsed(), &mut context);
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
fn settings(line: &Line, options: &Shared, describes: bool) -> Result<(Home, Config, Format)> {
    let given = if options.json { Some(Format::Json) } else { options.format };
    let is_closed = line.doc.is_some_and(|doc| doc.fails_closed) && matches!(given, None | Some(Format::Raw));
    fail_closed(is_closed);
    let given = if is_closed { Some(Format::Raw) } else { given };
    let is_without_home = WITHOUT_HOME.load(Ordering::Relaxed);
    let home = Home::find(if is_without_home { Some(Path::new("/")) } else { options.home.as_deref() })?;
    if !is_without_home {
        OF_PROCESS.get_or_init(|| home.root().to_owned());
    }
    let config = match Config::load(&home.config_file()) {
        _ if is_without_home => Config::default(),
        // `doctor` must be able to report a broken file.
        Err(_) if describes => Config::default(),
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

/// Does what every verb needs before it runs.
fn prepare(line: &Line, context: &mut Context) -> Result<()> {
    let Line { program, verb, doc, matches } = line;
    if fails_closed() {
        watch()?;
    }
    if verb.is_empty() {
        context.out.filtering();
    }
    // The dry run of an append answers like the append that it leaves out.
    if doc.is_some_and(|doc| doc.class == Class::Append) && command::is_set(matches, "dry_run") {
        let message = "dry run: nothing was changed";
        context.out.notice("dry_run", Severity::Info, message);
        if context.out.format() == Format::Text {
            context.out.warn(message);
        }
    }
    if context.options.base.is_some() {
        context.options.base = Some(context.base()?);
    }
    context.out.fields = command::selected_fields(program, verb, matches)?;
    context.options.session.as_deref().map_or(Ok(()), check_session)
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
fn audit(line: &Line, result: &Result<()>, took: Duration, context: &mut Context) {
    let Line { program, verb, doc, .. } = line;
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
    let failure = result.as_ref().err().filter(|error| !error.is_reader_gone());
    let finished = Finished {
        verb,
        argv: without_environment(std::env::args_os().collect()),
        exit,
        code: code.map(|code| code.row().name),
        message: failure.map(Error::message).or(context.out.first_failure.as_ref().map(Error::message)),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    let outcome = (program.audit)(context, &finished);
    // The cause that also made the command line fail is reported once.
    let cause = |error: &Error| error.message().rsplit(": ").next().map(str::to_owned);
    if let Err(error) = outcome
        && failure.is_none_or(|failure| failure.code() != error.code() || cause(failure) != cause(&error))
    {
        context.warn(&format!("this command line is not on the ledger: {error}"));
    }
}

/// Removes the values of environment variables for a command from a command line.
fn without_environment(mut words: Vec<OsString>) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    for at in 1..end {
        let word = words[at].as_bytes();
        let start = match word.starts_with(b"--env=") {
            true => "--env=".len(),
            false if words[at - 1] == "--env" => 0,
            false => continue,
        };
        let name = word[start..].iter().position(|byte| *byte == b'=').unwrap_or(0);
        words[at] = OsString::from_vec([&word[..start + name], "=…".as_bytes()].concat());
    }
    words
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
    fn command_line_is_recorded_without_environment_values() {
        let line = "cp-exec --env A=one --env=B=two --env three --timeout 1 -- env --env D=mine";
        let shown = without_environment(line.split(' ').map(OsString::from).collect()).join(OsStr::new(" "));
        assert_eq!(shown, "cp-exec --env A=… --env=B=… --env =… --timeout 1 -- env --env D=mine");
    }
}
