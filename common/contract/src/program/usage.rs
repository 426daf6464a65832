//! The errors of a command line that cannot be parsed.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::program::command;
use crate::program::identity::Program;
use crate::wire::{Error, Result};

/// Converts clap's error to ours: the mistake, the nearest known name, and a hint. `verb` is the deepest verb that clap
/// reached.
pub(super) fn usage_error(program: &Program, verb: &clap::Command, error: &clap::Error) -> Error {
    let name = verb.get_bin_name().unwrap_or(program.name);
    let word = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // The best one is the last.
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    };
    match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let below: Vec<&str> = command::below(verb).map(clap::Command::get_name).collect();
            let needed = Error::usage(format!("`{name}` needs a verb")).with("verbs", below);
            return needed.hint(format!("`{name} --help` lists them"));
        }
        ErrorKind::InvalidUtf8 => {
            let not_text = Error::usage("an argument is not UTF-8");
            return not_text.hint("write it as UTF-8; only the paths of files may be any bytes");
        }
        _ => {}
    }
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let message = first.strip_prefix("error: ").unwrap_or(&first).replace("subcommand", "verb");
    let usage = Error::usage(message);
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    if let Some(nearest) = suggested.into_iter().find_map(word) {
        return usage.with("nearest", nearest.clone()).hint(format!("did you mean `{nearest}`?"));
    }
    // An option's name has no white space.
    let is_text = || word(ContextKind::InvalidArg).is_some_and(|word| word.contains(char::is_whitespace));
    match error.kind() {
        ErrorKind::ArgumentConflict if verb.get_positionals().any(command::is_command) => {
            usage.hint(format!("quote a command line as one word: {} -c 'ls -l | wc -l'", program.name))
        }
        ErrorKind::UnknownArgument if is_text() => usage.hint("write -- before a text that begins with a dash"),
        _ => usage.hint(format!("`{name} --help` lists the options")),
    }
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
