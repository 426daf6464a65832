//! The errors of a command line that cannot be parsed.

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
