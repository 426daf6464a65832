//! `cp-exec policy init`: writes a starter policy with the toolchains of this machine and the needs of a project. An
//! existing policy gets only missing values, after a preview and confirmation.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::Entry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::additions::{Addition, extend};
use super::project::{self, Found};
use super::toolchains;
use super::write_policy;
use crate::digest::sha256;
use crate::policy;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "policy init",
    class: Class::Write,
    output: "policy_begun",
    examples: &["{} policy init", "mkdir p && touch p/main.py && {} policy init --for p"],
    events: &["policy.init"],
    ..VerbDoc::EMPTY
};

/// The starter policy without the programs of this machine.
const STARTER: &str = include_str!("starter.toml");
/// The line of the starter that a project changes, because its commands build and test.
const TIMEOUT: [&str; 2] = ["timeout = 30\n", "timeout = 300\n"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A project directory; the programs and paths that its files indicate are allowed too, each with a reason
    #[arg(long = "for", value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
}

/// A new or extended policy.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_begun"))]
pub(crate) struct Begun {
    /// Its file.
    file: String,
    /// True if it was written now.
    written: bool,
    /// The hash of its text.
    sha256: String,
    /// The programs that it allows.
    allowed_commands: Vec<String>,
    /// The kinds of projects that were found, with their additions.
    found: Vec<Found>,
    /// Its text.
    text: String,
    /// True if nothing was missing in the file.
    #[serde(skip)]
    is_complete: bool,
}

impl Reply for Begun {
    fn text(&self) -> String {
        let found =
            self.found.iter().filter(|found| !found.adds.is_empty() || !found.missing.is_empty()).map(|found| {
                let mut lines = vec![format!("{} ({})", found.kind, found.evidence.join(", "))];
                let adds: Vec<&Addition> = found.adds.iter().collect();
                let by_key = adds.chunk_by(|one, next| one.key == next.key);
                lines.extend(by_key.map(|adds| format!("  {}: {}", adds[0].key, texts(adds))));
                let registries = found.registries.join(" ");
                let line = || format!("  to download packages: cp-exec allow network {registries}");
                lines.extend((!registries.is_empty()).then(line));
                lines.extend(found.missing.iter().map(|name| format!("  missing: {name}")));
                lines.join("\n")
            });
        let last = match (self.written, self.is_complete) {
            (true, _) => format!("wrote {}", self.file),
            (false, true) => format!("{} has what the project needs", self.file),
            (false, false) => self.text.trim_end().to_owned(),
        };
        found.chain([last]).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let file = context.home.policy_file();
    let home = policy::load(&file)?.home;
    let cp_home = context.home.resolved();
    let project = args.project.as_deref().map(|given| project::directory(given, &home, &cp_home)).transpose()?;
    let project = project.as_deref();
    confirm::write(&DOC, &(&file, project), &args.write, context, |_| match project {
        Some(project) if file.exists() => add(&file, project),
        _ => Ok(Plan::Free(
            begin(&file, &home, project)?,
            Box::new(move |begun, context| write(begun, project, context)),
        )),
    })
}

fn exists(file: &Path) -> Error {
    Error::new(Code::Conflict, "a policy already exists, and is not overwritten")
        .in_file(file)
        .hint("`cp-exec policy show` shows it; --for DIR adds what a project needs; move the file away to start again")
}

/// Creates a starter policy for this machine and a project.
fn begin(file: &Path, home: &Path, project: Option<&Path>) -> Result<Begun> {
    if file.exists() {
        return Err(exists(file));
    }
    let found = project.map(|project| project::find_kinds(project, home)).unwrap_or_default();
    let starter = if found.is_empty() { STARTER.to_owned() } else { STARTER.replace(TIMEOUT[0], TIMEOUT[1]) };
    let (text, found) = with(&starter, project, home, found)?;
    begun(file, extend(&text, None, project::of_each_kind(home))?.text, found)
}

/// Adds the needs of a project to an existing policy.
fn add<'a>(file: &Path, project: &'a Path) -> Result<Plan<'a, Begun>> {
    let before = std::fs::read_to_string(file).map_err(|e| Error::io("the policy", e).in_file(file))?;
    let home = policy::load(file)?.home;
    let (text, found) =
        with(&before, Some(project), &home, project::find_kinds(project, &home)).map_err(|e| e.in_file(file))?;
    let adds: Vec<&Addition> = found.iter().flat_map(|found| &found.adds).collect();
    let changes: Vec<Change> =
        adds.chunk_by(|one, next| (&one.key, &one.reason) == (&next.key, &next.reason)).map(change).collect();
    let begun = Begun { is_complete: changes.is_empty(), ..begun(file, text, found)? };
    if begun.is_complete {
        return Plan::nothing(begun);
    }
    Plan::changes(changes, |context| write(begun, Some(project), context))
}

/// Additions to one key with the same reason.
fn change(adds: &[&Addition]) -> Change {
    let after = json!({"reason": adds[0].reason});
    Change { after, ..Change::new("add", &adds[0].key, texts(adds), Value::Null) }
}

fn texts(adds: &[&Addition]) -> String {
    adds.iter().map(|addition| addition.text()).collect::<Vec<_>>().join(", ")
}

/// Extends a text by the additions of the findings. The returned findings contain only additions that were missing.
fn with(text: &str, project: Option<&Path>, home: &Path, mut found: Vec<Found>) -> Result<(String, Vec<Found>)> {
    let mut text = text.to_owned();
    let project = project.and_then(|project| toolchains::below_home(project, home));
    for found in &mut found {
        let (own, general) = std::mem::take(&mut found.adds).into_iter().partition(|one| one.of_project);
        for (place, adds) in [(None, general), (project.as_deref(), own)] {
            let extended = extend(&text, place, adds)?;
            let kept = |one: &Addition| format!("{}: {}, where the policy has another value", one.key, one.text());
            found.missing.extend(extended.differing.iter().map(kept));
            found.adds.extend(extended.added);
            text = extended.text;
        }
    }
    Ok((text, found))
}

fn begun(file: &Path, text: String, found: Vec<Found>) -> Result<Begun> {
    Ok(Begun {
        file: file.display().to_string(),
        written: false,
        sha256: sha256(text.as_bytes()),
        allowed_commands: policy::parse(&text)?.exec.allowed_commands,
        found,
        text,
        is_complete: false,
    })
}

fn write(begun: Begun, project: Option<&Path>, context: &mut Context) -> Result<Begun> {
    let project = project.map(|project| project.display().to_string());
    let entry = Entry::new("policy.init").with("project", &project);
    write_policy(&context.home.policy_file(), &begun.text, entry, context)?;
    Ok(Begun { written: true, ..begun })
}

#[cfg(test)]
mod tests {
    use super::super::toolchains::{CATALOGUE, Group};
    use super::*;
    use crate::policy::SYSTEM_PATH;

    #[test]
    fn starter_is_valid_for_any_toolchain_directories() {
        assert!(STARTER.contains(TIMEOUT[0]));
        let home = tempfile::tempdir().unwrap();
        let written = |home: &Path| policy::parse(&begin(&home.join("none"), home, None).unwrap().text).unwrap();
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
