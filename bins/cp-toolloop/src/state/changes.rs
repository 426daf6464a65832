//! The changes by the file tools of a run, as recorded in its ledger and in those of its agents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::state::plan::RunFiles;
use cp_common::wire::{ChangeKind, FileChange, FileKind};
use cp_common::{Context, Error, Result};
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A change of a file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The ledger that keeps the earlier content.
    pub(crate) ledger: PathBuf,
    /// When the change was recorded, just before it was made.
    ts: String,
    /// The call of the run that made it, itself or by its agent.
    pub(crate) call: Option<String>,
    pub(crate) write: Write,
}

/// A change as a ledger records it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Write {
    pub(crate) path: String,
    /// create, overwrite, edit, remove or restore.
    pub(crate) mode: String,
    /// The earlier content; `None` if the file did not exist.
    pub(crate) before: Option<Kept>,
    /// The new content.
    pub(crate) after: Option<Kept>,
}

/// The content of a file, stored as a blob of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Kept {
    /// The hash of the blob.
    pub(crate) blob: String,
    pub(crate) len: u64,
    /// The permissions in octal, if they are known.
    pub(crate) permissions: Option<String>,
}

/// The members of an entry that are read.
#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    what: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    /// The id of a call.
    id: Option<String>,
    /// The call that an agent works on, and the run of the agent.
    call: Option<String>,
    run_id: Option<String>,
}

#[derive(Default, Deserialize)]
struct What {
    #[serde(default)]
    writes: Vec<Write>,
    #[serde(default)]
    directories: Vec<PathBuf>,
    call: Option<String>,
}

/// The changes of an operation with this data.
pub(crate) fn writes_of(ledger: &Path, data: &[u8]) -> Vec<Write> {
    let what = serde_json::from_slice::<Data<'_>>(data).ok().and_then(|data| resolved::<What>(data.what, ledger).ok());
    what.map(|what| what.writes).unwrap_or_default()
}

/// What the file tools and the commands of a run and of its agents changed.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The changes of the file tools, in order for each file.
    pub(crate) files: BTreeMap<String, Vec<Change>>,
    /// The directories that were created.
    pub(crate) directories: BTreeSet<PathBuf>,
    /// The calls of the run itself.
    calls: BTreeSet<String>,
}

impl Made {
    /// Reads the ledgers of a run and of its agents. `call` must be a call of the run.
    pub(crate) fn read(files: &RunFiles, call: Option<&str>, context: &Context) -> Result<Self> {
        let mut made = Self::default();
        made.collect(files, None, context)?;
        if let Some(call) = call.filter(|call| !made.calls.contains(*call)) {
            return Err(Error::not_found(format!("the run has no call `{call}`"))
                .with("call", call)
                .hint(format!("`cp-toolloop show {}` lists them", files.run)));
        }
        made.files.values_mut().for_each(|changes| changes.sort_by(|one, other| one.ts.cmp(&other.ts)));
        Ok(made)
    }

    /// Removes the temporary files of killed changes.
    pub(crate) fn sweep(&self) {
        self.files.keys().for_each(|path| cp_hosts::remove_abandoned(Path::new(path)));
    }

    /// Collects the changes of a run; `by` is the call of the outermost run whose agent it is.
    fn collect(&mut self, files: &RunFiles, by: Option<&str>, context: &Context) -> Result<()> {
        let mut lines = read::lines(&files.ledger)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            let events = ["exec.operation", "exec.changes", "tool_call", "agent_start"];
            let Some(event) = events.into_iter().find(|event| line.is_event(event)) else { continue };
            let data = line.member("data").and_then(|data| serde_json::from_slice::<Data<'_>>(data).ok());
            let Some(data) = data else { continue };
            match event {
                "tool_call" => self.calls.extend(data.id.filter(|_| by.is_none())),
                "agent_start" => {
                    if let Some(agent) = data.run_id.and_then(|run| RunFiles::find(&run, context).ok()) {
                        self.collect(&agent, by.or(data.call.as_deref()), context)?;
                    }
                }
                "exec.changes" => {
                    let changes: Vec<FileChange> = resolved(data.files, &files.ledger)?;
                    let is_new = |change: &FileChange| {
                        let after = change.after.as_ref().map(|after| after.kind);
                        change.change == ChangeKind::Created && after == Some(FileKind::Directory)
                    };
                    self.directories.extend(changes.into_iter().filter(is_new).map(|change| change.path.into()));
                }
                _ => {
                    let what: What = resolved(data.what, &files.ledger)?;
                    self.directories.extend(what.directories);
                    let call = by.map(str::to_owned).or(what.call);
                    for write in what.writes {
                        let (ledger, ts) = (files.ledger.clone(), line.ts().to_owned());
                        let change = Change { ledger, ts, call: call.clone(), write };
                        self.files.entry(change.write.path.clone()).or_default().push(change);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A value of an entry, which is a blob if it is too long for a line.
fn resolved<T: Default + DeserializeOwned>(value: Option<&RawValue>, ledger: &Path) -> Result<T> {
    let Some(value) = value else { return Ok(T::default()) };
    let whole = blob::resolve(ledger, value.get().as_bytes())?;
    Ok(serde_json::from_slice(whole.as_deref().unwrap_or(value.get().as_bytes())).unwrap_or_default())
}

/// The hash of a file's content; `None` if the file does not exist.
pub(crate) fn hash(kept: Option<&Kept>) -> Option<&str> {
    kept.map(|kept| kept.blob.as_str())
}

/// The changes of a file that took effect, without those that were recorded and not made, or undone by hand. `None` if something else
/// changed the file in between.
pub(crate) fn effective<'a>(changes: &[&'a Change]) -> Option<Vec<&'a Change>> {
    let mut made: Vec<&Change> = Vec::new();
    for change in changes.iter().copied() {
        let from = hash(change.write.before.as_ref());
        if let Some(last) = made.last().filter(|last| hash(last.write.after.as_ref()) != from) {
            if hash(last.write.before.as_ref()) != from {
                return None;
            }
            made.pop();
        }
        made.push(change);
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: &str, after: &str) -> Change {
        let kept = |text: &str| {
            let kept = Kept { blob: text.to_owned(), len: 0, permissions: None };
            (!text.is_empty()).then_some(kept)
        };
        let write = Write { path: "f".to_owned(), mode: "edit".to_owned(), before: kept(before), after: kept(after) };
        Change { ledger: PathBuf::new(), ts: String::new(), call: None, write }
    }

    fn made(changes: &[[&str; 2]]) -> Option<Vec<[String; 2]>> {
        let changes: Vec<Change> = changes.iter().map(|[before, after]| change(before, after)).collect();
        let text = |kept: &Option<Kept>| hash(kept.as_ref()).unwrap_or_default().to_owned();
        let both = |change: &&Change| [text(&change.write.before), text(&change.write.after)];
        effective(&changes.iter().collect::<Vec<_>>()).map(|made| made.iter().map(both).collect())
    }

    #[test]
    fn changes_without_effect_are_left_out_and_foreign_changes_are_detected() {
        let owned = |pairs: &[[&str; 2]]| Some(pairs.iter().map(|pair| pair.map(str::to_owned)).collect::<Vec<_>>());
        assert_eq!(made(&[["a", "b"], ["b", ""], ["", "c"]]), owned(&[["a", "b"], ["b", ""], ["", "c"]]));
        assert_eq!(made(&[["a", "b"], ["a", "c"]]), owned(&[["a", "c"]]));
        assert_eq!(made(&[["a", "b"], ["b", "a"], ["b", "c"]]), owned(&[["a", "b"], ["b", "c"]]));
        assert_eq!(made(&[["a", "b"], ["x", "c"]]), None);
    }
}
