//! `cp-exec` inside the sandbox of another cp-exec: replaces itself by its command. The supervisor outside decides about
//! each program when it starts, and records it.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use cp_common::coprocess::replace;
use cp_common::{Code, Context, Error, Result};

use super::{Args, exit_with_status, is_live, variables};
use crate::decision::shell_words;
use crate::sandbox_refusal;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let Args { cwd, env, string, command, .. } = args.clone();
    let has_command = string.is_some() || !command.is_empty();
    let has_others = *args != Args { cwd, env, string, command, ..Args::default() } || context.options.root.is_some();
    if !has_command || has_others || !is_live(context) {
        return Err(sandbox_refusal());
    }
    let failed = replaced(args, context).unwrap_or_else(|error| error);
    exit_with_status(&Err(failed), context);
    Ok(())
}

/// Replaces this process by the command. Returns only if that fails.
fn replaced(args: &Args, context: &Context) -> Result<Error> {
    let variables = variables(args)?;
    let variables = variables.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let directory = context.base()?.join(args.cwd.as_deref().unwrap_or_default());
    std::env::set_current_dir(&directory).map_err(|e| Error::io("--cwd", e).in_file(&directory))?;
    if let Some(line) = &args.string {
        return Ok(replaced_by_line(line, &variables));
    }
    let (program, words) = (&args.command[0], &args.command[1..]);
    Ok(not_started(&program.to_string_lossy(), &replace(program, words, &variables)))
}

/// Replaces this process by a shell that runs a line. Returns only on failure.
pub(crate) fn replaced_by_line(line: &str, variables: &BTreeMap<&str, String>) -> Error {
    match shell_words(line) {
        Ok((shell, words)) => not_started("the shell", &replace(shell, &words[1..], variables)),
        Err(error) => error,
    }
}

fn not_started(name: &str, failed: &std::io::Error) -> Error {
    let code = if failed.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Forbidden };
    Error::new(code, format!("{name}: {failed}")).with("rule", "not_executable")
}
