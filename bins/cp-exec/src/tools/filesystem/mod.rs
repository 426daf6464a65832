//! The tool `filesystem`: reads and changes files under the policy's paths, without a process.
//!
//! Files are changed atomically, after their previous contents are kept and synced, and only if a run knows the content
//! that it changes.

mod place;
mod read;
mod undo;

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::exec_result::{FileChange, FileKind, FileState, FilesChanged};
use crate::files::{Content, Pending, umask};
use cp_common::home::{lock_file, resolved};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, clock, signals};
use cp_ledger::format::line::Line;
use memchr::memmem;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use self::place::{Action, parse, patched, replaced};
pub(crate) use self::undo::{CHANGED, LeftOut, Recorded, Undo};
use super::Item;
use crate::changes::Store;
use crate::nofollow;
pub(super) use crate::policy::readable;
use crate::policy::{Access, Policy, normal, writable};
use crate::refusal::denied;
use crate::request::{EditFile, FileOperation, WriteFile, WriteMode};
use crate::run::{Engine, newest, quoted};

/// Carries out a file operation, and records it.
pub(crate) fn operate(engine: &mut Engine, operation: &FileOperation) -> Result<Item> {
    engine.policy.check_base()?;
    match operation {
        FileOperation::ReadFile(read) => read::read_file(engine, read),
        FileOperation::ListDirectory(list) => read::list_directory(engine, list),
        FileOperation::WriteFile(write) => change(engine, "filesystem.write_file", |drafts| drafts.write(write)),
        FileOperation::EditFile(edit) => change(engine, "filesystem.edit_file", |drafts| drafts.apply(edit)),
        FileOperation::RemoveFile { path } => change(engine, "filesystem.remove_file", |drafts| drafts.remove(path)),
    }
}

/// Refuses a path that the policy does not allow a tool to read or change.
pub(crate) fn check(policy: &Policy, access: Access, asked: &str) -> Result<()> {
    policy.check_base()?;
    match access {
        Access::Read | Access::Execute => readable(policy, &path_of(policy, asked)?),
        Access::Write => writable_path(policy, asked).map(drop),
    }
}

/// Resolves a path, as far as it exists.
pub(super) fn path_of(policy: &Policy, asked: &str) -> Result<PathBuf> {
    if asked.is_empty() || asked.contains('\0') {
        return Err(Error::validation("the path is empty or contains a NUL byte").with("rule", "path"));
    }
    Ok(resolved(&policy.base.join(policy.expand(asked))))
}

/// Resolves a path that may be written. The policy is checked for the requested name and for the resolved path.
fn writable_path(policy: &Policy, asked: &str) -> Result<PathBuf> {
    let path = path_of(policy, asked)?;
    writable(policy, &path, &normal(&policy.base.join(policy.expand(asked))))?;
    Ok(path)
}

/// Opens a resolved and allowed path without following links. A link on the path was created after the check.
pub(super) fn open(path: &Path, what: &str, flags: OFlags) -> Result<File> {
    nofollow::open_with(path, flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).map(File::from).map_err(
        |e| match e {
            Errno::NOENT => Error::not_found(format!("{what} not found: {}", path.display())),
            Errno::LOOP => {
                denied("read", path).with("rule", "changed").hint("a link came on its way meanwhile; try again")
            }
            Errno::NOTDIR if what == "directory" => Error::validation(format!("{} is not a directory", path.display()))
                .hint("for a file use filesystem.read_file"),
            e => Error::io("cannot be read", std::io::Error::from(e)).in_file(path),
        },
    )
}

/// The lock that is held from the read of a file to its change, so that two changes at the same time cannot overwrite
/// each other.
pub(crate) fn locked(policy: &Policy) -> Result<File> {
    lock_file(&policy.cp_home.path("state/files.lock"))
}

/// The file at a path as it is.
pub(crate) fn pending(path: &Path) -> Result<Pending> {
    let file = match open(path, "file", OFlags::empty()) {
        Err(error) if error.code() == Code::NotFound => None,
        file => Some(file?),
    };
    Pending::of(path.to_owned(), file)
}

/// Keeps the contents that changes replace, records the changes, and then applies them: all, or none if one fails.
/// Missing directories are created.
fn change(
    engine: &mut Engine,
    operation: &'static str,
    draft: impl FnOnce(&mut Drafts<'_>) -> Result<()>,
) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let mut drafts = Drafts { policy: &engine.policy, files: Vec::new() };
    draft(&mut drafts)?;
    let changes = drafts.files;
    keep(&engine.policy, &changes)?;
    let directories = missing_directories(&changes);
    let directory = FileState::new(FileKind::Directory, 0o755 & !umask(), None, None);
    let files: Vec<FileChange> = changes.iter().map(Pending::change).collect();
    let described = files.iter().map(|FileChange { path, change, after, .. }| {
        json!({ "path": path, "change": change, "sha256": after.as_ref().and_then(|after| after.sha256.as_ref()) })
    });
    let mut described: Vec<Value> = described.collect();
    let value = if let [only] = &mut described[..] { only.take() } else { json!({ "files": described }) };
    let created = directories.iter().map(|path| FileChange::new(path, None, Some(directory.clone())));
    let recorded = created.chain(files.iter().cloned()).collect();
    let difference: String = changes.iter().map(Pending::difference).collect();
    let entry = engine.journal.entry("exec.changes").data(&FilesChanged::of(recorded));
    let more = json!({ "operation": operation, "call": engine.policy.actor.call, "difference": difference });
    let receipt = engine.journal.synced(entry.data(&more))?;
    // Several files change together, so a signal must not interrupt the changes.
    let _effect = signals::effect();
    let make =
        |path: &PathBuf| nofollow::make_directory(path).map_err(|e| Error::io("cannot be created", e).in_file(path));
    let outcome = directories.iter().try_for_each(make).and_then(|()| changes.iter().try_for_each(Pending::carry_out));
    if outcome.is_err() {
        // The failure of the request is reported; the contents are kept in any case.
        let carried_out = vec![Recorded { time: clock::now(), files }];
        let _ = Undo::of(&engine.policy, carried_out).and_then(|undo| undo.restore_all());
        // A directory that is not empty stays.
        directories.iter().rev().for_each(|path| _ = std::fs::remove_dir(path));
        // The entry above is not the last state of these files.
        let before = changes.iter().filter_map(|pending| Some((&pending.path, &pending.before.as_ref()?.hash)));
        let reads: Vec<Value> = before
            .map(|(path, hash)| json!({ "path": path.display().to_string(), "file_sha256": hash.to_string() }))
            .collect();
        record(engine, operation, json!({ "reads": reads, "failed": true }))?;
    }
    outcome.map(|()| Item::new(operation, value, receipt, "/value"))
}

/// Keeps the contents that changes replace.
fn keep(policy: &Policy, changes: &[Pending]) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("cannot keep what a file holds", e);
    let store = Store::of_home(&policy.cp_home);
    let session = store.session().map_err(failed)?;
    let replaced: Vec<&Content> = changes.iter().filter_map(|pending| pending.before.as_ref()).collect();
    for file in &replaced {
        session.keep_durably(&file.hash, &file.bytes)?;
    }
    session.finish(&replaced.iter().map(|file| file.hash).collect::<Vec<_>>()).map_err(failed)
}

/// The missing parents of the files that changes create, the outermost first.
fn missing_directories(changes: &[Pending]) -> Vec<PathBuf> {
    let files = changes.iter().filter(|pending| pending.before.is_none() && pending.after.is_some());
    let parents = files.flat_map(|pending| pending.path.ancestors().skip(1));
    let mut missing: Vec<PathBuf> =
        parents.filter(|path| path.symlink_metadata().is_err()).map(Path::to_owned).collect();
    missing.sort();
    missing.dedup();
    missing
}

/// Records an operation with the tool call that requested it.
pub(super) fn record(engine: &mut Engine, operation: &str, mut what: Value) -> Result<Receipt> {
    if let Some(call) = &engine.policy.actor.call {
        what["call"] = call.as_str().into();
    }
    let entry = engine.journal.entry("exec.operation").with("operation", operation).with("what", &what);
    engine.journal.synced(entry)
}

/// The most lines of the ledger that are searched backwards. Earlier reads and writes of the run do not count.
const LINES: usize = 100_000;

/// Refuses a file that changed since this run last read or wrote it. True if the run knows its content.
fn unchanged(policy: &Policy, path: &Path, now: &Content) -> Result<bool> {
    let (path, hash) = (path.display().to_string(), now.hash.to_string());
    let known = last_known(policy, &path)?;
    if known.as_ref().is_some_and(|known| *known != hash) {
        let message = format!("{path} was changed by others since this run last read or wrote it");
        return Err(Error::new(Code::Conflict, message)
            .with("rule", "changed")
            .with("path", path)
            .with("sha256", hash)
            .hint("read it again, then change what it holds now"));
    }
    Ok(known.is_some())
}

/// The hash of a file when this run last read all of it or wrote it; empty if the run removed it.
fn last_known(policy: &Policy, path: &str) -> Result<Option<String>> {
    let Some(run) = policy.actor.run.as_deref().map(quoted) else { return Ok(None) };
    let named = quoted(path);
    let named = memmem::Finder::new(&named);
    let known = |raw: &[u8], line: &Line<'_>| {
        named.find(raw).filter(|_| line.member("run") == Some(&run))?;
        let data: Value = serde_json::from_slice(line.member("data")?).ok()?;
        // What a command of the run made of a file is not known to the run.
        data["operation"].as_str()?;
        let of_path = |list: &Value| list.as_array()?.iter().find(|one| one["path"] == path).cloned();
        let Some(change) = of_path(&data["files"]) else {
            // The hash of the whole file, if it is known.
            return Some(of_path(&data["what"]["reads"])?["file_sha256"].as_str()?.to_owned());
        };
        Some(change["after"]["sha256"].as_str().unwrap_or_default().to_owned())
    };
    newest(&policy.ledger, LINES, |raw, line| Ok(known(raw, line)))
}

/// The error for a file that does not exist.
fn file_not_found(path: &Path) -> Error {
    Error::not_found(format!("file not found: {}", path.display()))
        .hint("list_directory shows what is there; write_file creates a file")
}

/// The files of an operation with their new contents, which are not written yet.
struct Drafts<'a> {
    policy: &'a Policy,
    files: Vec<Pending>,
}

impl Drafts<'_> {
    /// Drafts a new file, or a replaced one if the mode says so.
    fn write(&mut self, write: &WriteFile) -> Result<()> {
        let (draft, _) = self.draft(&write.path)?;
        if write.mode == WriteMode::Create && draft.before.is_some() {
            return Err(exists(&draft.path));
        }
        draft.put(write.content.as_bytes().to_vec());
        Ok(())
    }

    /// Drafts a removal. The request does not show that its caller knows the content, so the run must know it.
    fn remove(&mut self, path: &str) -> Result<()> {
        let (Pending { path, after, .. }, is_known) = self.draft(path)?;
        after.take().ok_or_else(|| file_not_found(path))?;
        if is_known {
            return Ok(());
        }
        Err(Error::new(Code::Conflict, format!("this run has not read {}", path.display()))
            .with("rule", "unread")
            .with("path", path.display().to_string())
            .hint("read it first, in the run that --run names"))
    }

    /// Drafts a replacement, for which an empty old text creates a file, or a patch. Removals come last.
    fn apply(&mut self, edit: &EditFile) -> Result<()> {
        match (&edit.path, &edit.old, &edit.new, &edit.patch) {
            (path, None, None, Some(text)) if !edit.all => self.patch(text, path.as_deref()),
            (Some(path), Some(old), Some(new), None) if old.is_empty() => self.create(path, new),
            (Some(path), Some(old), Some(new), None) => self.edit(path, |file| replaced(file, old, new, edit.all)),
            _ => Err(Error::validation("give `path`, `old` and `new`, or `patch`")
                .with("rule", "request")
                .hint(r#"for example {"path":"a.py","old":"x = 1","new":"x = 2"}"#)),
        }?;
        self.files.retain(Pending::is_change);
        self.files.sort_by_key(|draft| draft.after.is_none());
        if !self.files.is_empty() {
            return Ok(());
        }
        Err(Error::validation("the edit changes nothing")
            .with("rule", "patch")
            .hint("the file may have the new text already: read it"))
    }

    /// Applies a patch. The path of the request names the only file of a patch.
    fn patch(&mut self, text: &str, path: Option<&str>) -> Result<()> {
        let changes = parse(text)?;
        let is_single = changes.iter().all(|(named, _)| *named == changes[0].0);
        for (named, action) in &changes {
            let asked = path.filter(|_| is_single).unwrap_or(named);
            match action {
                Action::Create { content } => self.create(asked, content)?,
                Action::Remove => self.existing(asked)?.after = None,
                Action::Update { hunks, moved_to } => {
                    if !hunks.is_empty() {
                        self.edit(asked, |file| patched(file, hunks))?;
                    }
                    let Some(to) = moved_to else { continue };
                    let moved = self.existing(asked)?.after.take();
                    self.absent(to)?.after = moved;
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, content: &str) -> Result<()> {
        self.absent(path)?.put(content.as_bytes().to_vec());
        Ok(())
    }

    fn edit(&mut self, path: &str, edit: impl FnOnce(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
        let draft = self.existing(path)?;
        let now = draft.after.as_ref().map(|now| &now.bytes[..]).unwrap_or_default();
        let edited =
            edit(now).map_err(|error| error.in_file(&draft.path).with("path", draft.path.display().to_string()))?;
        draft.put(edited);
        Ok(())
    }

    /// The draft of a file that must exist.
    fn existing(&mut self, path: &str) -> Result<&mut Pending> {
        let (draft, _) = self.draft(path)?;
        if draft.after.is_some() { Ok(draft) } else { Err(file_not_found(&draft.path)) }
    }

    /// The draft of a file that must not exist, or be empty.
    fn absent(&mut self, path: &str) -> Result<&mut Pending> {
        let (draft, _) = self.draft(path)?;
        let is_absent = draft.after.as_ref().is_none_or(|after| after.bytes.is_empty());
        if is_absent { Ok(draft) } else { Err(exists(&draft.path)) }
    }

    /// The draft of a file, which must be unchanged if this run knows it, and whether the run knows it.
    fn draft(&mut self, path: &str) -> Result<(&mut Pending, bool)> {
        let path = writable_path(self.policy, path)?;
        if let Some(at) = self.files.iter().position(|draft| draft.path == path) {
            return Ok((&mut self.files[at], true));
        }
        let (draft, last) = (pending(&path)?, self.files.len());
        let known = draft.before.as_ref().map(|before| unchanged(self.policy, &path, before)).transpose()?;
        self.files.push(draft);
        Ok((&mut self.files[last], known.unwrap_or(false)))
    }
}

/// The error for a file that would be created and exists.
fn exists(path: &Path) -> Error {
    Error::new(Code::Conflict, format!("{} already exists", path.display())).with("rule", "exists").hint(
        r#"use edit_file with the text to replace in `old`, or write_file with "mode":"overwrite" to replace all of it"#,
    )
}
