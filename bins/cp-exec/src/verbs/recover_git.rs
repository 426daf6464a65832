//! `cp-exec recover-git`: restores the history of a repository from copies that were kept before runs.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::git_dir::Recovery;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "recover-git",
    class: Class::Write,
    output: "recovered_git",
    examples: &["{} policy init && git init -q r && (cd r && {} -- true) && {} recover-git r --dry-run"],
    events: &["git.recover"],
    ..VerbDoc::EMPTY
};

/// Restore the history of a repository from before a run
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The working tree, or the repository
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Restore references, logs and the index from this snapshot, instead of each from the newest intact one
    #[arg(long, value_name = "ID")]
    snapshot: Option<String>,
    /// Also restore references whose value has changed
    #[arg(long)]
    refs: bool,
    #[command(flatten)]
    write: WriteOptions,
}

/// The files that were restored in a repository.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "recovered_git"))]
pub(crate) struct Recovered {
    /// The repository.
    repository: String,
    /// The number of restored object files.
    objects: usize,
    /// Restored references, logs and indexes.
    files: Vec<String>,
}

impl Reply for Recovered {
    fn text(&self) -> String {
        let last = format!("{} objects and {} files put back in {}", self.objects, self.files.len(), self.repository);
        self.files.iter().chain([&last]).cloned().collect::<Vec<_>>().join("\n")
    }
}

impl From<&Recovery> for Recovered {
    fn from(recovery: &Recovery) -> Self {
        Self {
            repository: recovery.repository.display().to_string(),
            objects: recovery.objects.len(),
            files: recovery.files.iter().map(|file| file.path.display().to_string()).collect(),
        }
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let arguments: &(&Path, Option<&str>, bool) = &(&args.directory, args.snapshot.as_deref(), args.refs);
    let asked = Write { verb: DOC.path, arguments, dangerous: false };
    confirm::write(&asked, &args.write, context, |gate, context| {
        let recovery = gate.found(Recovery::find(&args.directory, args.snapshot.as_deref(), args.refs))?;
        let changes = changes(&recovery);
        if changes.is_empty() {
            gate.nothing_to_do()?;
            return Ok(Some(Recovered::from(&recovery)));
        }
        if !gate.pass(changes, context)? {
            return Ok(None);
        }
        recovery.apply()?;
        let recovered = Recovered::from(&recovery);
        let entry = Entry::new("git.recover")
            .with("repository", &recovered.repository)
            .with("objects", &recovered.objects)
            .with("files", &recovered.files);
        let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
        ledger.append(entry)?;
        ledger.sync()?;
        Ok(Some(recovered))
    })
}

/// The changes: each file, and all objects together as one change, because there are many.
fn changes(recovery: &Recovery) -> Vec<Change> {
    let damaged = recovery.objects.iter().filter(|object| object.reason == "damaged").count();
    let objects = (!recovery.objects.is_empty()).then(|| Change {
        action: "restore".to_owned(),
        resource: "objects".to_owned(),
        id: recovery.repository.display().to_string(),
        before: json!({ "missing": recovery.objects.len() - damaged, "damaged": damaged }),
        after: json!({ "objects": recovery.objects.len() }),
    });
    let files = recovery.files.iter().map(|file| Change {
        action: "restore".to_owned(),
        resource: "file".to_owned(),
        id: recovery.repository.join(&file.path).display().to_string(),
        before: json!(file.reason),
        after: json!({ "from": file.from }),
    });
    objects.into_iter().chain(files).collect()
}
