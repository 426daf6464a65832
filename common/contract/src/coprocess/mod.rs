//! Coprocesses: locating a program, starting it without a shell, exchanging records with it, asking it for one answer,
//! converting its failures, and stopping it within a grace period. Every program that runs another uses this module; [`cmd()`] runs a program
//! of another maker until it exits.

mod child;

pub use duct::{Expression, cmd};

pub use self::child::{Child, ChildOptions, Output, Stderr, failure};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cp_json::words;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::Context;
use crate::signals;
use crate::wire::record::{Kind, Record};
use crate::wire::{Code, Error, Result};

/// Locates a program. One of this suite (`cp-…`) is beside the running executable, else on `PATH` in absolute
/// directories that others cannot write. Any other must be named with a `/`.
pub fn find(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        let is_address = name.contains("://");
        let of_address = "for an MCP server at an address the program is `cp-mcp connect --server NAME URL`";
        let hint = if is_address { of_address } else { "name an executable file" };
        return if is_executable(&path) { Ok(path) } else { Err(absent(name).hint(hint)) };
    }
    if !name.starts_with("cp-") {
        return Err(Error::usage(format!("`{name}` is not one of the cp-tools"))
            .hint("name a program of your own with a path, such as ./name"));
    }
    let here = std::env::current_exe().and_then(|exe| exe.canonicalize()).ok();
    let beside = here.and_then(|exe| exe.parent().map(|directory| directory.join(name)));
    beside
        .filter(|path| is_executable(path))
        .or_else(|| on_path(name))
        .ok_or_else(|| absent(name).hint("install the cp-tools together, in one directory"))
}

/// Locates a program of any name on `PATH`, in absolute directories that others cannot write.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut safe = std::env::split_paths(&path).filter(|directory| is_safe(directory));
    safe.find_map(|directory| Some(directory.join(name)).filter(|path| is_executable(path)))
}

/// Splits a command line from an option with the strict tokenizer and locates its program.
pub fn command_line(text: &str) -> Result<Vec<String>> {
    let mut argv = command_words(text)?;
    let program = argv.first_mut().ok_or_else(no_words)?;
    *program = find(program)?.display().to_string();
    Ok(argv)
}

/// Splits a command line from an option with the strict tokenizer.
pub fn command_words(text: &str) -> Result<Vec<String>> {
    Ok(words::split(text).map_err(|refusal| Error::usage(format!("`{text}`: {refusal}")))?.argv)
}

/// Replaces this process by a program with these arguments, and these variables besides its own. Returns only on
/// failure.
pub fn replace(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    variables: &BTreeMap<&str, String>,
) -> std::io::Error {
    Command::new(program).args(arguments).envs(variables).exec()
}

/// A command that leads a process group, so that a signal to its [`Child`] reaches all that it started.
pub fn grouped(command: &Expression) -> Expression {
    command.before_spawn(|command| {
        command.process_group(0);
        Ok(())
    })
}

/// Splits a command into its program and arguments.
pub fn split<T>(argv: &[T]) -> Result<(&T, &[T])> {
    argv.split_first().ok_or_else(no_words)
}

fn no_words() -> Error {
    Error::usage("the command is empty")
}

fn absent(name: &str) -> Error {
    Error::not_found(format!("the program `{name}` was not found"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn is_safe(directory: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    directory.is_absolute()
        && directory.metadata().is_ok_and(|meta| meta.mode() & 0o022 == 0 && (meta.uid() == 0 || meta.uid() == me))
}

/// The longest silence before `each` is called without a line.
const SILENCE: Duration = Duration::from_millis(20);

/// The answer of a program that has exited.
#[derive(Debug, Deserialize)]
pub struct Answer<T> {
    /// Its data.
    pub data: T,
    meta: Value,
}

impl<T> Answer<T> {
    /// Returns the notices of the closing line.
    pub fn notices(&self) -> impl Iterator<Item = &str> {
        let notices = self.meta["notices"].as_array().into_iter().flatten();
        notices.filter_map(|notice| notice["message"].as_str())
    }
}

/// Runs a program of this workspace until it exits, with `input` on its standard input, and returns the data of its
/// answer. Its standard error is discarded, because the answer contains the error. Its failure is returned as ours,
/// with the program's name in `details.part`.
pub fn ask<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    context: &Context,
) -> Result<T> {
    ask_with(program, words, input, context.handed_on())
}

/// Like [`ask`], with `flags` instead of the options that pass the context on.
pub fn ask_with<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
) -> Result<T> {
    ask_each(program, words, input, flags, &mut |_| Ok(())).map(|answer| answer.data)
}

/// Like [`ask_with`], and passes each line before the last to `each`, or `None` when no line has arrived for a moment.
pub fn ask_each<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
    each: &mut dyn FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<Answer<T>> {
    let mut words: Vec<OsString> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, flags.into_iter().chain(["--format", "json"].map(OsString::from)));
    let mut child = Child::start(program, &cmd(find(program)?, words).stderr_null(), ChildOptions::DEFAULT)?;
    child.feed(input)?;
    let is_interrupted = signals::interrupted();
    if is_interrupted {
        // A question after a signal records work that was done before it, so its answer is awaited.
        child.outlast_signals();
    }
    let mut line = Vec::new();
    loop {
        while !is_interrupted && !child.wait_line(SILENCE)? {
            each(None)?;
        }
        let Some(next) = child.next_line()? else { break };
        if !line.is_empty() {
            each(Some(&line))?;
        }
        line.clear();
        line.extend_from_slice(next);
    }
    child.wait()?;
    let broken = |reason: &str| Error::new(Code::Io, format!("{program} gave no answer: {reason}"));
    let record = Record::parse(&line).map_err(|e| broken(e.message()))?;
    if !record.ok {
        return Err(record.failure().with_absent("part", program));
    }
    serde_json::from_slice(&line).map_err(|e| broken(&e.to_string()))
}

/// Makes the error for an unexpected record.
pub fn unexpected(part: &str, record: &Record<'_>) -> Error {
    let kind = record.kind_name.as_deref().unwrap_or("answer");
    let message = if record.closed && record.kind == Some(Kind::Summary) {
        format!("{part} closed its stream before it answered")
    } else {
        format!("{part} answered with a `{kind}` record")
    };
    Error::new(Code::Io, message).fatal()
}
