//! `cp-exec policy`: shows the policy in force, and writes a starter with the toolchains of this machine and the needs of
//! a project. An existing policy gets only missing values, after a preview and confirmation.

pub(crate) mod additions;
pub(super) mod project;

use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;

use self::additions::{edit_policy, extended};
use super::edit::Edited;
use crate::policy::{Loaded, Settings, check_project, load};

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
    /// Write a starter policy, or add what a project needs to one
    Init(InitArgs),
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Show => show(context),
        Verb::Init(args) => init(args, context),
    }
}

pub(crate) const SHOW: VerbDoc =
    VerbDoc { examples: &["{} policy show"], ..VerbDoc::new("policy show", Class::Query, "policy") };

/// The whole policy.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy"))]
pub(crate) struct Shown {
    /// The policy file; null for the built-in policy.
    file: Option<String>,
    /// The hash of the file's text, which every entry of the ledger contains.
    sha256: String,
    /// The settings, by section.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    policy: Settings,
}

impl Reply for Shown {
    fn text(&self) -> String {
        toml::to_string(&self.policy).map_or_else(|e| e.to_string(), |text| text.trim_end().to_owned())
    }
}

fn show(context: &mut Context) -> Result<()> {
    let Loaded { settings: policy, file, sha256, .. } = load(&context.home.policy_file())?;
    context.out.answer(&Shown { file: file.map(|file| file.display().to_string()), sha256, policy })
}

pub(crate) const INIT: VerbDoc = VerbDoc {
    examples: &["{} policy init", "mkdir p && touch p/main.py && {} policy init --for p"],
    events: &["policy.init"],
    ..VerbDoc::new("policy init", Class::Write, "edited")
};

/// The starter policy without the programs of this machine.
const STARTER: &str = include_str!("starter.toml");

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// A project directory; the programs and paths that its files indicate are allowed too
    #[arg(long = "for", value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
}

fn init(args: &InitArgs, context: &mut Context) -> Result<()> {
    let file = context.home.policy_file();
    let loaded = load(&file)?;
    let project = args.project.as_deref().map(|given| given::directory("--for", given)).transpose()?;
    if let Some(project) = &project {
        check_project(project, &loaded.home, &context.home.resolved())?;
    }
    confirm::write(&INIT, &(&file, &project), &args.write, context, |_| plan(&file, &loaded, project.as_deref()))
}

/// A starter policy for this machine and a project, or the additions of a project to the policy.
fn plan(file: &Path, loaded: &Loaded, project: Option<&Path>) -> Result<Plan<'static, Edited>> {
    let (is_new, home) = (loaded.file.is_none(), &loaded.home);
    if !is_new && project.is_none() {
        return Err(Error::new(Code::Conflict, "a policy already exists, and is not overwritten").in_file(file).hint(
            "`cp-exec policy show` shows it; --for DIR adds what a project needs; move the file away to start again",
        ));
    }
    let needs = project.map(|project| project::find_kinds(project, home)).unwrap_or_default();
    let project = project.and_then(|project| project::below_home(project, home));
    let mut edit = edit_policy(INIT.events[0], file, project.clone(), |text| {
        let text = text.map_or_else(|| starter(home), |text| Ok(text.to_owned()))?;
        extended(&text, project.as_deref(), &needs.adds, false)
    })?;
    edit.answer.notes = needs.lines;
    if is_new { Ok(edit.free_plan()) } else { edit.plan() }
}

/// The starter policy with the programs of this machine.
fn starter(home: &Path) -> Result<String> {
    extended(STARTER, None, &project::of_each_kind(home), false)
}

#[cfg(test)]
mod tests {
    use super::project::{CATALOGUE, Group};
    use super::*;
    use crate::policy::{self, SYSTEM_PATH};

    #[test]
    fn starter_is_valid_for_any_toolchain_directories() {
        let home = tempfile::tempdir().unwrap();
        let written = |home: &Path| policy::parse(&starter(home).unwrap()).unwrap();
        assert!(written(home.path()).exec.allows_all());
        let bin = home.path().join(".cargo/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("cargo"), "").unwrap();
        let policy = written(home.path());
        if SYSTEM_PATH.iter().all(|directory| !Path::new(directory).join("cargo").exists()) {
            assert_eq!(policy.exec.pin["cargo"], std::path::Path::new("~/.cargo/bin/cargo"));
            assert_eq!(policy.exec.env_set["CARGO_HOME"], "~/.cargo");
            assert!(policy.paths.execute.contains(&"~/.rustup/toolchains/**".to_owned()));
        }
    }

    #[test]
    fn catalogue_programs_are_not_restricted() {
        let restricted = policy::parse(STARTER).unwrap().exec.restricted_commands;
        let all: Vec<&str> = CATALOGUE.group.iter().flat_map(Group::names).collect();
        assert!(restricted.iter().all(|name| !all.contains(&name.as_str())) && all.contains(&"make"));
    }
}
