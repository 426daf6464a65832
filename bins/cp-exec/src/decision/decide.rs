//! Decides about a request: arguments, rules, program, directory and limits, and then the plan of the sandbox.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Error, Result};

use super::allowed::{check_command_name, check_target, refuse_all_commands, resolve_program};
use super::environment;
use super::hashes::HashCache;
use super::intent::{add_tool_call_hint, check_intent};
use super::paths::{check_arguments, check_cwd, check_governed, check_modules, check_script, requested_cwd};
use super::plan::{Planned, plan};
use super::program::{Pinned, ProgramLookup};
use super::ruling::Ruling;
use super::strings::{line_of, shell_words};
use crate::digest::sha256;
use crate::policy::{Policy, Verdict};
use crate::request::{Command, Form};
use crate::rules::{Arguments, Finding, Risk, Scope, judge, served};

/// The decision about a command before its sandbox is planned.
#[derive(Clone)]
pub(crate) struct Assessment {
    /// The command's arguments, starting with its name.
    pub argv: Vec<String>,
    pub finding: Finding,
    /// The file that would be executed.
    pub pinned: Pinned,
    pub cwd: PathBuf,
    pub timeout: Duration,
    pub notices: Vec<String>,
    /// The command line, if the command is a shell that runs one. Each program of the line is decided about when it
    /// starts.
    pub line: Option<String>,
}

impl Assessment {
    /// True if the command must be confirmed before it starts.
    pub(crate) fn needs_confirmation(&self) -> bool {
        self.finding.verdict == Verdict::Confirm && self.line.is_none()
    }

    pub(crate) fn into_ruling(self, policy: &Policy, command: &Command) -> Result<Ruling> {
        let confirm = self.needs_confirmation().then_some(self.finding.reason);
        let is_line = self.line.is_some();
        let Planned { plan, watched } =
            plan(policy, command, &self.argv, &self.pinned, &self.cwd, self.timeout, is_line)?;
        Ok(Ruling {
            plan,
            argv: self.argv,
            line: self.line,
            variables: command.env.keys().cloned().collect(),
            pinned: self.pinned,
            timeout: self.timeout,
            rule: self.finding.rule,
            confirm,
            level: policy.exec().confirm,
            approved: None,
            call: policy.actor.call.clone(),
            is_final: self.finding.is_final,
            target: self.finding.target,
            confirmed: None,
            stdin: command.stdin.as_ref().map(|text| sha256(text.as_bytes())),
            risk: self.finding.risk,
            notices: self.notices,
            watched,
        })
    }
}

/// Decides about a command, and plans its run.
pub(crate) fn decide(policy: &Policy, hashes: &mut HashCache, command: &Command) -> Result<Ruling> {
    assess(policy, hashes, command)?.into_ruling(policy, command)
}

/// Decides about a command whose string is already parsed.
pub(crate) fn assess(policy: &Policy, hashes: &mut HashCache, command: &Command) -> Result<Assessment> {
    let cwd = requested_cwd(policy, command)?;
    match &command.form {
        Form::Words(argv) => assess_words(policy, hashes, command, argv, cwd),
        Form::Line(line) => {
            let finding =
                Finding::contained("the sandbox contains the line, and each program is decided about when it starts");
            assess_line(policy, hashes, command, line.clone(), finding, cwd)
        }
        Form::Pipeline(stages) => {
            let mut finding = Finding::allowed(Risk::Low);
            for argv in stages {
                finding = finding.or(assess_words(policy, hashes, command, argv, cwd.clone())?.finding);
            }
            assess_line(policy, hashes, command, line_of(stages), finding, cwd)
        }
        Form::Strict(_) => Err(Error::validation("the string of the command was not read").with("rule", "request")),
    }
}

/// Decides about a command line: the shell, its directory and its time limit.
fn assess_line(
    policy: &Policy,
    hashes: &mut HashCache,
    command: &Command,
    line: String,
    finding: Finding,
    cwd: PathBuf,
) -> Result<Assessment> {
    if policy.exec().allowed_commands.is_empty() {
        return Err(refuse_all_commands(policy));
    }
    policy.check_base()?;
    check_cwd(policy, &cwd)?;
    let (shell, argv) = shell_words(&line, matches!(command.form, Form::Pipeline(_)))?;
    let pinned = ProgramLookup::of(policy).pin(&shell, hashes, &|path| policy.writable_only(path))?;
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    Ok(Assessment { argv, finding, pinned, cwd, timeout, notices: command.notices.clone(), line: Some(line) })
}

/// Decides about one program in a directory without links.
fn assess_words(
    policy: &Policy,
    hashes: &mut HashCache,
    command: &Command,
    argv: &[String],
    cwd: PathBuf,
) -> Result<Assessment> {
    let arguments = Arguments::read(argv);
    let mut notices = command.notices.clone();
    let served = served(&arguments);
    // This check comes before the lists of the policy, because no policy can allow writes to governed paths.
    check_governed(policy, &arguments, &cwd)?;
    check_command_name(policy, &arguments).map_err(|error| add_tool_call_hint(error, policy, served))?;
    // A tool call can replace a whole request only, and only one that names a file.
    let replaces = command.words().is_some() && arguments.operands().next().is_some();
    check_intent(policy, served.filter(|_| replaces), &mut notices)
        .map_err(|error| add_tool_call_hint(error, policy, served))?;

    policy.check_base()?;
    check_cwd(policy, &cwd)?;
    let finding = judge(policy, argv, &cwd, Scope::Single).or_refused()?;
    let path = resolve_program(policy, &arguments, &cwd)?;
    let pinned = ProgramLookup::of(policy).pin(&path, hashes, &|path| policy.writable_only(path))?;
    check_target(policy, &pinned.path)?;

    check_modules(policy, &cwd, &pinned.path, arguments.words())?;
    check_script(policy, &arguments, &cwd)?;
    check_arguments(policy, &arguments, &cwd)?;
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    Ok(Assessment { argv: argv.to_vec(), finding, pinned, cwd, timeout, notices, line: None })
}

/// The time limit of a request, or the default of the policy.
pub(crate) fn timeout_of(policy: &Policy, asked: Option<f64>) -> Result<Duration> {
    let seconds = asked.unwrap_or(policy.exec().timeout);
    if !seconds.is_finite() || seconds <= 0.0 || seconds > policy.longest {
        let message = format!("timeout must be more than 0 and at most {} seconds", policy.longest);
        return Err(Error::validation(message).with("rule", "timeout"));
    }
    Ok(Duration::from_secs_f64(seconds))
}
