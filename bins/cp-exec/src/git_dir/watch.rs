//! Watches the read-only parts of a repository during a run. If another process replaces a file, as `git config`
//! does, a mount on that file ends, and the run could write the new file.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::{Repository, node_of};
use crate::nofollow::Node;

/// Files and directories that are mounts in a run.
pub(crate) struct Watch {
    inotify: OwnedFd,
    bound: Vec<WatchedPath>,
}

struct WatchedPath {
    path: PathBuf,
    node: Option<Node>,
    /// The watch descriptor of its directory.
    directory: i32,
    /// True if something else was put at its path.
    replaced: bool,
    /// True if the replacement was changed afterwards.
    written: bool,
}

const REPLACING: ReadFlags =
    ReadFlags::MOVED_TO.union(ReadFlags::MOVED_FROM).union(ReadFlags::DELETE).union(ReadFlags::CREATE);

impl Watch {
    pub(super) fn begin(repositories: &[Repository]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let replacing = WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        let mut bound = Vec::new();
        for repository in repositories {
            for path in repository.protected() {
                let (node, Some(parent)) = (node_of(path), path.parent()) else { continue };
                if node.is_none() {
                    continue;
                }
                // In a working tree files are written all the time.
                let writing = if parent.starts_with(&repository.path) {
                    WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE
                } else {
                    WatchFlags::empty()
                };
                let directory = inotify::add_watch(&inotify, parent, replacing | writing)?;
                bound.push(WatchedPath { path: path.clone(), node, directory, replaced: false, written: false });
            }
        }
        Ok(Self { inotify, bound })
    }

    /// Processes pending events, and returns the first path that was replaced.
    pub(crate) fn replaced(&mut self) -> Option<&Path> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            for bound in &mut self.bound {
                let is_it = bound.directory == event.wd() && bound.path.file_name() == name;
                let is_other = lost && node_of(&bound.path) != bound.node;
                bound.written |= is_other || (is_it && bound.replaced);
                bound.replaced |= is_other || (is_it && event.events().intersects(REPLACING));
            }
        }
        self.bound.iter().find(|bound| bound.replaced).map(|bound| bound.path.as_path())
    }

    /// True if the run may have written the current content of a path.
    pub(super) fn may_be_written(&self, path: &Path) -> bool {
        self.bound.iter().any(|bound| bound.path == path && bound.written)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
