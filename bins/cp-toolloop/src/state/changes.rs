//! The changes by the tools of a run, as recorded in its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::state::plan::RunFiles;
use cp_common::output::printable_line;
use cp_common::wire::{ChangeKind, FileChange, FileKind, FilesChanged, quoted};
use cp_common::{Context, Error, Result};
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

/// A change of a file.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The call of the run that made it.
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

/// A command, or a call of a server's tool, that changed something which an undo does not restore.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Effect {
    /// The call of the run that made it.
    pub(crate) call: Option<String>,
    /// The command line, or the tool of a server.
    pub(crate) command: String,
    /// The changed files; null if they are not known.
    pub(crate) files: Option<FilesChanged>,
    /// The command that puts these files back; null if they are not known.
    pub(crate) undo: Option<String>,
}

impl Effect {
    /// The command with its files, one on each line, and the command that puts them back.
    pub(crate) fn text(&self) -> String {
        let call = self.call.as_ref().map(|call| format!("{call}: ")).unwrap_or_default();
        let mut lines = vec![printable_line(&format!("not undone: {call}{}", self.command))];
        let Some(changed) = &self.files else {
            lines.push("  its changes are not known".to_owned());
            return lines.join("\n");
        };
        for FileChange { path, change, .. } in &changed.files {
            lines.push(printable_line(&format!("  {} {path}", json!(change).as_str().unwrap_or_default())));
        }
        let all = changed.created + changed.changed + changed.removed;
        let more = all.saturating_sub(changed.files.len() as u64);
        lines.extend((more > 0).then(|| format!("  and {more} more")));
        lines.extend(self.undo.as_ref().map(|undo| format!("  `{undo}` puts them back")));
        lines.join("\n")
    }
}

/// The text of the command line in the data of an `exec.intent`.
pub(crate) fn command_line(data: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Intent {
        argv: Vec<String>,
        line: Option<String>,
    }
    let Intent { argv, line } = serde_json::from_slice(data).unwrap_or_default();
    line.unwrap_or_else(|| argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// The members of an entry that are read.
#[derive(Deserialize)]
struct Data<'a> {
    /// The sequence number of the intent of a command.
    intent: Option<u64>,
    #[serde(default)]
    created: u64,
    #[serde(default)]
    changed: u64,
    #[serde(default)]
    removed: u64,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    name: Option<String>,
    #[serde(borrow)]
    what: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    /// The id of a call.
    id: Option<String>,
    /// The call that a command belongs to.
    call: Option<String>,
}

/// A tool in the start of a run.
#[derive(Deserialize)]
struct Pinned {
    name: String,
    kind: String,
    #[serde(default)]
    read_only: bool,
}

#[derive(Default, Deserialize)]
struct What {
    #[serde(default)]
    writes: Vec<Write>,
    #[serde(default)]
    directories: Vec<PathBuf>,
    call: Option<String>,
}

/// The most files of a command that are named.
const MOST_NAMED: usize = 20;

/// The events of changes, and of what made them.
const EVENTS: [&str; 6] = ["run_start", "tool_call", "exec.operation", "exec.intent", "exec.result", "exec.changes"];

/// The changes of an operation with this data.
pub(crate) fn writes_of(ledger: &Path, data: &[u8]) -> Vec<Write> {
    let what = serde_json::from_slice::<Data<'_>>(data).ok().and_then(|data| resolved::<What>(data.what, ledger).ok());
    what.map(|what| what.writes).unwrap_or_default()
}

/// What the file tools and the commands of a run changed.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The changes of the file tools, in order for each file.
    pub(crate) files: BTreeMap<String, Vec<Change>>,
    /// The directories that were created.
    pub(crate) directories: BTreeSet<PathBuf>,
    /// The effects that an undo does not restore, in order for each run.
    pub(crate) effects: Vec<Effect>,
    /// The calls of the run itself.
    calls: BTreeSet<String>,
}

impl Made {
    /// Reads the ledger of a run. `call` must be a call of the run, and limits the effects to its own.
    pub(crate) fn read(files: &RunFiles, call: Option<&str>, context: &Context) -> Result<Self> {
        let mut made = Self::default();
        made.collect(files, context)?;
        if let Some(call) = call.filter(|call| !made.calls.contains(*call)) {
            return Err(Error::not_found(format!("the run has no call `{call}`"))
                .with("call", call)
                .hint(format!("`cp-toolloop show {}` lists them", files.run)));
        }
        made.effects.retain(|effect| call.is_none() || effect.call.as_deref() == call);
        Ok(made)
    }

    /// Removes the temporary files of killed changes.
    pub(crate) fn sweep(&self) {
        self.files.keys().for_each(|path| cp_hosts::remove_abandoned(Path::new(path)));
    }

    /// Collects the changes of a run.
    fn collect(&mut self, files: &RunFiles, context: &Context) -> Result<()> {
        let mut lines = read::lines(&files.ledger)?;
        let (mut served, mut running, mut ended) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            let Some(event) = EVENTS.into_iter().find(|event| line.is_event(event)) else { continue };
            let whole = line.member("data").unwrap_or_default();
            let Ok(data) = serde_json::from_slice::<Data<'_>>(whole) else { continue };
            match event {
                "run_start" => {
                    let tools: Vec<Pinned> = resolved(data.tools, &files.ledger)?;
                    let is_served = |tool: &Pinned| tool.kind == "mcp" && !tool.read_only;
                    served.extend(tools.into_iter().filter(is_served).map(|tool| tool.name));
                }
                "tool_call" => {
                    if let Some(name) = data.name.filter(|name| served.contains(name)) {
                        let call = data.id.clone();
                        self.effects.push(Effect { call, command: name, files: None, undo: None });
                    }
                    self.calls.extend(data.id);
                }
                "exec.intent" => {
                    let (call, command) = (data.call, command_line(whole));
                    running.insert(line.seq(), Effect { call, command, files: None, undo: None });
                }
                "exec.result" => {
                    let intent = data.intent.unwrap_or_default();
                    ended.extend(running.remove(&intent).map(|effect| (intent, effect)));
                }
                "exec.changes" => {
                    let changes: Vec<FileChange> = resolved(data.files, &files.ledger)?;
                    let is_new = |change: &&FileChange| {
                        let after = change.after.as_ref().map(|after| after.kind);
                        change.change == ChangeKind::Created && after == Some(FileKind::Directory)
                    };
                    self.directories.extend(changes.iter().filter(is_new).map(|change| change.path.clone().into()));
                    let intent = data.intent.unwrap_or_default();
                    if let Some(effect) = ended.remove(&intent) {
                        let path = |path: &Path| quoted(&path.display().to_string());
                        let (ledger, home) = (path(&files.ledger), path(context.home.root()));
                        let undo = format!("cp-exec undo {intent} --ledger {ledger} --home {home}");
                        let files = Some(files_changed(&data, changes));
                        self.effects.push(Effect { files, undo: Some(undo), ..effect });
                    }
                }
                _ => {
                    let what: What = resolved(data.what, &files.ledger)?;
                    self.directories.extend(what.directories);
                    for write in what.writes {
                        let change = Change { call: what.call.clone(), write };
                        self.files.entry(change.write.path.clone()).or_default().push(change);
                    }
                }
            }
        }
        // The changes of a command that was killed with its cp-exec are not known.
        self.effects.extend(running.into_values());
        Ok(())
    }
}

/// The changes of a command: their numbers in the data of its entry, and the first of its files.
fn files_changed(data: &Data<'_>, mut files: Vec<FileChange>) -> FilesChanged {
    let truncated = files.len() > MOST_NAMED;
    files.truncate(MOST_NAMED);
    FilesChanged { created: data.created, changed: data.changed, removed: data.removed, files, truncated }
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
        Change { call: None, write }
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
