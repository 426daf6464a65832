//! `cp-exec policy test`: every rule against the command lines it carries.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;

use crate::policy;
use crate::rules::{built_in, wrong_examples};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "policy test",
    class: Class::Query,
    output: "policy_tested",
    examples: &["{} policy test"],
    ..VerbDoc::EMPTY
};

/// How the rules did.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_tested"))]
pub(crate) struct Tested {
    /// The file; null where the built-in policy holds.
    file: Option<String>,
    /// Rules of the policy.
    policy_rules: usize,
    /// Built-in rules.
    built_in_rules: usize,
    /// Command lines that were tried.
    examples: usize,
}

impl Reply for Tested {
    fn text(&self) -> String {
        format!("{} rules, {} examples, all correct", self.policy_rules + self.built_in_rules, self.examples)
    }
}

pub(super) fn run(context: &mut Context) -> Result<()> {
    // Reading a policy tries its own examples.
    let loaded = policy::load(&context.home.policy_file())?;
    if let Some((rule, line)) = wrong_examples().next() {
        return Err(Error::new(Code::Integrity, format!("the built-in rule {rule} is wrong about `{line}`")));
    }
    let rules = &loaded.settings.exec.rule;
    let own: usize = rules.iter().map(|rule| rule.examples.len() + rule.counterexamples.len()).sum();
    let lines: usize = built_in().map(|rule| rule.examples.len() + rule.counterexamples.len()).sum();
    context.out.answer(&Tested {
        file: loaded.file.map(|file| file.display().to_string()),
        policy_rules: rules.len(),
        built_in_rules: built_in().count(),
        examples: own + lines,
    })
}
