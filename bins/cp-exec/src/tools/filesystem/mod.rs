//! The tool `filesystem`: files are read, searched and changed under the policy's paths, without a process.

mod change;
mod known;
mod list;
mod patch;
mod paths;
mod read;
mod replace;
mod search;
mod write;

use std::path::Path;

use cp_common::Result;
use cp_common::program::confirm::Change;
use cp_hosts::Pending;
use serde_json::{Value, json};

use self::paths::{path_of, readable, writable_path};
use super::item::Item;
use crate::digest::sha256;
use crate::policy::{Access, Policy};
use crate::request::FileOperation;
use crate::run::Engine;

/// Does a file operation, on the record.
pub(crate) fn operate(engine: &mut Engine, operation: &FileOperation, spent: Option<&str>) -> Result<Item> {
    engine.policy.check_base()?;
    match operation {
        FileOperation::ReadFile(read) => read::read_file(engine, read),
        FileOperation::ListDirectory(list) => list::list_directory(engine, list),
        FileOperation::Search(search) => search::search(engine, search),
        FileOperation::Find(find) => search::find(engine, find),
        FileOperation::WriteFile(write) => write::write_file(engine, write, spent),
        FileOperation::EditFile(edit) => write::edit_file(engine, edit),
        FileOperation::RemoveFile(remove) => write::remove_file(engine, remove),
        FileOperation::RestoreFiles(restore) => write::restore_files(engine, restore),
    }
}

/// Refuses a path that the policy does not let a tool look at or change, whoever has that tool.
pub(crate) fn check(policy: &Policy, access: Access, asked: &str) -> Result<()> {
    policy.check_base()?;
    match access {
        Access::Read | Access::Execute => readable(policy, &path_of(policy, asked)?),
        Access::Write => writable_path(policy, asked).map(drop),
    }
}

/// What a file operation would do, and whether that has to be confirmed.
pub(crate) fn change(policy: &Policy, operation: &FileOperation) -> Result<(Change, bool)> {
    policy.check_base()?;
    let hash = |bytes: &[u8]| Value::from(sha256(bytes));
    match operation {
        FileOperation::ReadFile(read) => looked_at(policy, "read", &read.path),
        FileOperation::ListDirectory(list) => looked_at(policy, "list", &list.path),
        FileOperation::Search(search) => looked_at(policy, "search", &search.path),
        FileOperation::Find(find) => looked_at(policy, "find", &find.path),
        FileOperation::WriteFile(write) => {
            let pending = write::written(policy, write)?;
            Ok((shown(&pending, hash(write.content.as_bytes())), pending.before.is_some()))
        }
        FileOperation::EditFile(edit) => {
            let (pending, edited) = write::edited(policy, edit)?;
            Ok((shown(&pending, hash(&edited.bytes)), false))
        }
        FileOperation::RemoveFile(remove) => Ok((shown(&write::removed(policy, remove)?, Value::Null), false)),
        FileOperation::RestoreFiles(restore) => {
            let changes = write::restored(policy, restore)?;
            let state = |pending: &Pending| json!([pending.path.display().to_string(), before(pending)]);
            let before = changes.iter().map(state).collect::<Vec<_>>();
            let of = |pending: &Pending| pending.after.as_ref().map(|after| after.hash.to_string());
            let after = changes.iter().map(of).collect::<Vec<_>>();
            let id = format!("{} files", changes.len());
            Ok((described("restore", id, before.into(), after.into()), false))
        }
    }
}

fn looked_at(policy: &Policy, action: &str, asked: &str) -> Result<(Change, bool)> {
    let path = path_of(policy, asked)?;
    readable(policy, &path)?;
    Ok((described(action, name(&path), Value::Null, Value::Null), false))
}

fn shown(pending: &Pending, after: Value) -> Change {
    described(pending.mode, name(&pending.path), before(pending), after)
}

fn before(pending: &Pending) -> Value {
    pending.before.as_ref().map(|before| before.hash.to_string()).into()
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn described(action: &str, id: String, before: Value, after: Value) -> Change {
    Change { action: action.to_owned(), resource: "file".to_owned(), id, before, after }
}
