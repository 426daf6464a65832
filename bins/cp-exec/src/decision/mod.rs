//! The decision about one command: if it may run, which file is executed, in which directory, and under which limits.
//!
//! [`crate::rules`] judges the arguments. A [`Decision`] and the policy become a [`Ruling`], which holds the plan of
//! the sandbox. This module starts no process except git, which lists the settings of its owner, and does not write to
//! the ledger.

mod agent;
mod checks;
pub(crate) mod confirm;
mod own_repository;
mod owner_git;
mod plan;
mod program;
mod step;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::program::approval::Spent;
use cp_common::{Error, Result};

pub(crate) use self::agent::{decide_agent, unseen_files};
pub(crate) use self::checks::check_modules;
use self::checks::{
    add_tool_call_hint, check_command_name, check_cwd, check_declared, check_intent, check_paths, check_script_place,
    check_target, not_of_name, refuse_all_commands, requested_cwd, resolve_program,
};
pub(crate) use self::owner_git::OwnerGit;
pub(crate) use self::plan::{check_variables, plan};
use self::program::runs_by_path;
pub(crate) use self::program::{HashCache, Pinned, on_own_path, pin, resolve};
use self::step::runs_script;
pub(crate) use self::step::{Caller, StepRules, StepRuling, decide_step};
use crate::digest::sha256;
use crate::guard::Watched;
use crate::policy::{Intent, LONGEST, Policy, Verdict};
use crate::request::Command;
use crate::rules::{Arguments, Finding, Scope, judge, served};
use crate::sandbox::plan::Plan;

/// What was decided about a command, and why.
#[derive(Clone)]
pub(crate) struct Decision {
    /// The command. The arguments of a line are those of its shell, and each program of the line is decided about when
    /// it starts.
    pub command: Command,
    pub finding: Finding,
    /// The file that would be executed.
    pub pinned: Pinned,
    pub cwd: PathBuf,
    pub timeout: Duration,
    /// The kind of process that the command is: its starts of other programs are decided about as such.
    pub caller: Caller,
}

impl Decision {
    /// The reason why the command must be confirmed before it starts; `None` if it is allowed.
    pub(crate) fn question(&self) -> Option<&str> {
        (self.finding.verdict == Verdict::Ask).then_some(self.finding.reason.as_str())
    }

    /// The hash of the standard input, if the request contains it.
    pub(crate) fn stdin(&self) -> Option<String> {
        self.command.stdin.as_ref().map(|text| sha256(text.as_bytes()))
    }
}

/// Decides about a command.
pub(crate) fn decide(policy: &Policy, hashes: &mut HashCache, command: &Command) -> Result<Decision> {
    let (cwd, mut command) = (requested_cwd(policy, command)?, command.clone());
    let (finding, pinned) = match &command.line {
        None => assess_words(policy, hashes, &command, &cwd)?,
        Some(line) => {
            if policy.exec().allowed_commands.is_empty() {
                return Err(refuse_all_commands(policy));
            }
            policy.check_base()?;
            check_cwd(policy, &cwd)?;
            let (shell, argv) = shell_words(command.shell_text.as_deref().unwrap_or(line))?;
            command.argv = argv;
            let why = "the sandbox contains the line, and each program is decided about when it starts";
            (Finding::contained(why), pin(policy, &shell, hashes)?)
        }
    };
    let timeout = timeout_of(policy, command.timeout)?;
    check_variables(&policy.exec().env_allow, &command.env)?;
    Ok(Decision { command, finding, pinned, cwd, timeout, caller: Caller::Line })
}

/// Judges one program in a directory without links.
fn assess_words(policy: &Policy, hashes: &mut HashCache, command: &Command, cwd: &Path) -> Result<(Finding, Pinned)> {
    let argv = &command.argv;
    let arguments = Arguments::read(argv);
    // A person types commands, and has no tools that read; another agent has none of these tools.
    let is_exempt = command.typed || policy.exec().intent == Intent::Off;
    let served = served(&arguments).filter(|served| policy.actor.host.is_none() && !(served.reads && is_exempt));
    // This check comes before the lists of the policy, because they do not allow these paths.
    check_paths(policy, &arguments, cwd)?;
    let word = arguments.command().unwrap_or_default();
    let asked = cwd.join(policy.expand(word));
    let (is_path, file) = (word.contains('/'), resolve_program(policy, word, &asked));
    let by_path = is_path && file.as_ref().is_ok_and(|file| runs_by_path(policy, &asked, file));
    let checked = if by_path { Ok(()) } else { check_command_name(policy, &arguments) };
    checked.and_then(|()| check_intent(policy, served)).map_err(|error| add_tool_call_hint(error, policy, served))?;

    policy.check_base()?;
    check_cwd(policy, cwd)?;
    let finding = judge(policy, argv, cwd, Scope::Single).or_refused()?;
    check_script_place(policy, &arguments, cwd)?;
    let file = file?;
    if is_path && !by_path && !resolve(policy, arguments.name()).is_ok_and(|known| known == file) {
        return Err(not_of_name(policy, arguments.name(), &file));
    }
    let pinned = pin(policy, &file, hashes)?;
    check_target(policy, &pinned.path)?;
    let finding = finding.or(of_interpreter(policy, &pinned, &argv[1..], cwd)?);
    check_declared(policy, &arguments, cwd, &pinned.path)?;
    Ok((finding, pinned))
}

/// The finding about the interpreter of a script.
fn of_interpreter(policy: &Policy, pinned: &Pinned, words: &[String], cwd: &Path) -> Result<Finding> {
    if pinned.script.is_none() {
        return Ok(Finding::allowed());
    }
    check_target(policy, &pinned.exe.path)?;
    let argv: Vec<String> = pinned.prefix.iter().chain(words).cloned().collect();
    if !runs_script(&argv) {
        check_command_name(policy, &Arguments::read(&argv))?;
    }
    judge(policy, &argv, cwd, Scope::Line).or_refused()
}

/// The time limit of a request, or the default of the policy.
pub(crate) fn timeout_of(policy: &Policy, asked: Option<f64>) -> Result<Duration> {
    let seconds = asked.unwrap_or(policy.exec().timeout);
    let longest = if policy.is_of_server { 86_400.0 } else { LONGEST };
    if !seconds.is_finite() || seconds <= 0.0 || seconds > longest {
        let message = format!("timeout must be more than 0 and at most {longest} seconds");
        return Err(Error::validation(message).with("rule", "timeout"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A command that may run now, or after confirmation, and what it may use.
pub(crate) struct Ruling {
    pub decision: Decision,
    /// The plan for the sandbox helper.
    pub plan: Plan,
    /// The guarded paths in the trees that the run may write.
    pub watched: Watched,
    /// The git configuration of the owner.
    pub git: OwnerGit,
    /// The id of the model's tool call that requests the command.
    pub call: Option<String>,
    /// The approval that was spent for this run.
    pub approved: Option<Spent>,
    /// The hash of the token that was spent for this run.
    pub confirmed: Option<String>,
}

/// The shells for command lines; the first that exists is used.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// The shell of this machine, and the arguments with which it runs a line.
pub(crate) fn shell_words(line: &str) -> Result<(PathBuf, Vec<String>)> {
    let shell = SHELLS.iter().find_map(|path| Path::new(path).canonicalize().ok());
    let shell = shell.ok_or_else(|| Error::not_found("this machine has neither bash nor sh").with("rule", "shell"))?;
    let name = shell.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut words = vec![name, "-c".to_owned()];
    // A shell would parse such a line as an option.
    if line.starts_with(['-', '+']) {
        words.push("--".to_owned());
    }
    words.push(line.to_owned());
    Ok((shell, words))
}
