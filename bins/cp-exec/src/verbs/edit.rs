//! Edits of configuration files: shown before they are made, and recorded.

use std::path::Path;

use cp_common::home::make_directory;
use cp_common::program::confirm::{Change, Plan};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::files::Pending;
use crate::tools::filesystem::pending;

/// The result of an edit.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "edited"))]
pub(crate) struct Edited {
    /// The file.
    file: String,
    /// True if it was changed now.
    changed: bool,
    /// The hash of its text; null if it is gone.
    sha256: Option<String>,
    /// The directory of the project, if the edit is about one.
    pub(super) project: Option<String>,
    /// The difference of its text; empty if nothing changes.
    pub(super) difference: String,
    /// Lines for the person: the kinds of work in a project, or the next step.
    pub(super) notes: Vec<String>,
}

impl Reply for Edited {
    fn text(&self) -> String {
        let first = match (self.changed, self.difference.is_empty()) {
            (true, _) => format!("changed {}", self.file),
            (false, true) => format!("unchanged {}", self.file),
            (false, false) => self.difference.trim_end().to_owned(),
        };
        [first].iter().chain(&self.notes).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Changes of a file and of others that it needs, and the entry that records them.
pub(super) struct Edit {
    pub answer: Edited,
    pub entry: Entry,
    files: Vec<Pending>,
}

impl Edit {
    /// The edit of a file, which is changed after the others.
    pub(super) fn of(entry: Entry, mut others: Vec<Pending>, file: Pending) -> Self {
        let [before, sha256] = file.hashes().map(|hash| hash.map(|hash| hash.to_string()));
        let difference = if file.is_change() { file.difference() } else { String::new() };
        let name = file.path.display().to_string();
        let entry = entry.with("file", &name).with("before", &before).with("after", &sha256);
        others.push(file);
        others.retain(Pending::is_change);
        let answer = Edited { file: name, changed: false, sha256, project: None, difference, notes: Vec::new() };
        Self { answer, entry, files: others }
    }

    pub(super) fn is_change(&self) -> bool {
        !self.files.is_empty()
    }

    /// The plan of an edit that needs confirmation.
    pub(super) fn plan(self) -> Result<Plan<'static, Edited>> {
        if !self.is_change() {
            return Plan::nothing(self.answer);
        }
        let changes = self.files.iter().map(shown).collect::<Result<Vec<_>>>()?;
        Plan::changes(changes, move |context| self.store(context))
    }

    /// The plan of an edit that replaces nothing.
    pub(super) fn free_plan(self) -> Plan<'static, Edited> {
        let Self { answer, entry, files } = self;
        Plan::Free(answer, Box::new(|answer, context| Self { answer, entry, files }.store(context)))
    }

    /// Records the edit, and makes it.
    pub(super) fn store(self, context: &Context) -> Result<Edited> {
        let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
        ledger.append(self.entry)?;
        ledger.sync()?;
        for file in self.files {
            let directory = file.path.parent().unwrap_or(&file.path);
            if file.after.as_ref().is_some_and(|after| after.permissions == 0o600) {
                make_directory(directory)?;
            }
            // The directory of a project is its owner's to share.
            std::fs::create_dir_all(directory)?;
            file.carry_out()?;
            if file.after.is_none() {
                // A directory with other files stays.
                drop(std::fs::remove_dir(directory));
            }
        }
        Ok(Edited { changed: true, ..self.answer })
    }
}

/// The change of a file by its text, which is `None` if the file is absent.
pub(super) fn of_text(
    path: &Path,
    permissions: Option<u32>,
    made: impl FnOnce(Option<&str>) -> Result<Option<String>>,
) -> Result<Pending> {
    let mut file = pending(path)?;
    let text = file.before.as_ref().map(|before| std::str::from_utf8(&before.bytes)).transpose();
    let text = text.map_err(|e| Error::new(Code::Conflict, e.to_string()).in_file(path))?;
    match made(text).map_err(|e| e.in_file(path))? {
        Some(text) => file.put(text.into_bytes()),
        None => file.after = None,
    }
    if let (Some(permissions), Some(after)) = (permissions, &mut file.after) {
        after.permissions = permissions;
    }
    Ok(file)
}

/// The change with its difference, for the preview.
fn shown(file: &Pending) -> Result<Change> {
    if file.before.as_ref().is_some_and(|before| before.permissions & 0o222 == 0) {
        return Err(Error::new(Code::Forbidden, "the file is read-only")
            .in_file(&file.path)
            .hint("its owner can make it writable, for example with `chmod u+w`"));
    }
    let [before, after] = file.hashes().map(|hash| hash.map(|hash| hash.to_string()));
    let change = Change::new("edit", "file", file.path.display().to_string(), json!({ "sha256": before }));
    Ok(Change { after: json!({ "sha256": after, "difference": file.difference() }), ..change })
}
