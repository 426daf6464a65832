//! Opens paths without following links, because a link in a resolved path was added after the path was resolved.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens an absolute path without links, with these flags.
pub fn open_with(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (flags, how) = (flags | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS);
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), how) {
        // Old kernels lack `openat2`, and a sandbox may deny it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(path, flags),
        other => other,
    }
}

/// Like [`open_with`], one directory after the other.
fn open_by_steps(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let steps = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = path.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
    let mut place = rustix::fs::open("/", steps, Mode::empty())?;
    if names.peek().is_none() {
        return rustix::fs::open("/", flags, Mode::empty());
    }
    while let Some(name) = names.next() {
        let next = rustix::fs::openat(&place, name.as_os_str(), steps, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode).is_symlink() {
            return Err(Errno::LOOP);
        }
        if names.peek().is_none() && !flags.contains(OFlags::PATH) {
            return rustix::fs::openat(&place, name.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty());
        }
        place = next;
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_by_steps_rejects_links_like_openat2() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let inode = |file: OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        for open in [open_with, open_by_steps] {
            let deep = open(&root.join("real/deep"), OFlags::RDONLY).unwrap();
            assert_eq!(inode(deep), rustix::fs::stat(root.join("real/deep")).unwrap().st_ino);
            assert_eq!(open(&root.join("real/missing"), OFlags::PATH).unwrap_err(), Errno::NOENT);
            for path in ["link", "link/deep"] {
                assert_eq!(open(&root.join(path), OFlags::PATH).unwrap_err(), Errno::LOOP, "{path}");
            }
        }
    }
}
