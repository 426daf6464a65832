//! The errors of a command line that cannot be parsed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::program::command;
use crate::program::identity::Program;
use crate::spelling::nearest;
use crate::wire::{Error, Result};

/// Converts clap's error to ours: the mistake, the nearest known name, and a hint. `path` has the words of the verb.
pub(super) fn usage_error(program: &Program, command: &clap::Command, path: &str, error: &clap::Error) -> Error {
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let message = first.strip_prefix("error: ").unwrap_or(&first).replace("subcommand", "verb");
    let usage = Error::usage(message);
    let verb = path.split_whitespace().try_fold(command, clap::Command::find_subcommand).unwrap_or(command);
    let takes_line = verb.get_positionals().any(command::is_command);
    match suggestion(command, verb, error) {
        Some(nearest) => usage.with("nearest", nearest.clone()).hint(format!("did you mean `{nearest}`?")),
        None if error.kind() == ErrorKind::ArgumentConflict && takes_line => {
            usage.hint(format!("quote a command line as one word: {} -c 'ls -l | wc -l'", program.name))
        }
        None if is_no_option(error) => usage.hint("write -- before a text that begins with a dash"),
        None => usage.hint(format!("`{} --help` lists the options", format!("{} {path}", program.name).trim_end())),
    }
}

/// Returns the name or value that is nearest to the one that clap does not know.
fn suggestion(root: &clap::Command, verb: &clap::Command, error: &clap::Error) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let options = root.get_arguments().chain(verb.get_arguments()).filter_map(clap::Arg::get_long);
            let name = word(ContextKind::InvalidArg)?.strip_prefix("--")?;
            nearest(name, options.chain(["help", "version"])).map(|near| format!("--{near}"))
        }
        ErrorKind::InvalidSubcommand => {
            let verbs = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
            nearest(word(ContextKind::InvalidSubcommand)?, verbs).map(str::to_owned)
        }
        _ => word(ContextKind::SuggestedValue).map(str::to_owned),
    }
}

/// True if the argument that clap treated as an option cannot be one, because an option's name has no white space.
fn is_no_option(error: &clap::Error) -> bool {
    let found = error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    matches!(found, Some(ContextValue::String(word)) if word.contains(char::is_whitespace))
}

/// Rejects a path that is not UTF-8 if another process receives it as text, because it would name a different file
/// there.
pub fn require_text<'a>(option: &str, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    if paths.into_iter().all(|path| path.to_str().is_some()) {
        return Ok(());
    }
    Err(Error::usage(format!("the value of {option} is not UTF-8"))
        .with("option", option)
        .hint("this path is passed on as text; rename the file, or link to it"))
}

/// Makes the error for the first argument that is not UTF-8 and does not name a file. `is_path` is true for options
/// that name files.
pub(super) fn not_utf8_error(arguments: &[OsString], is_path: impl Fn(&str) -> bool) -> Error {
    let mut before: Option<&OsStr> = None;
    let mut is_data = false;
    for word in arguments {
        is_data |= word == "--";
        if word.to_str().is_none() {
            let attached = word.as_bytes().split(|byte| *byte == b'=').next().filter(|name| name.starts_with(b"--"));
            let attached = attached.filter(|_| !is_data).and_then(|name| std::str::from_utf8(name).ok());
            let separate = before.and_then(OsStr::to_str).filter(|name| !is_data && name.starts_with('-'));
            match attached.or(separate) {
                Some(option) if is_path(option) => {}
                Some(option) => return not_utf8(&format!("the value of {option}")).with("option", option),
                None => return not_utf8(&format!("`{}`", word.to_string_lossy())),
            }
        }
        before = Some(word);
    }
    Error::usage("an argument is not UTF-8")
}

fn not_utf8(what: &str) -> Error {
    Error::usage(format!("{what} is not UTF-8")).hint("write it as UTF-8; only the paths of files may be any bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_utf8_error_names_option_and_skips_paths() {
        let bad = |prefix: &str| OsStr::from_bytes(&[prefix.as_bytes(), b"\xe9"].concat()).to_owned();
        let of = |words: &[OsString]| not_utf8_error(words, |option| option == "--ledger").message().to_owned();
        assert_eq!(of(&["--ledger".into(), bad(""), "-m".into(), bad("x")]), "the value of -m is not UTF-8");
        assert_eq!(of(&[bad("--ledger="), bad("--model=")]), "the value of --model is not UTF-8");
        assert_eq!(of(&["--model".into(), "--".into(), bad("t")]), "`t\u{fffd}` is not UTF-8");
    }
}
