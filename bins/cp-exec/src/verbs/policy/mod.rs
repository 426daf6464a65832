//! `cp-exec policy`: shows the policy in force, and writes a starter.

pub(crate) mod additions;
pub(crate) mod init;
pub(super) mod project;
pub(super) mod toolchains;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;

use crate::policy::load;
use crate::rules::built_in;

/// Show or start the policy
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show the policy in force, with its built-in defaults
    Show,
    /// Write a commented starter policy, or add what a project needs
    Init(init::Args),
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Show => show(context),
        Verb::Init(args) => init::run(args, context),
    }
}

pub(crate) const SHOW: VerbDoc = VerbDoc {
    path: "policy show",
    class: Class::Query,
    output: "policy",
    examples: &["{} policy show"],
    ..VerbDoc::EMPTY
};

/// The whole policy.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy"))]
pub(crate) struct Shown {
    /// The policy file; null for the built-in policy.
    file: Option<String>,
    /// The hash of the file's text, which every entry of the ledger contains.
    sha256: String,
    /// The uid of the owner.
    owner: u32,
    /// The value of `~`.
    home: String,
    /// The settings, by section.
    policy: serde_json::Map<String, serde_json::Value>,
    /// The names of the built-in argument rules.
    built_in_rules: Vec<&'static str>,
    /// The settings as TOML.
    #[serde(skip)]
    text: String,
}

impl Reply for Shown {
    fn text(&self) -> String {
        self.text.trim_end().to_owned()
    }
}

fn show(context: &mut Context) -> Result<()> {
    let loaded = load(&context.home.policy_file())?;
    let Ok(serde_json::Value::Object(policy)) = serde_json::to_value(&loaded.settings) else {
        return Err(Error::config("the policy cannot be shown"));
    };
    let text = toml::to_string(&loaded.settings).map_err(|e| Error::config(e.to_string()))?;
    context.out.answer(&Shown {
        text,
        file: loaded.file.map(|file| file.display().to_string()),
        sha256: loaded.sha256,
        owner: loaded.owner,
        home: loaded.home.display().to_string(),
        policy,
        built_in_rules: built_in().map(|rule| rule.id.as_str()).collect(),
    })
}
