//! `cp-exec allow`: grants a name of the network, a program, a path or a variable to the commands of one project, or of
//! every project. It never grants what escalates, is restricted, hidden or guarded.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use cp_common::context::options::WriteOptions;
use cp_common::home::resolved;
use cp_common::output::{line_to_stderr, printable};
use cp_common::program::confirm;
use cp_common::program::terminal::ask;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Context, Error, Result, words};
use cp_egress::{Destination, Network};
use serde::Serialize;
use serde_json::{Value, json};

use super::edit::Edit;
use super::policy::additions::{edit_policy, extended};
use super::policy::project;
use crate::decision::{check_variables, on_own_path, resolve};
use crate::policy::{Access, Policy, check_directory, check_project, escaped, load};
use crate::refusal::refuse;
use crate::rules::escalation;
use crate::run::FinishedRun;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["preview"],
    examples: &["cp-exec policy init && {} allow network example.org --dry-run"],
    events: &["policy.allow"],
    ..VerbDoc::new("allow", Class::Write, "edited")
};

/// Allow this project a network name, program, path or variable
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to allow
    #[arg(value_name = "KIND", value_enum)]
    kind: Kind,
    /// Its name or path
    #[arg(value_name = "VALUE", required = true)]
    values: Vec<String>,
    /// For every project
    #[arg(long)]
    everywhere: bool,
    #[command(flatten)]
    write: WriteOptions,
}

/// What a command may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Connect to a name, such as pypi.org or github.com:22
    Network,
    /// Run a program
    Program,
    /// Read a file or directory
    Read,
    /// Write a file or directory
    Write,
    /// Set a variable in a request
    Env,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let (file, base) = (context.home.policy_file(), context.base()?);
    let arguments = (&file, &base, args.kind, &args.values, args.everywhere);
    confirm::write(&DOC, &arguments, &args.write, context, |context| {
        grant(&file, args.kind, &args.values, args.everywhere, context)?.plan()
    })
}

/// The most questions after a run, because a hostile program can try any number of names.
const QUESTIONS: usize = 5;

/// The network names and programs that a run was refused, each once.
pub(super) fn refused(outcome: &Result<FinishedRun>) -> Vec<(Kind, String)> {
    let (mut lines, mut programs) = (Vec::new(), Vec::new());
    match outcome {
        Err(error) => lines.extend(error.details().get("allow").and_then(|line| line.as_str()).map(str::to_owned)),
        Ok(done) => {
            let connections = done.result.connections.iter().flat_map(|connections| &connections.first_refused);
            lines.extend(connections.filter_map(|refused| refused.allow.clone()));
            let denied = done.result.denied.iter().filter(|step| step.approval.is_none());
            programs.extend(denied.filter_map(|step| Some((Kind::Program, step.argv.first()?.clone()))));
        }
    }
    let is_asked = |one: &(Kind, String)| matches!(one.0, Kind::Network | Kind::Program);
    let mut seen = HashSet::new();
    let all = lines.iter().filter_map(|line| Kind::of_line(line)).filter(is_asked).chain(programs);
    all.filter(|one| seen.insert(one.clone())).collect()
}

/// Asks the person at the terminal about each network name and program that a run was refused, and stores what they
/// allow for this project, or for every one. What is never granted, or would change nothing, is no question.
pub(super) fn offer(refused: &[(Kind, String)], context: &mut Context) -> Result<()> {
    let (file, mut is_stored) = (context.home.policy_file(), false);
    for (kind, value) in refused.iter().take(QUESTIONS) {
        let Ok(granted) = grant(&file, *kind, std::slice::from_ref(value), false, context) else { continue };
        let name = kind.to_possible_value().map(|name| name.get_name().to_owned()).unwrap_or_default();
        let question = format!(
            "cp-exec: allow {name} {} for this project? [y/N/always: every project] ",
            printable(&quoted(value))
        );
        if !granted.is_change() {
            continue;
        }
        let granted = match ask(&question, None, |typed| Some(typed.trim().to_lowercase()))?.as_deref() {
            Some("y" | "yes") => granted,
            Some("always") => grant(&file, *kind, std::slice::from_ref(value), true, context)?,
            _ => continue,
        };
        granted.store(context)?.text().lines().for_each(|line| line_to_stderr(&printable(line)));
        is_stored = true;
    }
    if is_stored {
        line_to_stderr("cp-exec: run it again");
    }
    Ok(())
}

/// The edit of the policy that lets commands use the values.
fn grant(file: &Path, kind: Kind, values: &[String], everywhere: bool, context: &Context) -> Result<Edit> {
    let mut loaded = load(file)?;
    if everywhere {
        // What this project has is not granted to the others.
        loaded.settings.project.clear();
    }
    if loaded.file.is_none() {
        let hint = "`cp-exec policy init --for .` writes one for the programs of this machine and this project";
        return Err(Error::not_found("there is no policy to add to").in_file(file).hint(hint));
    }
    let policy = Policy::of_loaded(loaded, context, &[])?;
    if !everywhere {
        check_project(&policy.base, &policy.loaded.home, &policy.cp_home)?;
    }
    let project = (!everywhere).then(|| named(&policy, &policy.base)).transpose()?;
    let grants = values.iter().map(|value| kind.grants(&policy, value)).collect::<Result<Vec<_>>>()?.concat();
    edit_policy(DOC.events[0], file, project.clone(), |text| {
        extended(text.unwrap_or_default(), project.as_deref(), &grants, true)
    })
}

impl Kind {
    /// The kind and the value of a line that a refusal names.
    fn of_line(line: &str) -> Option<(Self, String)> {
        let words = words::split(line).ok()?.argv;
        let [.., kind, value] = &words[..] else { return None };
        Some((Self::from_str(kind, false).ok()?, value.clone()))
    }

    /// What lets commands of this policy use a value; nothing if they may already.
    fn grants(self, policy: &Policy, value: &str) -> Result<Vec<Value>> {
        let exec = policy.exec();
        match self {
            Self::Network => {
                Destination::parse(value).map_err(|why| Error::validation(why).with("rule", "network"))?;
                if exec.network == Network::Host {
                    return Ok(Vec::new());
                }
                let host = value.split([':', '=']).next().unwrap_or_default();
                let groups = project::CATALOGUE.group.iter();
                let of_name = groups.filter(|group| group.registries.iter().any(|name| name == host));
                let online = of_name.map(|group| group.online.clone());
                Ok([json!({ "network": [value] })].into_iter().chain(online).collect())
            }
            Self::Env => {
                let variable = [(value.to_owned(), String::new())].into();
                check_variables(&[value.to_owned()], &variable)?;
                Ok(missing(check_variables(&exec.env_allow, &variable).is_ok(), "env_allow", value))
            }
            Self::Program => program(policy, value),
            Self::Read => path(policy, Access::Read, value),
            Self::Write => Ok([path(policy, Access::Read, value)?, path(policy, Access::Write, value)?].concat()),
        }
    }
}

fn missing(is_known: bool, key: &str, value: &str) -> Vec<Value> {
    if is_known { Vec::new() } else { vec![json!({ key: [value] })] }
}

/// A program with its files. A path must lie in the project or be given as it is; a name is looked up as a shell does.
fn program(policy: &Policy, value: &str) -> Result<Vec<Value>> {
    let name = value.rsplit('/').next().unwrap_or(value);
    let exec = policy.exec();
    if let Some(why) = escalation(name).map(|rule| rule.reason.clone()) {
        return Err(never(value, &why));
    }
    if exec.restricted_commands.iter().any(|restricted| restricted == name) {
        return Err(never(value, "it is in restricted_commands, which its owner has to change by hand"));
    }
    if name.is_empty() || name.starts_with("cp-") {
        return Err(never(value, "nothing would decide about what it destroys, publishes or governs"));
    }
    if value.contains('/') {
        let path = existing(policy, value)?;
        let executes = policy.bounds.lists(Access::Execute, &path);
        return Ok(missing(executes, "execute", &escaped(&named(policy, &path)?)));
    }
    let mut added = vec![json!({ "allowed_commands": [name] })];
    let Err(missing) = resolve(policy, name) else { return Ok(added) };
    let home = &policy.loaded.home;
    if let Some(program) = project::find(name, home) {
        added.extend(program.additions);
        return Ok(added);
    }
    let found = on_own_path(name).ok_or_else(|| Error::not_found(format!("program `{name}` not found on PATH")))?;
    let file = existing(policy, &found.to_string_lossy())?;
    check_directory(file.parent().unwrap_or(&file), policy.loaded.owner)?;
    if policy.bounds.lists(Access::Write, &file) || policy.bounds.lists(Access::Write, &found) {
        return Err(never(value, "commands can write it").hint(missing.hint_text().unwrap_or_default()));
    }
    let paths = [escaped(&named(policy, &file)?)];
    added.push(json!({ "pin": { name: named(policy, &found)? }, "read": paths, "execute": paths }));
    Ok(added)
}

fn path(policy: &Policy, access: Access, value: &str) -> Result<Vec<Value>> {
    let path = existing(policy, value)?;
    if let Some(why) = policy.never_granted(access, &path) {
        return Err(never(value, why));
    }
    Ok(missing(policy.bounds.lists(access, &path), access.name(), &escaped(&named(policy, &path)?)))
}

fn never(value: &str, why: &str) -> Error {
    refuse("allow", format!("`{value}` is never granted by this command: {why}"))
}

/// A path without links. A grant has no effect on a path that does not exist.
fn existing(policy: &Policy, value: &str) -> Result<PathBuf> {
    let asked = std::env::current_dir().unwrap_or_default().join(policy.expand(value));
    let path = resolved(&asked);
    if !path.exists() {
        return Err(Error::not_found("no such file or directory").in_file(&asked).hint("create it first"));
    }
    Ok(path)
}

fn named(policy: &Policy, path: &Path) -> Result<String> {
    project::below_home(path, &policy.loaded.home).ok_or_else(|| Error::validation("the path is not UTF-8"))
}
