//! The tool `filesystem`: reads, searches and changes files under the policy's paths, without a process.

mod change;
mod known;
mod list;
mod patch;
mod paths;
mod read;
mod replace;
mod search;
mod undo;
mod write;

use cp_common::Result;

use self::paths::{path_of, readable, writable_path};
pub(crate) use self::undo::{Step, Undo};
use super::item::Item;
use crate::policy::{Access, Policy};
use crate::request::FileOperation;
use crate::run::Engine;

/// Carries out a file operation, and records it.
pub(crate) fn operate(engine: &mut Engine, operation: &FileOperation) -> Result<Item> {
    engine.policy.check_base()?;
    match operation {
        FileOperation::ReadFile(read) => read::read_file(engine, read),
        FileOperation::ListDirectory(list) => list::list_directory(engine, list),
        FileOperation::Search(search) => search::search(engine, search),
        FileOperation::Find(find) => search::find(engine, find),
        FileOperation::WriteFile(write) => write::write_file(engine, write),
        FileOperation::EditFile(edit) => write::edit_file(engine, edit),
        FileOperation::RemoveFile(remove) => write::remove_file(engine, remove),
        FileOperation::RestoreFiles(restore) => write::restore_files(engine, restore),
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
