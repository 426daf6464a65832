//! Which paths may be looked at and changed, and how they are opened: what is masked from commands is hidden here too.

use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::place;
use crate::policy::{Access, Hidden, Policy, covering};
use crate::refusal::{denied, denied_by, owner_decides};

/// The path that is meant, without links as far as it is there.
pub(super) fn path_of(policy: &Policy, asked: &str) -> Result<PathBuf> {
    if asked.is_empty() || asked.contains('\0') {
        return Err(Error::validation("the path is empty or contains a NUL byte").with("rule", "path"));
    }
    Ok(resolved(&policy.base.join(policy.expand(asked))))
}

/// A path that may be read.
pub(super) fn readable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Read)
}

/// The same for each of many paths, with what is hidden resolved once.
pub(super) fn visible(policy: &Policy, hidden: &Hidden, path: &Path, access: Access) -> Result<()> {
    for module in policy.modules_at(&[&policy.base]) {
        module.check(access, path)?;
    }
    let hint = owner_decides("[paths] lists what may be read");
    if let Some(pattern) = policy.bounds.forbidding(path) {
        return Err(denied_by("read", path, "forbidden", pattern.text()).hint(hint));
    }
    if hidden.hides(path) {
        return Err(denied("read", path).with("rule", "secret").hint("secrets are hidden from commands and tools"));
    }
    if !policy.is_tool(path) && !policy.bounds.lists(Access::Read, path) {
        return Err(denied("read", path).with("rule", "paths.read").hint(hint));
    }
    Ok(())
}

/// A path that may be written: declared, and neither pristine nor forbidden nor something that runs later.
pub(super) fn writable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Write)?;
    let hint = owner_decides("[paths] lists what may be written");
    if let Some(pattern) = covering(&policy.pristine, path) {
        return Err(denied_by("write", path, "pristine", pattern.text()).hint(hint));
    }
    if let Some(governed) = &policy.governed {
        governed.check_writable(path)?;
    }
    if policy.is_guarded(path) || policy.protected()?.iter().any(|protected| path.starts_with(protected)) {
        return Err(denied("write", path)
            .with("rule", "protected")
            .with("guard", "before")
            .hint("other programs run commands from this file; only its owner can change it"));
    }
    if !policy.bounds.lists(Access::Write, path) {
        return Err(denied("write", path).with("rule", "paths.write").hint(hint));
    }
    Ok(())
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
