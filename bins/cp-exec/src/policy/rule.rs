//! `[[exec.rule]]`: a policy's own rules about arguments, with examples and counterexamples.

use cp_common::{Error, Result, words};
use serde::{Deserialize, Serialize};

use crate::glob::name_matches;
use crate::rules::Arguments;

/// A rule about arguments.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The command to which the rule applies.
    pub command: String,
    /// The rule applies only if one of these is the first operand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subcommands: Vec<String>,
    /// The rule applies only if one of these options is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    pub decision: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Command lines to which the rule must apply.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Command lines to which the rule must not apply.
    #[serde(default, rename = "not_match", skip_serializing_if = "Vec::is_empty")]
    pub counterexamples: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Allow,
    /// The command may run after confirmation. `ask` is the usual word; `confirm` is accepted as well.
    #[serde(alias = "ask")]
    Confirm,
    Deny,
}

impl Rule {
    /// True if the rule applies to a command line.
    pub(crate) fn is_about(&self, arguments: &Arguments<'_>) -> bool {
        let has_subcommand = || self.subcommands.is_empty() || arguments.is_command(&self.subcommands);
        name_matches(&self.command, arguments.name())
            && has_subcommand()
            && (self.options.is_empty() || arguments.has_option(&self.options))
    }
}

/// Checks that each rule applies to its examples and not to its counterexamples.
pub(super) fn check_examples(rules: &[Rule]) -> Result<()> {
    for (at, rule) in rules.iter().enumerate() {
        let wrong = |line: &String, is: &str| {
            Error::config(format!("exec.rule {}, about `{}`: `{line}` {is}", at + 1, rule.command))
                .with("key", "exec.rule")
                .with("example", line.as_str())
        };
        let about = |line: &String| -> Result<bool> {
            let words =
                words::split(line).map_err(|refusal| wrong(line, &format!("is not a valid command: {refusal}")))?;
            Ok(rule.is_about(&Arguments::read(&words.argv)))
        };
        for line in &rule.examples {
            if !about(line)? {
                return Err(wrong(line, "should match and does not"));
            }
        }
        for line in &rule.counterexamples {
            if about(line)? {
                return Err(wrong(line, "should not match and does"));
            }
        }
    }
    Ok(())
}
