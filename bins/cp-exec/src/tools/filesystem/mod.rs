//! The tool `filesystem`: reads, searches and changes files under the policy's paths, without a process.

mod change;
mod edit;
mod read;
mod search;
mod undo;
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub(crate) use self::undo::{Step, Undo};
use super::Item;
use crate::nofollow;
use crate::policy::{Access, Policy, normal, writable};
pub(super) use crate::policy::{readable, visible};
use crate::refusal::denied;
use crate::request::FileOperation;
use crate::run::Engine;

/// Carries out a file operation, and records it.
pub(crate) fn operate(engine: &mut Engine, operation: &FileOperation) -> Result<Item> {
    engine.policy.check_base()?;
    match operation {
        FileOperation::ReadFile(read) => read::read_file(engine, read),
        FileOperation::ListDirectory(list) => read::list_directory(engine, list),
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

/// Resolves a path, as far as it exists.
pub(super) fn path_of(policy: &Policy, asked: &str) -> Result<PathBuf> {
    if asked.is_empty() || asked.contains('\0') {
        return Err(Error::validation("the path is empty or contains a NUL byte").with("rule", "path"));
    }
    Ok(resolved(&policy.base.join(policy.expand(asked))))
}

/// Resolves a path that may be written. The policy is checked for the requested name and for the resolved path.
pub(super) fn writable_path(policy: &Policy, asked: &str) -> Result<PathBuf> {
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
