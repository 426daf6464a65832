//! `filesystem.edit_file`: a replacement, an insertion or a patch becomes changes of files. All of them are placed and
//! checked before the first is applied.

use std::path::PathBuf;

use crate::files::{After, Pending, Present};
use cp_common::{Code, Error, Result};
use serde_json::{Value, json};

use super::form::{Action, FileChange, parse};
use super::place::{Edited, inserted, patched, replaced};
use super::{change, file_not_found, locked, present, unchanged, utf_8_only, writable_path};
use crate::policy::Policy;
use crate::request::{EditFile, Replacement};
use crate::run::Engine;
use crate::tools::Item;

pub(super) fn edit_file(engine: &mut Engine, edit: &EditFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let mut drafts = Drafts { policy: &engine.policy, expected: edit.expected_sha256.as_deref(), files: Vec::new() };
    drafts.apply(edit)?;
    let (pending, mut files) = drafts.finish()?;
    let receipt = change(engine, "filesystem.edit_file", pending, None)?;
    let value = if files.len() == 1 {
        files.remove(0)
    } else {
        let count: u64 = files.iter().filter_map(|file| file["changes"].as_u64()).sum();
        json!({ "changes": count, "files": files })
    };
    Ok(Item::new("filesystem.edit_file", value, receipt, "/value"))
}

/// The files of an edit with their new contents, which are not written yet.
struct Drafts<'a> {
    policy: &'a Policy,
    /// The hash of the file that the caller expects.
    expected: Option<&'a str>,
    files: Vec<Draft>,
}

/// A file of an edit.
struct Draft {
    path: PathBuf,
    before: Option<Present>,
    /// The new content; `None` if the file does not exist afterwards.
    now: Option<Vec<u8>>,
    /// The new permissions, if they are not those of the file before.
    permissions: Option<u32>,
    edited: Edited,
}

impl Draft {
    /// Records the result of one edit.
    fn update(&mut self, edited: Edited) {
        self.now = Some(edited.bytes);
        self.edited.lines.extend(edited.lines);
        self.edited.count += edited.count;
        self.edited.notes.extend(edited.notes);
    }
}

impl Drafts<'_> {
    fn apply(&mut self, edit: &EditFile) -> Result<()> {
        let named = |path: &Option<String>| path.clone().or_else(|| edit.path.clone());
        match (&edit.old, &edit.new, &edit.patch, edit.insert_line) {
            (None, None, Some(patch), None) if !edit.all && edit.edits.is_empty() => {
                self.patch(patch, edit.path.as_deref())
            }
            (None, None, None, None) if !edit.edits.is_empty() => {
                edit.edits.iter().try_for_each(|one| self.replace(named(&one.path).as_deref(), one))
            }
            (Some(old), Some(new), None, None) if edit.edits.is_empty() => {
                let one = Replacement { path: None, old: old.clone(), new: new.clone(), all: edit.all };
                self.replace(edit.path.as_deref(), &one)
            }
            (None, Some(new), None, Some(after)) if edit.edits.is_empty() => {
                let draft = self.existing(required(edit.path.as_deref())?)?;
                let edited = inserted(draft.now.as_deref().unwrap_or_default(), after, new);
                draft.update(edited.map_err(|error| at(error, draft))?);
                Ok(())
            }
            _ => Err(Error::validation("give `old` and `new`, `edits`, `insert_line` and `new`, or `patch`")
                .with("rule", "request")
                .hint(r#"for example {"path":"a.py","old":"x = 1","new":"x = 2"}"#)),
        }
    }

    /// Replaces text. An empty old text creates a file.
    fn replace(&mut self, path: Option<&str>, one: &Replacement) -> Result<()> {
        let path = required(path)?;
        if one.old.is_empty() {
            return self.create(path, &one.new);
        }
        let draft = self.existing(path)?;
        let edited = replaced(draft.now.as_deref().unwrap_or_default(), &one.old, &one.new, one.all);
        draft.update(edited.map_err(|error| at(error, draft))?);
        Ok(())
    }

    /// Applies a patch. The path of the request names the only file of a patch, or the directory of its files.
    fn patch(&mut self, text: &str, path: Option<&str>) -> Result<()> {
        let changes = parse(text)?;
        let is_single = changes.iter().all(|change| change.path == changes[0].path);
        let directory = path.filter(|path| self.policy.base.join(self.policy.expand(path)).is_dir());
        for FileChange { path: named, action } in changes {
            let asked = match (directory, path) {
                (Some(directory), _) => format!("{directory}/{named}"),
                (None, Some(path)) if is_single => path.to_owned(),
                _ => named,
            };
            match action {
                Action::Create { content } => self.create(&asked, &content)?,
                Action::Remove => {
                    let draft = self.existing(&asked)?;
                    draft.now = None;
                    draft.edited.count += 1;
                }
                Action::Update { hunks, moved_to } => {
                    let draft = self.existing(&asked)?;
                    if !hunks.is_empty() {
                        let edited = patched(draft.now.as_deref().unwrap_or_default(), &hunks);
                        draft.update(edited.map_err(|error| at(error, draft))?);
                    }
                    if let Some(to) = moved_to {
                        let content = draft.now.take();
                        let permissions =
                            draft.permissions.or(draft.before.as_ref().map(|file| file.permissions & 0o777));
                        let target = self
                            .absent(&directory.map_or_else(|| to.clone(), |directory| format!("{directory}/{to}")))?;
                        (target.now, target.permissions) = (content, permissions);
                        target.edited.count += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, content: &str) -> Result<()> {
        let draft = self.absent(path)?;
        draft.update(Edited { bytes: content.as_bytes().to_vec(), lines: vec![1], count: 1, notes: Vec::new() });
        Ok(())
    }

    /// The draft of a file that must exist.
    fn existing(&mut self, path: &str) -> Result<&mut Draft> {
        let policy = self.policy;
        let draft = self.draft(path)?;
        if draft.now.is_some() { Ok(draft) } else { Err(file_not_found(policy, &draft.path)) }
    }

    /// The draft of a file that must not exist, or be empty.
    fn absent(&mut self, path: &str) -> Result<&mut Draft> {
        let draft = self.draft(path)?;
        if draft.now.as_ref().is_none_or(Vec::is_empty) { Ok(draft) } else { Err(exists(&draft.path)) }
    }

    fn draft(&mut self, path: &str) -> Result<&mut Draft> {
        let path = writable_path(self.policy, path)?;
        if let Some(at) = self.files.iter().position(|draft| draft.path == path) {
            return Ok(&mut self.files[at]);
        }
        let before = present(&path)?;
        utf_8_only(&path, before.as_ref())?;
        if let Some(before) = &before {
            // Text that matches proves that the caller knows the replaced part; a file that this run knows must be
            // unchanged.
            unchanged(self.policy, &path, before, self.expected)?;
        }
        let now = before.as_ref().map(|before| before.bytes.clone());
        self.files.push(Draft { path, before, now, permissions: None, edited: Edited::default() });
        let last = self.files.len() - 1;
        Ok(&mut self.files[last])
    }

    /// The changes to make, and a description of each. Removals come last.
    fn finish(self) -> Result<(Vec<Pending>, Vec<Value>)> {
        let mut changes = Vec::new();
        for Draft { path, before, now, permissions, edited } in self.files {
            let is_same = before.as_ref().map(|before| &before.bytes) == now.as_ref();
            if is_same {
                continue;
            }
            let after = now.map(|bytes| After::new(bytes, permissions));
            let mut shown =
                json!({ "path": path.display().to_string(), "changes": edited.count, "lines": edited.lines });
            match &after {
                Some(after) => {
                    shown["bytes"] = after.bytes.len().into();
                    shown["sha256"] = after.hash.to_string().into();
                    shown["created"] = before.is_none().into();
                }
                None => shown["removed"] = true.into(),
            }
            if !edited.notes.is_empty() {
                shown["notes"] = edited.notes.into();
            }
            changes.push((Pending { path, before, after }, shown));
        }
        if changes.is_empty() {
            return Err(Error::validation("the edit changes nothing")
                .with("rule", "patch")
                .hint("the file may have the new text already: read it"));
        }
        changes.sort_by_key(|(pending, _)| pending.after.is_none());
        Ok(changes.into_iter().unzip())
    }
}

/// The path of a file, which the request must name.
fn required(path: Option<&str>) -> Result<&str> {
    path.ok_or_else(|| {
        Error::validation("the request names no file").with("rule", "path").hint("give the path of the file in `path`")
    })
}

/// The error of an edit, with the path of its file.
fn at(error: Error, draft: &Draft) -> Error {
    error.in_file(&draft.path).with("path", draft.path.display().to_string())
}

/// The error for a file that would be created and exists.
pub(super) fn exists(path: &std::path::Path) -> Error {
    Error::new(Code::Conflict, format!("{} already exists", path.display())).with("rule", "exists").hint(
        r#"use edit_file with the text to replace in `old`, or write_file with "mode":"overwrite" to replace all of it"#,
    )
}
