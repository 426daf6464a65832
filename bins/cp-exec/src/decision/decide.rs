//! From a request to a ruling: arguments, rules, program, directory and limits, and then the plan of the sandbox.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Error, Result};

use super::allowed::{allowed_name, canonical_program, restricted_target};
use super::environment;
use super::hashes::Hashes;
use super::layers::wrapped;
use super::paths::{arguments_allowed, asked_cwd, cwd_allowed, declared_by_modules, script_declared};
use super::plan::{Planned, plan};
use super::program::{Names, Pinned};
use super::rules::{Finding, judge};
use super::ruling::Ruling;
use super::served::{point_to, redirect, served};
use super::written::governed_stays;
use crate::arguments::Arguments;
use crate::digest::sha256;
use crate::policy::{Policy, Verdict};
use crate::request::Command;

/// What is decided about a command, before its sandbox is planned.
#[derive(Clone)]
pub(crate) struct Considered {
    pub finding: Finding,
    /// The file it would be.
    pub pinned: Pinned,
    pub cwd: PathBuf,
    pub timeout: Duration,
    pub notices: Vec<String>,
}

impl Considered {
    /// Whether it needs to be confirmed.
    pub(crate) fn asks(&self) -> bool {
        self.finding.verdict == Verdict::Confirm
    }

    pub(crate) fn rule(self, policy: &Policy, command: &Command, argv: &[String]) -> Result<Ruling> {
        let confirm = self.asks().then_some(self.finding.reason);
        let Planned { plan, watched } = plan(policy, command, argv, &self.pinned, &self.cwd, self.timeout)?;
        Ok(Ruling {
            plan,
            argv: argv.to_vec(),
            variables: command.env.keys().cloned().collect(),
            pinned: self.pinned,
            timeout: self.timeout,
            rule: self.finding.rule,
            confirm,
            level: policy.exec().confirm,
            approved: None,
            call: policy.actor.call.clone(),
            is_final: self.finding.is_final,
            confirmed: None,
            stdin: command.stdin.as_ref().map(|text| sha256(text.as_bytes())),
            risk: self.finding.risk,
            notices: self.notices,
            watched,
        })
    }
}

/// Decides about one stage of a command, and plans its run.
pub(crate) fn decide(policy: &Policy, hashes: &mut Hashes, command: &Command, argv: &[String]) -> Result<Ruling> {
    consider(policy, hashes, command, argv)?.rule(policy, command, argv)
}

/// Decides about one stage of a command.
pub(crate) fn consider(policy: &Policy, hashes: &mut Hashes, command: &Command, argv: &[String]) -> Result<Considered> {
    consider_in(policy, hashes, command, argv, asked_cwd(policy, command)?)
}

/// Decides about a command in a directory without links, which need not be there yet.
pub(super) fn consider_in(
    policy: &Policy,
    hashes: &mut Hashes,
    command: &Command,
    argv: &[String],
    cwd: PathBuf,
) -> Result<Considered> {
    let arguments = Arguments::read(argv);
    let mut notices = command.notices.clone();
    let outer = served(&arguments);
    // Before what the policy allows: what a tree governs no policy can allow.
    governed_stays(policy, &arguments, &cwd)?;
    allowed_name(policy, &arguments).map_err(|error| point_to(error, policy, outer))?;
    let wrapped = wrapped(policy, &arguments)?;
    let layers: Vec<Arguments<'_>> =
        std::iter::once(arguments).chain(wrapped.iter().map(|argv| Arguments::read(argv))).collect();
    let served = layers.last().and_then(served);
    // What no other tool does with one request is not sent to any.
    let replaces = command.stages.len() == 1 && layers.last().is_some_and(|layer| layer.operands().next().is_some());
    redirect(policy, served.filter(|_| replaces), &mut notices).map_err(|error| point_to(error, policy, served))?;

    policy.check_base()?;
    cwd_allowed(policy, &cwd)?;
    let finding = judge(policy, &layers, &cwd)?;
    let path = canonical_program(policy, &layers[0], &cwd)?;
    let pinned = Names::of(policy).pin(&path, hashes, &|path| policy.writable_only(path))?;
    restricted_target(policy, &pinned.path)?;

    declared_by_modules(policy, &cwd, &pinned.path, layers[0].words())?;
    for layer in &layers {
        script_declared(policy, layer, &cwd)?;
        governed_stays(policy, layer, &cwd)?;
    }
    arguments_allowed(policy, &layers[0], &cwd)?;
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    Ok(Considered { finding, pinned, cwd, timeout, notices })
}

/// The time limit of what asks for one, or for none.
pub(crate) fn timeout_of(policy: &Policy, asked: Option<f64>) -> Result<Duration> {
    let seconds = asked.unwrap_or(policy.exec().timeout);
    if !seconds.is_finite() || seconds <= 0.0 || seconds > policy.longest {
        let message = format!("timeout must be more than 0 and at most {} seconds", policy.longest);
        return Err(Error::validation(message).with("rule", "timeout"));
    }
    Ok(Duration::from_secs_f64(seconds))
}
