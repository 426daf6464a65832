//! `cp-exec policy show`: the policy that holds, with everything that the file leaves out.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;

use crate::policy;
use crate::rules::built_in;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "policy show",
    class: Class::Query,
    output: "policy",
    examples: &["{} policy show"],
    ..VerbDoc::EMPTY
};

/// A policy, whole.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy"))]
pub(crate) struct Shown {
    /// Its file; null where the built-in policy holds.
    file: Option<String>,
    /// The hash of the file's text, on every entry of the ledger.
    sha256: String,
    /// Who owns it.
    owner: u32,
    /// What `~` means in it.
    home: String,
    /// What holds, by section.
    policy: serde_json::Map<String, serde_json::Value>,
    /// The names of the built-in argument rules.
    built_in_rules: Vec<&'static str>,
}

impl Reply for Shown {
    fn text(&self) -> String {
        serde_json::to_string_pretty(&self.policy).unwrap_or_default()
    }
}

pub(super) fn run(context: &mut Context) -> Result<()> {
    let loaded = policy::load(&context.home.policy_file())?;
    let Ok(serde_json::Value::Object(policy)) = serde_json::to_value(&loaded.settings) else {
        return Err(Error::config("the policy cannot be shown"));
    };
    context.out.answer(&Shown {
        file: loaded.file.map(|file| file.display().to_string()),
        sha256: loaded.sha256,
        owner: loaded.owner,
        home: loaded.home.display().to_string(),
        policy,
        built_in_rules: built_in().map(|rule| rule.id.as_str()).collect(),
    })
}
