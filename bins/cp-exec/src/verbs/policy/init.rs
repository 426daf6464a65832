//! `cp-exec policy init`: a starter policy with the toolchains of this machine, and what a project needs. A policy that is there gets only
//! what it does not have, once that was shown and confirmed.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::home::{resolved, write_whole};
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::additions::{self, Addition};
use super::project::{self, Found};
use super::starter::starter;
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

/// Seconds that commands get: those of a project build and test it.
const TIMEOUT: (u32, u32) = (30, 300);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A project: what its files say that it needs is allowed too, with the reason for each
    #[arg(long = "for", value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
}

/// A policy that was begun, or that got what a project needs.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_begun"))]
pub(crate) struct Begun {
    /// Its file.
    file: String,
    /// Whether it was written now.
    written: bool,
    /// The hash of its text.
    sha256: String,
    /// What it allows.
    allowed_commands: Vec<String>,
    /// What was found in the project, and what that adds.
    found: Vec<Found>,
    /// Its text.
    text: String,
}

impl Reply for Begun {
    fn text(&self) -> String {
        let found = self.found.iter().map(|found| {
            let adds: Vec<String> =
                found.adds.iter().map(|addition| format!("  {}: {}", addition.key, addition.text())).collect();
            let missing = found.missing.iter().map(|name| format!("  missing: {name}"));
            let head = format!("{} ({})", found.kind, found.evidence.join(", "));
            std::iter::once(head).chain(adds).chain(missing).collect::<Vec<_>>().join("\n")
        });
        let last = if self.written { format!("wrote {}", self.file) } else { self.text.trim_end().to_owned() };
        found.chain([last]).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

type Asked<'a> = Write<'a, (&'a Path, Option<&'a Path>)>;

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let file = context.home.policy_file();
    let home = policy::load(&file)?.home;
    let cp_home = resolved(context.home.root());
    let project = args.project.as_deref().map(|given| project::directory(given, &home, &cp_home)).transpose()?;
    let project = project.as_deref();
    let asked = Asked { verb: "policy init", arguments: &(&file, project), dangerous: false };
    let adds = project.is_some() && file.exists();
    if args.write.confirm.is_some() || adds && args.write.dry_run {
        return confirm::write(&asked, &args.write, context, |gate, context| match project {
            Some(project) if file.exists() => add(gate, &file, project, context),
            _ => gate.found(Err(Error::not_found("no policy to add to").in_file(&file))),
        });
    }
    if args.write.dry_run {
        return context.out.answer(&begin(&file, &home, project)?);
    }
    let id = args.write.request_id.as_deref();
    let begun = idempotency::once(id, &(asked.verb, asked.arguments), context, |context| match project {
        // Without a token it says what to do for one, unless there is nothing to add.
        Some(project) if file.exists() => {
            add(Gate::before(&asked, &args.write, context)?, &file, project, context)?.ok_or_else(|| exists(&file))
        }
        _ => {
            let begun = begin(&file, &home, project)?;
            write(begun, project, context)
        }
    })?;
    context.out.answer(&begun)
}

fn exists(file: &Path) -> Error {
    Error::new(Code::Conflict, "a policy already exists, and is not overwritten")
        .in_file(file)
        .hint("`cp-exec policy show` shows it; --for DIR adds what a project needs; move the file away to start again")
}

/// A starter for this machine, with what a project needs.
fn begin(file: &Path, home: &Path, project: Option<&Path>) -> Result<Begun> {
    if file.exists() {
        return Err(exists(file));
    }
    let found = project.map(|project| project::look(project, home)).unwrap_or_default();
    let text = starter(home, if found.is_empty() { TIMEOUT.0 } else { TIMEOUT.1 });
    let (text, found) = with(&text, found)?;
    begun(file, text, found)
}

/// Adds what a project needs to a policy that is there.
fn add(
    gate: Gate<'_, (&Path, Option<&Path>)>,
    file: &Path,
    project: &Path,
    context: &mut Context,
) -> Result<Option<Begun>> {
    let before = std::fs::read_to_string(file).map_err(|e| Error::io("the policy", e).in_file(file))?;
    let home = policy::load(file)?.home;
    let (text, found) = with(&before, project::look(project, &home)).map_err(|e| e.in_file(file))?;
    let changes: Vec<Change> = found.iter().flat_map(|found| &found.adds).map(change).collect();
    if changes.is_empty() {
        gate.nothing_to_do()?;
        return begun(file, text, found).map(Some);
    }
    if !gate.pass(changes, context)? {
        return Ok(None);
    }
    write(begun(file, text, found)?, Some(project), context).map(Some)
}

fn change(addition: &Addition) -> Change {
    let after = json!({"reason": addition.reason});
    Change { action: "add".to_owned(), resource: addition.key.clone(), id: addition.text(), before: Value::Null, after }
}

/// A text with what of the findings it does not have, and the findings with that alone.
fn with(text: &str, mut found: Vec<Found>) -> Result<(String, Vec<Found>)> {
    let mut text = text.to_owned();
    for found in &mut found {
        let (missing, other) = additions::missing(&text, std::mem::take(&mut found.adds))?;
        let kept = |one: &Addition| format!("{}: {}, where the policy has another value", one.key, one.text());
        found.missing.extend(other.iter().map(kept));
        text = additions::added(&text, &missing)?;
        found.adds = missing;
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
    })
}

fn write(begun: Begun, project: Option<&Path>, context: &mut Context) -> Result<Begun> {
    write_whole(&context.home.policy_file(), begun.text.as_bytes())?;
    let project = project.map(|project| project.display().to_string());
    let entry = Entry::new("policy.init")
        .with("file", &begun.file.as_str())
        .with("sha256", &begun.sha256.as_str())
        .with("project", &project);
    let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
    ledger.append(entry)?;
    ledger.sync()?;
    Ok(Begun { written: true, ..begun })
}
