//! Coprocesses: locating a program, starting it without a shell, exchanging records with it, converting its failures,
//! and stopping it within a grace period. Every program that runs another uses this module; [`cmd()`] runs a program
//! of another maker until it exits.

mod answer;
mod child;

pub use duct::{Expression, cmd};

pub use self::answer::{Answer, ask, ask_each, ask_with, unexpected};
pub use self::child::{Child, ChildOptions, Output, Stderr, failure};

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cp_json::words;

use crate::wire::{Error, Result};

/// Locates a program. One of this suite (`cp-…`) is beside the running executable, else on `PATH` in absolute
/// directories that others cannot write. Any other must be named with a `/`.
pub fn find(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if is_executable(&path) { Ok(path) } else { Err(absent(name).hint("name an executable file")) };
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
