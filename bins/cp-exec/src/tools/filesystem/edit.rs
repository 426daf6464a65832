//! `filesystem.edit_file`: a replacement or a patch becomes changes of files. All of them are placed and
//! checked before the first is applied. Also `filesystem.write_file` and `remove_file`.

use std::path::Path;

use crate::files::{After, Pending};
use cp_common::{Code, Error, Result};
use serde_json::json;

use super::place::{Action, parse, patched, replaced};
use super::{change, file_not_found, locked, present, unchanged, writable_path};
use crate::policy::Policy;
use crate::request::{EditFile, RemoveFile, WriteFile, WriteMode};
use crate::run::Engine;
use crate::tools::Item;

pub(super) fn edit_file(engine: &mut Engine, edit: &EditFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let expected = edit.expected_sha256.as_deref();
    let mut drafts = Drafts { policy: &engine.policy, expected, files: Vec::new() };
    drafts.apply(edit)?;
    let pending = drafts.finish()?;
    let (mut files, receipt) = change(engine, "filesystem.edit_file", &pending)?;
    let value = if let [only] = &mut files[..] { only.take() } else { json!({ "files": files }) };
    Ok(Item::new("filesystem.edit_file", value, receipt, "/value"))
}

/// The files of an edit with their new contents, which are not written yet.
struct Drafts<'a> {
    policy: &'a Policy,
    /// The hash of the file that the caller expects.
    expected: Option<&'a str>,
    files: Vec<Pending>,
}

impl Drafts<'_> {
    fn apply(&mut self, edit: &EditFile) -> Result<()> {
        let path = edit.path.as_deref();
        match (&edit.old, &edit.new, &edit.patch) {
            (None, None, Some(text)) if !edit.all => self.patch(text, path),
            (Some(old), Some(new), None) => self.replace(path, old, new, edit.all),
            _ => Err(Error::validation("give `old` and `new`, or `patch`")
                .with("rule", "request")
                .hint(r#"for example {"path":"a.py","old":"x = 1","new":"x = 2"}"#)),
        }
    }

    /// Replaces text. An empty old text creates a file.
    fn replace(&mut self, path: Option<&str>, old: &str, new: &str, all: bool) -> Result<()> {
        let path = required(path)?;
        if old.is_empty() { self.create(path, new) } else { self.edit(path, |file| replaced(file, old, new, all)) }
    }

    /// Applies a patch. The path of the request names the only file of a patch, or the directory of its files.
    fn patch(&mut self, text: &str, path: Option<&str>) -> Result<()> {
        let changes = parse(text)?;
        let is_single = changes.iter().all(|(named, _)| *named == changes[0].0);
        let directory = path.filter(|path| self.policy.base.join(self.policy.expand(path)).is_dir());
        let below =
            |named: &str| directory.map_or_else(|| named.to_owned(), |directory| format!("{directory}/{named}"));
        for (named, action) in &changes {
            let asked = match path {
                Some(path) if is_single && directory.is_none() => path.to_owned(),
                _ => below(named),
            };
            match action {
                Action::Create { content } => self.create(&asked, content)?,
                Action::Remove => self.existing(&asked)?.after = None,
                Action::Update { hunks, moved_to } => {
                    if !hunks.is_empty() {
                        self.edit(&asked, |file| patched(file, hunks))?;
                    }
                    let Some(to) = moved_to else { continue };
                    let draft = self.existing(&asked)?;
                    let own = draft.before.as_ref().map(|file| file.permissions & 0o777);
                    let moved = draft.after.take();
                    let moved = moved.map(|after| After { permissions: after.permissions.or(own), ..after });
                    self.absent(&below(to))?.after = moved;
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, content: &str) -> Result<()> {
        self.absent(path)?.after = Some(After::new(content.as_bytes().to_vec(), None));
        Ok(())
    }

    fn edit(&mut self, path: &str, edit: impl FnOnce(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
        let Pending { path, after, .. } = self.existing(path)?;
        let Some(now) = after else { return Err(file_not_found(path)) };
        let edited =
            edit(&now.bytes).map_err(|error| error.in_file(&*path).with("path", path.display().to_string()))?;
        *now = After::new(edited, now.permissions);
        Ok(())
    }

    /// The draft of a file that must exist.
    fn existing(&mut self, path: &str) -> Result<&mut Pending> {
        let draft = self.draft(path)?;
        if draft.after.is_some() { Ok(draft) } else { Err(file_not_found(&draft.path)) }
    }

    /// The draft of a file that must not exist, or be empty.
    fn absent(&mut self, path: &str) -> Result<&mut Pending> {
        let draft = self.draft(path)?;
        let is_absent = draft.after.as_ref().is_none_or(|after| after.bytes.is_empty());
        if is_absent { Ok(draft) } else { Err(exists(&draft.path)) }
    }

    fn draft(&mut self, path: &str) -> Result<&mut Pending> {
        let path = writable_path(self.policy, path)?;
        if let Some(at) = self.files.iter().position(|draft| draft.path == path) {
            return Ok(&mut self.files[at]);
        }
        let before = present(&path)?;
        if let Some(before) = &before {
            // Text that matches proves that the caller knows the replaced part; a file that this run knows must be
            // unchanged.
            unchanged(self.policy, &path, before, self.expected)?;
        }
        let after = before.as_ref().map(|before| After::new(before.bytes.clone(), None));
        self.files.push(Pending { path, before, after });
        let last = self.files.len() - 1;
        Ok(&mut self.files[last])
    }

    /// The changes to make. Removals come last.
    fn finish(mut self) -> Result<Vec<Pending>> {
        self.files.retain(Pending::is_change);
        if self.files.is_empty() {
            return Err(Error::validation("the edit changes nothing")
                .with("rule", "patch")
                .hint("the file may have the new text already: read it"));
        }
        self.files.sort_by_key(|draft| draft.after.is_none());
        Ok(self.files)
    }
}

/// The path of a file, which the request must name.
fn required(path: Option<&str>) -> Result<&str> {
    path.ok_or_else(|| {
        Error::validation("the request names no file").with("rule", "path").hint("give the path of the file in `path`")
    })
}

/// The error for a file that would be created and exists.
fn exists(path: &Path) -> Error {
    Error::new(Code::Conflict, format!("{} already exists", path.display())).with("rule", "exists").hint(
        r#"use edit_file with the text to replace in `old`, or write_file with "mode":"overwrite" to replace all of it"#,
    )
}

/// Creates a file, or replaces all of one if the mode says so. A file that the run knows must be unchanged.
pub(super) fn write_file(engine: &mut Engine, write: &WriteFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let path = writable_path(&engine.policy, &write.path)?;
    let before = present(&path)?;
    if let Some(before) = &before {
        if write.mode == WriteMode::Create {
            return Err(exists(&path));
        }
        unchanged(&engine.policy, &path, before, None)?;
    }
    let after = Some(After::new(write.content.as_bytes().to_vec(), None));
    let (mut described, receipt) = change(engine, "filesystem.write_file", &[Pending { path, before, after }])?;
    Ok(Item::new("filesystem.write_file", described.remove(0), receipt, "/value"))
}

pub(super) fn remove_file(engine: &mut Engine, remove: &RemoveFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let pending = removed(&engine.policy, remove)?;
    let (mut described, receipt) = change(engine, "filesystem.remove_file", &[pending])?;
    Ok(Item::new("filesystem.remove_file", described.remove(0), receipt, "/value"))
}

/// The file of a removal. The request does not show that its caller knows the content, so the run must know it.
fn removed(policy: &Policy, remove: &RemoveFile) -> Result<Pending> {
    let path = writable_path(policy, &remove.path)?;
    let before = present(&path)?.ok_or_else(|| file_not_found(&path))?;
    if !unchanged(policy, &path, &before, remove.expected_sha256.as_deref())? {
        return Err(Error::new(Code::Conflict, format!("this run has not read {}", path.display()))
            .with("rule", "unread")
            .with("path", path.display().to_string())
            .hint("read it first"));
    }
    Ok(Pending { path, before: Some(before), after: None })
}
