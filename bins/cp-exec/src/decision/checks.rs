//! Checks the base command: its name and file against the lists of the policy, and read-only commands that a tool
//! call can replace.
//!
//! Also checks the working directory of a command, and the paths that its arguments name.

use std::path::{Path, PathBuf};

use cp_common::context::options::Origin;
use cp_common::home::{resolved, resolved_below};
use cp_common::{Code, Error, Result};

use super::program::{is_program, resolve, startable};
use crate::policy::{Access, Policy, allowable};
use crate::refusal::{denied, refuse};
use crate::request::Command;
use crate::rules::{Arguments, Operand, Served, escalation};

/// Checks the base command. A restricted command stays restricted even if another list allows it.
pub(super) fn check_command_name(policy: &Policy, arguments: &Arguments<'_>) -> Result<()> {
    let exec = policy.exec();
    let Some(word) = arguments.command() else {
        return Err(Error::validation("there is no command").with("rule", "empty"));
    };
    let name = arguments.name();
    if let Some(rule) = escalation(name) {
        let hint = rule.hint.as_deref().unwrap_or("no policy can allow it");
        return Err(refuse(&rule.id, format!("`{name}`: {}", rule.reason)).hint(hint));
    }
    if exec.restricted_commands.iter().any(|restricted| restricted == name || restricted == word) {
        let error = refuse("restricted", format!("`{name}` is in restricted_commands"));
        return Err(error.hint(policy.setting_hint("exec.restricted_commands")));
    }
    if word.contains([' ', '\t', '\n', '|', ';', '&', '<', '>']) && !word.contains('/') {
        return Err(Error::validation(format!("`{word}` is a command line, not the name of a program"))
            .with("rule", "one_word")
            .hint(format!("write cp-exec -c {}", cp_common::wire::quoted(word))));
    }
    // `busybox NAME` runs busybox.
    let file = word.rsplit('/').next().unwrap_or(word);
    if exec.allows_all() || exec.allowed_commands.iter().any(|allowed| allowed == file || allowed == word) {
        return Ok(());
    }
    if exec.allowed_commands.is_empty() {
        return Err(refuse_all_commands(policy));
    }
    let error = refuse("not_allowed", format!("`{name}` is not in allowed_commands"))
        .with("allowed", exec.allowed_commands.clone());
    Err(startable(error, policy, word))
}

/// The refusal of every command, if the policy allows none.
pub(super) fn refuse_all_commands(policy: &Policy) -> Error {
    let reason = match &policy.loaded.file {
        None => "there is no policy, so no command is allowed",
        Some(_) => "the policy allows no commands",
    };
    refuse("not_allowed", reason).hint(policy.setting_hint("exec.allowed_commands"))
}

/// The canonical file that the first word of a command names, of which `asked` is the path.
pub(super) fn resolve_program(policy: &Policy, word: &str, asked: &Path) -> Result<PathBuf> {
    if !word.contains('/') {
        return resolve(policy, word);
    }
    asked.canonicalize().map_err(|_| {
        Error::not_found(format!("program not found: {}", asked.display()))
            .with("rule", "not_found")
            .hint("a name without a slash is looked up on the policy's path")
    })
}

/// The refusal of a file that has an allowed name, but is not found by it.
pub(super) fn not_of_name(policy: &Policy, name: &str, file: &Path) -> Error {
    let error = refuse("path", format!("{} is not a file that the policy runs for `{name}`", file.display()));
    let error = match resolve(policy, name) {
        Ok(_) => error.hint(format!("write `{name}`")),
        Err(_) if file.is_file() && !is_program(file) => error.hint(format!(
            "chmod +x {}, because it is not executable",
            cp_common::wire::quoted(&file.display().to_string())
        )),
        Err(_) => error,
    };
    policy.with_grant(error, Access::Execute, file)
}

/// Refuses a link whose allowed name hides a restricted program.
pub(super) fn check_target(policy: &Policy, path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let restricted = policy.exec().restricted_commands.iter().any(|restricted| *restricted == name);
    if restricted || escalation(&name).is_some() {
        return Err(refuse("restricted", format!("it resolves to {}, which is restricted", path.display())));
    }
    Ok(())
}

/// Refuses a program's or a model's read-only command, and names the tool call that replaces it.
pub(super) fn check_intent(policy: &Policy, served: Option<&Served>) -> Result<()> {
    match served {
        Some(Served { reads: true, by, .. }) if policy.actor.origin != Origin::Person => {
            Err(refuse("intent", format!("read-only command: `{by}` does the same without starting a process")))
        }
        _ => Ok(()),
    }
}

/// Adds the tool call that replaces a refused command to the refusal.
pub(super) fn add_tool_call_hint(error: Error, policy: &Policy, served: Option<&Served>) -> Error {
    match served {
        Some(served) if error.code() == Code::Forbidden => {
            let step = if policy.actor.call.is_some() { &served.call } else { &served.hint };
            // Without a policy the first step is to create one.
            let hint = match error.hint_text() {
                Some(hint) if policy.loaded.file.is_none() => hint.to_owned(),
                Some(hint) => format!("{step}; {hint}"),
                None => step.clone(),
            };
            error.with("use", served.by.clone()).hint(hint)
        }
        _ => error,
    }
}

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
        let error = denied("execute", cwd).with("rule", "cwd");
        let error = error.hint("choose a working directory inside paths.read of the policy");
        return Err(policy.with_grant(error, Access::Read, cwd));
    }
    policy.check_forbidden(Access::Execute, cwd, &[])?;
    policy.check_tree(Access::Read, cwd, &[])
}

/// Checks that modules declare a program and the script that it runs, with their arguments, and that the working
/// directory is readable for them. The result is the same for `python3 scripts/a.py`, `sh scripts/a.sh` and
/// `scripts/a.sh`.
pub(super) fn check_declared(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path, program: &Path) -> Result<()> {
    check_modules(policy, cwd, program, arguments.words())?;
    check_script(policy, arguments, cwd)
}

/// Checks that modules declare a program, and that the working directory is readable for them.
pub(crate) fn check_modules(policy: &Policy, cwd: &Path, program: &Path, arguments: &[String]) -> Result<()> {
    for module in policy.modules_at(&[cwd, program])? {
        module.check(Access::Read, cwd)?;
        if policy.bounds.lists(Access::Execute, program) {
            module.check_execute(program, arguments)?;
        }
    }
    policy.check_tree(Access::Execute, program, arguments)
}

/// Checks that its module and the module of the working directory declare the script that an interpreter runs.
pub(super) fn check_script(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let Some((script, arguments)) = arguments.script() else { return Ok(()) };
    let full = resolved_below(cwd, policy.expand(script).as_ref());
    policy.modules_at(&[cwd, &full])?.into_iter().try_for_each(|module| module.check_execute(&full, arguments))?;
    policy.check_tree(Access::Execute, &full, arguments)
}

/// Refuses a script outside of the execute paths as the operand of an interpreter.
pub(super) fn check_script_place(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let Some((script, _)) = arguments.script().filter(|_| !policy.is_of_server) else { return Ok(()) };
    let full = resolved(&cwd.join(policy.expand(script)));
    let is_input = script == "-" || full.starts_with("/dev") || full.starts_with("/proc");
    if is_input || policy.bounds.lists(Access::Execute, &full) || policy.is_tool(&full) {
        return Ok(());
    }
    let error = denied("execute", &full).with("rule", "interpreter.script");
    Err(allowable(error, "program", &full.display().to_string()))
}

/// Refuses arguments that plainly write a governed file, or name a forbidden path. The sandbox makes these files
/// read-only and hides these paths; this check reports the reason before the command starts.
pub(super) fn check_paths(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<()> {
    let full = |word: &str| resolved_below(cwd, policy.expand(word).as_ref());
    if let Some(governed) = &policy.governed {
        for path in written(arguments).iter().map(|operand| full(operand.word)) {
            governed.check_writable(&path)?;
            policy.check_tree(Access::Write, &path, &[])?;
        }
    }
    let modules = policy.modules_that_forbid(&[cwd])?;
    for path in arguments.possible_paths().map(full) {
        if path.exists() {
            policy.check_tree(Access::Read, &path, &[])?;
        }
        policy.check_forbidden(Access::Read, &path, &modules)?;
    }
    Ok(())
}

/// The operands that a command plainly writes.
fn written<'s, 'a>(arguments: &'s Arguments<'a>) -> &'s [Operand<'a>] {
    let operands = arguments.operands();
    match arguments.name() {
        "touch" | "tee" | "rm" | "rmdir" | "mkdir" | "unlink" | "shred" | "truncate" | "mv" => operands,
        "cp" | "ln" | "install" => &operands[operands.len().saturating_sub(1)..],
        _ => &[],
    }
}
