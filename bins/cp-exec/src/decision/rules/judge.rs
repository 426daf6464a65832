//! The verdict on a command: every rule that is about it, and every rule about what it wraps.

use std::path::Path;

use cp_common::Result;

use super::finding::{Finding, Risk};
use super::table::{in_table, rules};
use super::{discard, git_config, overwrite, script, sed, sqlite};
use crate::arguments::Arguments;
use crate::policy::{ArgumentRules, Policy, Rule, Verdict};
use crate::refusal::{owner_decides, refuse};

/// The rule about an option that is not in the table of its program.
const UNKNOWN: &str = "arguments";

/// Programs that run code of the repository by design.
const BUILDERS: [&str; 16] = [
    "cargo", "npm", "pnpm", "yarn", "make", "gmake", "cmake", "ninja", "meson", "gradle", "mvn", "go", "pip", "tox",
    "pytest", "bazel",
];

/// Subcommands that publish or delete, whatever the program: what a policy's rule asks about them is asked each time.
const FINAL: [&str; 10] =
    ["push", "publish", "upload", "release", "deploy", "delete", "remove", "rm", "destroy", "purge"];

/// Judges the arguments of commands whose names are allowed: one, and what it wraps.
pub(crate) fn judge(policy: &Policy, layers: &[Arguments<'_>], cwd: &Path) -> Result<Finding> {
    let mut verdict = Finding::allowed(Risk::Low);
    for arguments in layers {
        let finding = finding(policy, arguments, cwd);
        if finding.verdict == Verdict::Deny {
            let hint = match finding.rule.as_str() {
                script::SCRIPT => owner_decides("paths.execute lists the directories of scripts"),
                UNKNOWN => "write the option in full, as the program's own manual has it, or remove it".to_owned(),
                _ => "run the inner command as a request of its own, or remove this argument".to_owned(),
            };
            return Err(refuse(&finding.rule, finding.reason).hint(hint));
        }
        verdict = verdict.or(finding);
    }
    Ok(verdict)
}

/// What the rules about one command say.
fn finding(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Finding {
    let own = policy.exec().rule.iter().filter(|rule| rule.is_about(arguments));
    let mut finding = own.map(|rule| of_policy(rule, arguments)).fold(Finding::allowed(Risk::Low), Finding::or);
    if policy.exec().argument_rules != ArgumentRules::Default {
        return finding;
    }
    if let Some(word) = arguments.unknown() {
        let reason = format!("`{}`: {word} is not an option of it that is known", arguments.name());
        finding = finding.or(Finding::denied(UNKNOWN, reason));
    }
    finding = finding.or(in_table(arguments));
    if let Some(reason) = sed::objection(arguments) {
        finding = finding.or(Finding::denied("sed.run", reason));
    }
    if let Some(reason) = sqlite::objection(arguments) {
        finding = finding.or(Finding::denied("database.shell", reason));
    }
    if let Some(reason) = git_config::objection(arguments) {
        finding = finding.or(Finding::denied("git.setting", format!("`git config`: {reason}")));
    }
    if let Some(discards) = discard::judge(arguments, cwd) {
        finding = finding.or(discards);
    }
    if let Some(overwrites) = overwrite::judge(arguments, cwd) {
        finding = finding.or(overwrites);
    }
    if arguments.is_interpreter() {
        finding = finding.or(script::judge(policy, arguments, cwd));
    }
    if BUILDERS.contains(&arguments.name()) {
        finding.risk = finding.risk.max(Risk::Medium);
    }
    finding
}

/// Whether the arguments of a command matter to any built-in rule.
pub(crate) fn has_rules(arguments: &Arguments<'_>) -> bool {
    arguments.is_sed()
        || arguments.is_interpreter()
        || overwrite::is_about(arguments)
        || arguments.name() == "sqlite3"
        || rules().any(|rule| rule.names(arguments.name()))
}

fn of_policy(rule: &Rule, arguments: &Arguments<'_>) -> Finding {
    let risk = if rule.decision == Verdict::Confirm { Risk::High } else { Risk::Low };
    let is_final = arguments.is_command(&FINAL) || in_table(arguments).verdict == Verdict::Confirm;
    let reason = rule.reason.clone().unwrap_or_else(|| format!("a rule of the policy about `{}`", rule.command));
    Finding { verdict: rule.decision, rule: format!("policy.{}", rule.command), reason, risk, is_final }
}
