//! The changes by the file tools of a run, as recorded in its ledger and in those of its agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::state::plan::RunFiles;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A change of a file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The ledger that keeps the earlier content.
    pub(crate) ledger: PathBuf,
    /// When the change was recorded, just before it was made.
    ts: String,
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
    #[serde(default)]
    sha256: Option<String>,
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
    call: Option<String>,
}

impl Data<'_> {
    /// The changes of an operation; a blob if they are too long for a line.
    fn what(&self, ledger: &Path) -> Result<What> {
        let Some(what) = self.what else { return Ok(What::default()) };
        let whole = blob::resolve(ledger, what.get().as_bytes())?;
        Ok(serde_json::from_slice(whole.as_deref().unwrap_or(what.get().as_bytes())).unwrap_or_default())
    }
}

/// The changes of an operation with this data.
pub(crate) fn writes_of(ledger: &Path, data: &[u8]) -> Vec<Write> {
    let what = serde_json::from_slice::<Data<'_>>(data).ok().and_then(|data| data.what(ledger).ok());
    what.map(|what| what.writes).unwrap_or_default()
}

/// The changes of a run and of its agents, or of one call, in order for each file.
pub(crate) fn changes(
    files: &RunFiles,
    call: Option<&str>,
    context: &Context,
) -> Result<BTreeMap<String, Vec<Change>>> {
    let mut found = Vec::new();
    let was_made = collect(files, call, context, &mut found)?;
    if let (Some(call), false) = (call, was_made) {
        return Err(Error::not_found(format!("the run has no call `{call}`"))
            .with("call", call)
            .hint(format!("`cp-toolloop show {}` lists them", files.run)));
    }
    found.sort_by(|one, other| one.ts.cmp(&other.ts));
    let mut by_file: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for change in found {
        by_file.entry(change.write.path.clone()).or_default().push(change);
    }
    Ok(by_file)
}

/// Collects the changes of a run, and returns true if the run made the call.
fn collect(files: &RunFiles, call: Option<&str>, context: &Context, found: &mut Vec<Change>) -> Result<bool> {
    let mut was_made = false;
    let mut lines = read::lines(&files.ledger)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        let events = ["exec.operation", "tool_call", "agent_start"];
        let Some(event) = events.into_iter().find(|event| line.is_event(event)) else { continue };
        let data = line.member("data").and_then(|data| serde_json::from_slice::<Data<'_>>(data).ok());
        let Some(data) = data else { continue };
        let is_meant = |of: Option<&str>| call.is_none() || of == call;
        match event {
            "tool_call" => was_made |= call.is_some() && data.id.as_deref() == call,
            "agent_start" if is_meant(data.call.as_deref()) => {
                if let Some(agent) = data.run_id.and_then(|run| RunFiles::find(&run, context).ok()) {
                    collect(&agent, None, context, found)?;
                }
            }
            "exec.operation" => {
                let what = data.what(&files.ledger)?;
                if !is_meant(what.call.as_deref()) {
                    continue;
                }
                let ts = line.ts().to_owned();
                for write in what.writes {
                    check(&write)?;
                    found.push(Change { ledger: files.ledger.clone(), ts: ts.clone(), write });
                }
            }
            _ => {}
        }
    }
    Ok(was_made)
}

/// The error for a change whose earlier content was not stored.
fn check(write: &Write) -> Result<()> {
    if write.after.is_none() && write.sha256.is_some() {
        let message = format!("{} was changed by a version that did not store file contents", write.path);
        return Err(Error::new(Code::Conflict, message).with("path", write.path.as_str()));
    }
    Ok(())
}

/// The hash of a file's content; `None` if the file does not exist.
pub(crate) fn hash(kept: Option<&Kept>) -> Option<&str> {
    kept.map(|kept| kept.blob.as_str())
}

/// The changes of a file that took effect, without those that were recorded and not made, or undone by hand. `None` if something else
/// changed the file in between.
pub(crate) fn effective(changes: &[Change]) -> Option<Vec<&Change>> {
    let mut made: Vec<&Change> = Vec::new();
    for change in changes {
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
        let write = Write {
            path: "f".to_owned(),
            mode: "edit".to_owned(),
            before: kept(before),
            after: kept(after),
            sha256: None,
        };
        Change { ledger: PathBuf::new(), ts: String::new(), write }
    }

    fn made(changes: &[[&str; 2]]) -> Option<Vec<[String; 2]>> {
        let changes: Vec<Change> = changes.iter().map(|[before, after]| change(before, after)).collect();
        let text = |kept: &Option<Kept>| hash(kept.as_ref()).unwrap_or_default().to_owned();
        let both = |change: &&Change| [text(&change.write.before), text(&change.write.after)];
        effective(&changes).map(|made| made.iter().map(both).collect())
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
