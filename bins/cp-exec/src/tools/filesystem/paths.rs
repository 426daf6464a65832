//! Which paths may be looked at and changed, and how they are opened: what is masked from commands is hidden here too.

use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::place;
use crate::policy::Policy;
use crate::policy::{normal, writable};
pub(super) use crate::policy::{readable, visible};
use crate::refusal::denied;

/// The path that is meant, without links as far as it is there.
pub(super) fn path_of(policy: &Policy, asked: &str) -> Result<PathBuf> {
    if asked.is_empty() || asked.contains('\0') {
        return Err(Error::validation("the path is empty or contains a NUL byte").with("rule", "path"));
    }
    Ok(resolved(&policy.base.join(policy.expand(asked))))
}

/// The path that is meant, if it may be written. The name counts that was asked for, and the path that links lead it to.
pub(super) fn writable_path(policy: &Policy, asked: &str) -> Result<PathBuf> {
    let path = path_of(policy, asked)?;
    writable(policy, &path, &normal(&policy.base.join(policy.expand(asked))))?;
    Ok(path)
}

/// Opens a path that was resolved and allowed, through no link: one that is on its way now was put there since.
pub(super) fn open(path: &Path, what: &str, flags: OFlags) -> Result<File> {
    place::open_with(path, flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).map(File::from).map_err(|e| {
        match e {
            Errno::NOENT => Error::not_found(format!("{what} not found: {}", path.display())),
            Errno::LOOP => {
                denied("read", path).with("rule", "changed").hint("a link came on its way meanwhile; try again")
            }
            Errno::NOTDIR if what == "directory" => Error::validation(format!("{} is not a directory", path.display()))
                .hint("for a file use filesystem.read_file"),
            e => Error::io("cannot be read", std::io::Error::from(e)).in_file(path),
        }
    })
}
