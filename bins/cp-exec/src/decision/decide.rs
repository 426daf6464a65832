//! Decides about a request: arguments, rules, program, directory and limits, and then the plan of the sandbox.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Error, Result};

use super::allowed::{allowed_name, canonical_program, no_commands, restricted_target};
use super::environment;
use super::hashes::Hashes;
use super::intent::{point_to, redirect};
use super::paths::{arguments_allowed, asked_cwd, cwd_allowed, declared_by_modules, governed_stays, script_declared};
use super::plan::{Planned, plan};
use super::program::{Names, Pinned};
use super::ruling::Ruling;
use super::strings::{line_of, shell_words};
use crate::digest::sha256;
use crate::policy::{Policy, Verdict};
use crate::request::{Command, Form};
use crate::rules::{Arguments, Finding, Risk, Scope, judge, served};

/// The decision about a command before its sandbox is planned.
#[derive(Clone)]
pub(crate) struct Considered {
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

impl Considered {
    /// True if the command must be confirmed before it starts.
    pub(crate) fn asks(&self) -> bool {
        self.finding.verdict == Verdict::Confirm && self.line.is_none()
    }

    pub(crate) fn rule(self, policy: &Policy, command: &Command) -> Result<Ruling> {
        let confirm = self.asks().then_some(self.finding.reason);
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
pub(crate) fn decide(policy: &Policy, hashes: &mut Hashes, command: &Command) -> Result<Ruling> {
    consider(policy, hashes, command)?.rule(policy, command)
}

/// Decides about a command whose string is already parsed.
pub(crate) fn consider(policy: &Policy, hashes: &mut Hashes, command: &Command) -> Result<Considered> {
    let cwd = asked_cwd(policy, command)?;
    match &command.form {
        Form::Words(argv) => consider_words(policy, hashes, command, argv, cwd),
        Form::Line(line) => {
            let finding =
                Finding::contained("the sandbox contains the line, and each program is decided about when it starts");
            consider_line(policy, hashes, command, line.clone(), finding, cwd)
        }
        Form::Pipeline(stages) => {
            let mut finding = Finding::allowed(Risk::Low);
            for argv in stages {
                finding = finding.or(consider_words(policy, hashes, command, argv, cwd.clone())?.finding);
            }
            consider_line(policy, hashes, command, line_of(stages), finding, cwd)
        }
        Form::Strict(_) => Err(Error::validation("the string of the command was not read").with("rule", "request")),
    }
}

/// Decides about a command line: the shell, its directory and its time limit.
fn consider_line(
    policy: &Policy,
    hashes: &mut Hashes,
    command: &Command,
    line: String,
    finding: Finding,
    cwd: PathBuf,
) -> Result<Considered> {
    if policy.exec().allowed_commands.is_empty() {
        return Err(no_commands(policy));
    }
    policy.check_base()?;
    cwd_allowed(policy, &cwd)?;
    let (shell, argv) = shell_words(&line, matches!(command.form, Form::Pipeline(_)))?;
    let pinned = Names::of(policy).pin(&shell, hashes, &|path| policy.writable_only(path))?;
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    Ok(Considered { argv, finding, pinned, cwd, timeout, notices: command.notices.clone(), line: Some(line) })
}

/// Decides about one program in a directory without links.
fn consider_words(
    policy: &Policy,
    hashes: &mut Hashes,
    command: &Command,
    argv: &[String],
    cwd: PathBuf,
) -> Result<Considered> {
    let arguments = Arguments::read(argv);
    let mut notices = command.notices.clone();
    let served = served(&arguments);
    // This check comes before the lists of the policy, because no policy can allow writes to governed paths.
    governed_stays(policy, &arguments, &cwd)?;
    allowed_name(policy, &arguments).map_err(|error| point_to(error, policy, served))?;
    // A tool call can replace a whole request only, and only one that names a file.
    let replaces = command.words().is_some() && arguments.operands().next().is_some();
    redirect(policy, served.filter(|_| replaces), &mut notices).map_err(|error| point_to(error, policy, served))?;

    policy.check_base()?;
    cwd_allowed(policy, &cwd)?;
    let finding = judge(policy, argv, &cwd, Scope::Single).or_refused()?;
    let path = canonical_program(policy, &arguments, &cwd)?;
    let pinned = Names::of(policy).pin(&path, hashes, &|path| policy.writable_only(path))?;
    restricted_target(policy, &pinned.path)?;

    declared_by_modules(policy, &cwd, &pinned.path, arguments.words())?;
    script_declared(policy, &arguments, &cwd)?;
    arguments_allowed(policy, &arguments, &cwd)?;
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    Ok(Considered { argv: argv.to_vec(), finding, pinned, cwd, timeout, notices, line: None })
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
