//! Paths and the links on them. What a command can write it can also fill with links, so a path that was decided about is opened
//! through none, and a path of the policy is followed once, with every link on the way known.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

pub(crate) use cp_hosts::open_with;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// How many links one path may have, as for the kernel.
const LINKS: usize = 40;

/// A symbolic link: where it lies, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub at: PathBuf,
    pub to: PathBuf,
}

/// What tells one file or directory from another: its device and inode.
pub(crate) type Node = (u64, u64);

/// Opens what a path without links names, not to be read but to be referred to. None if nothing is there, or nothing that this
/// user can get to; a link on the way is `ELOOP`.
pub(crate) fn open(path: &Path) -> io::Result<Option<OwnedFd>> {
    match open_with(path, OFlags::PATH) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The device and inode behind a descriptor.
pub(crate) fn node(file: &OwnedFd) -> io::Result<Node> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The first link on the way of a path.
pub(crate) fn first_link(path: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    way.into_iter().find(|place| place.is_symlink()).map(Path::to_owned)
}

/// Where an absolute path leads, as far as it is there, and the links on the way.
pub(crate) fn follow(path: &Path) -> (PathBuf, Vec<Link>) {
    let (mut real, mut links) = (PathBuf::new(), Vec::new());
    // What is to be walked, the next part last. A root among them begins anew.
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        if links.len() < LINKS
            && let Ok(to) = fs::read_link(&real)
        {
            rest.extend(parts(&to));
            links.push(Link { at: real.clone(), to });
            real.pop();
        }
    }
    (real, links)
}

fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    parts.rev().map(|part| OsStr::to_owned(part.as_os_str())).collect()
}

/// Opens a directory to be read, itself through no link.
pub(crate) fn open_directory(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// The names in a directory.
pub(crate) fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Copies a file, which then appears whole or not at all.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
    let temporary = format!(".cp-exec-{}-{:?}", std::process::id(), std::thread::current().id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(rustix::fs::openat(to, &temporary, flags, Mode::from_raw_mode(0o600))?);
    let copied = io::copy(&mut source, &mut target)
        .and_then(|_| Ok(rustix::fs::fchmod(&target, Mode::from_raw_mode(mode & 0o666))?))
        .and_then(|()| Ok(rustix::fs::renameat(to, &temporary, to, name)?));
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(to, &temporary, AtFlags::empty());
    }
    copied
}

/// Removes an entry with all below it.
pub(crate) fn remove(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let directory = open_directory(at, Path::new(name))?;
    for below in names(&directory)? {
        remove(directory.as_fd(), &below)?;
    }
    Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_with_its_links_and_opened_without_any() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/deep")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("link/deep"), root.join("again")).unwrap();
        let (real, links) = follow(&root.join("again/../deep/missing"));
        assert_eq!(real, root.join("real/deep/missing"));
        assert_eq!(
            links.iter().map(|link| link.at.clone()).collect::<Vec<_>>(),
            [root.join("again"), root.join("link")]
        );
        assert!(open(&root.join("real/deep")).unwrap().is_some());
        assert!(open(&root.join("real/missing")).unwrap().is_none());
        for path in ["link", "link/deep", "again"] {
            let error = open(&root.join(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{path}");
        }
        let (one, other) = (open(&root.join("real/deep")), open_with(&root.join("real/deep"), OFlags::RDONLY));
        assert_eq!(node(&one.unwrap().unwrap()).unwrap(), node(&other.unwrap()).unwrap());
        assert_eq!(first_link(&root.join("link/deep")), Some(root.join("link")));
    }
}
