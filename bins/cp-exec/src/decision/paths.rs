//! The working directory of a command, and the paths that its arguments name.

use std::fs;
use std::path::{Component, Path, PathBuf};

use cp_common::{Error, Result};

use crate::policy::{Access, Policy};
use crate::refusal::{denied, denied_by};
use crate::request::Command;
use crate::rules::{Arguments, written_paths};

/// The directory that a command requests, without links.
pub(super) fn requested_cwd(policy: &Policy, command: &Command) -> Result<PathBuf> {
    // The kernel returns this path without links.
    let here = std::env::current_dir().map_err(|e| Error::io("the working directory", e))?;
    let Some(asked) = &command.cwd else { return Ok(here) };
    let asked = here.join(policy.expand(asked));
    let real = asked
        .canonicalize()
        .map_err(|e| Error::not_found(format!("the working directory {}: {e}", asked.display())).with("rule", "cwd"))?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(Error::validation(format!("{} is not a directory", real.display())).with("rule", "cwd"))
}

/// Refuses a working directory that the policy does not allow.
pub(super) fn check_cwd(policy: &Policy, cwd: &Path) -> Result<()> {
    if !policy.bounds.lists(Access::Read, cwd) {
        return Err(denied("execute", cwd)
            .with("rule", "cwd")
            .hint("choose a working directory inside paths.read of the policy"));
    }
    if let Some(pattern) = policy.bounds.forbidding(cwd) {
        return Err(denied_by("execute", cwd, "forbidden", pattern.text()));
    }
    Ok(())
}

/// Checks that a module declares the programs that it runs from its root, and that the working directory is readable
/// for the module.
pub(crate) fn check_modules(policy: &Policy, cwd: &Path, program: &Path, arguments: &[String]) -> Result<()> {
    for module in policy.modules_at(&[cwd, program]) {
        module.check(Access::Read, cwd)?;
        if policy.bounds.lists(Access::Execute, program) {
            module.check_execute(program, arguments)?;
        }
    }
    Ok(())
}

/// Checks a script that an interpreter runs against the declarations of its module and of the module of the working
/// directory. The result is the same for `python3 scripts/a.py`, `sh scripts/a.sh` and `scripts/a.sh`.
pub(super) fn check_script(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let Some((script, arguments)) = arguments.script() else { return Ok(()) };
    let full = resolve_word(cwd, &policy.expand(script));
    policy.modules_at(&[cwd, &full]).into_iter().try_for_each(|module| module.check_execute(&full, arguments))
}

/// Refuses a command whose arguments name a governed file that it would write. The sandbox makes these files
/// read-only; this check reports the reason before the command starts.
pub(super) fn check_governed(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let Some(governed) = &policy.governed else { return Ok(()) };
    written_paths(policy, arguments, cwd).iter().try_for_each(|path| governed.check_writable(path))
}

/// Refuses arguments that name a forbidden path. The sandbox hides these paths; this check reports the reason before
/// the command starts.
pub(super) fn check_arguments(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let modules = policy.modules_that_forbid(&[cwd]);
    if policy.bounds.forbidden.is_empty() && modules.is_empty() {
        return Ok(());
    }
    for value in arguments.possible_paths() {
        let path = resolve_word(cwd, &policy.expand(value));
        if let Some(pattern) = policy.bounds.forbidding(&path) {
            return Err(
                denied_by("read", &path, "forbidden", pattern.text()).hint("the policy's paths.forbidden covers it")
            );
        }
        for module in &modules {
            module.check_not_forbidden(&path)?;
        }
    }
    Ok(())
}

/// Resolves a word from a canonical directory, as far as the path exists.
pub(super) fn resolve_word(cwd: &Path, word: &str) -> PathBuf {
    if word.starts_with('/') {
        return cp_common::home::resolved(Path::new(word));
    }
    let mut path = cwd.to_owned();
    for part in Path::new(word).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => {
                path.push(other);
                if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                    path = path.canonicalize().unwrap_or(path);
                }
            }
        }
    }
    path
}
