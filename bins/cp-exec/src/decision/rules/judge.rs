//! The verdict on one command: every rule that is about it, and every rule about what it wraps.

use std::path::Path;

use cp_common::Result;

use super::builtin::{has_rules, in_table};
use super::finding::{Finding, Risk};
use super::{script, sed, wrapper};
use crate::arguments::Arguments;
use crate::decision::allowed::allowed_name;
use crate::policy::{ArgumentRules, Policy, Rule, Verdict};
use crate::refusal::{owner_decides, refuse};

/// How deep wrappers may be nested.
const DEPTH: u8 = 3;

/// Programs that run code of the repository by design.
const BUILDERS: [&str; 16] = [
    "cargo", "npm", "pnpm", "yarn", "make", "gmake", "cmake", "ninja", "meson", "gradle", "mvn", "go", "pip", "tox",
    "pytest", "bazel",
];

/// Judges the arguments of a command whose name is allowed.
pub(crate) fn judge(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Result<Finding> {
    let built_in = policy.exec().argument_rules == ArgumentRules::Default;
    Judge { policy, cwd, built_in }.judge(arguments, DEPTH)
}

struct Judge<'p> {
    policy: &'p Policy,
    cwd: &'p Path,
    /// Whether the built-in rules hold.
    built_in: bool,
}

impl Judge<'_> {
    fn judge(&self, arguments: &Arguments<'_>, depth: u8) -> Result<Finding> {
        let finding = self.finding(arguments);
        if finding.verdict == Verdict::Deny {
            let hint = match finding.rule.as_str() {
                script::SCRIPT => owner_decides("paths.execute lists the directories of scripts"),
                _ => "run the inner command as a request of its own, or remove this argument".to_owned(),
            };
            return Err(refuse(&finding.rule, finding.reason).hint(hint));
        }
        let Some(inner) = wrapper::inner(arguments)? else { return Ok(finding) };
        if depth == 0 {
            return Err(refuse("wrapper.depth", "wrappers are nested too deeply").hint("run the command itself"));
        }
        if inner.is_empty() {
            return Ok(finding);
        }
        Ok(finding.or(self.wrapped(arguments.name(), &Arguments::read(inner), depth - 1)?))
    }

    /// What the rules about this command say, without what it wraps.
    fn finding(&self, arguments: &Arguments<'_>) -> Finding {
        let own = self.policy.exec().rule.iter().filter(|rule| rule.is_about(arguments));
        let mut finding = own.map(of_policy).fold(Finding::allowed(Risk::Low), Finding::or);
        if !self.built_in {
            return finding;
        }
        finding = finding.or(in_table(arguments));
        if let Some(reason) = arguments.sed().and_then(sed::objection) {
            finding = finding.or(Finding::denied("sed.run", reason));
        }
        if let Some(interpreter) = arguments.interpreter() {
            finding = finding.or(script::judge(self.policy, arguments, &interpreter, self.cwd));
        }
        if BUILDERS.contains(&arguments.name()) {
            finding.risk = finding.risk.max(Risk::Medium);
        }
        finding
    }

    /// What a wrapper runs must be allowed like anything else, and `/usr/bin/rm` is `rm`.
    fn wrapped(&self, wrapper: &str, arguments: &Arguments<'_>, depth: u8) -> Result<Finding> {
        allowed_name(self.policy, arguments)?;
        let command = arguments.command().unwrap_or_default();
        if command.contains('/') {
            return Err(refuse("wrapper.path", format!("`{wrapper}` would run {command} by its path"))
                .hint("write the name; it is looked up on the policy's path"));
        }
        if self.built_in && wrapper == "xargs" && has_rules(arguments) {
            return Err(refuse("wrapper.input", format!("`{command}` would get arguments that were not checked"))
                .hint("run it with its arguments on the command line"));
        }
        self.judge(arguments, depth)
    }
}

fn of_policy(rule: &Rule) -> Finding {
    let risk = if rule.decision == Verdict::Confirm { Risk::High } else { Risk::Low };
    let reason = rule.reason.clone().unwrap_or_else(|| format!("a rule of the policy about `{}`", rule.command));
    Finding { verdict: rule.decision, rule: format!("policy.{}", rule.command), reason, risk }
}
