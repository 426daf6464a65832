//! The quarantine, `state/quarantine` of the home. Each quarantined file has its own directory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cp_common::home::{Home, make_directory};
use rustix::fs::{AtFlags, CWD, FileType, Mode};

use crate::nofollow::{copy, names, open_directory, open_parent, random_name, remove};
use crate::sandbox::report::Quarantined;

/// The maximum depth to which directories are copied if they cannot be moved.
const DEEPEST: usize = 64;

pub(super) struct Quarantine<'a> {
    home: &'a Home,
    /// What was quarantined, or should have been.
    pub found: Vec<Quarantined>,
}

impl<'a> Quarantine<'a> {
    pub(super) fn of(home: &'a Home) -> Self {
        Self { home, found: Vec::new() }
    }

    /// Creates a directory for one entry.
    fn slot(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let time = cp_common::clock::now().replace([':', '.'], "-");
        let path = self.home.state("quarantine").join(time + &random_name()?);
        make_directory(&path).map_err(|e| io::Error::other(e.message().to_owned()))?;
        let directory = open_directory(CWD, &path)?;
        Ok((path, directory))
    }

    /// Moves a path into quarantine. True if it was moved.
    pub(super) fn take(&mut self, path: &Path, reason: Option<String>) -> bool {
        let moved = self.move_in(path).map(Some);
        self.record(path, moved, reason)
    }

    pub(super) fn move_in(&self, path: &Path) -> io::Result<PathBuf> {
        let (parent, name) = open_parent(path)?;
        let (to, slot) = self.slot()?;
        match rustix::fs::renameat(&parent, name, &slot, name) {
            Err(rustix::io::Errno::XDEV) => {
                copy_all(parent.as_fd(), slot.as_fd(), Path::new(name), DEEPEST)?;
                remove(parent.as_fd(), name)?;
            }
            other => other?,
        }
        Ok(to.join(name))
    }

    /// Records a path with its new path, if it has one, or with the error. True if it has a new path.
    pub(super) fn record(&mut self, path: &Path, moved: io::Result<Option<PathBuf>>, reason: Option<String>) -> bool {
        let error = moved.as_ref().err().map(io::Error::to_string);
        let moved_to = moved.ok().flatten().map(|to| to.display().to_string());
        let is_moved = moved_to.is_some();
        self.found.push(Quarantined { path: path.display().to_string(), reason, moved_to, error });
        is_moved
    }
}

/// Copies files and directories. The target of a link is stored as text; of other entries only the name is stored.
fn copy_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &Path, deep: usize) -> io::Result<()> {
    if deep == 0 {
        return Err(io::Error::other("nested too deeply to be kept"));
    }
    let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => copy(from, to, name.as_os_str(), stat.st_mode),
        FileType::Directory => {
            rustix::fs::mkdirat(to, name, Mode::RWXU)?;
            let (from, to) = (open_directory(from, name)?, open_directory(to, name)?);
            names(&from)?.iter().try_for_each(|below| copy_all(from.as_fd(), to.as_fd(), Path::new(below), deep - 1))
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            Ok(rustix::fs::symlinkat(target, to, name)?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn quarantine_moves_entry_completely() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w/.vscode/deep")).unwrap();
        fs::write(root.join("w/.vscode/deep/tasks.json"), "x").unwrap();
        let home = root.join("home");
        let own = Home::find(Some(&home)).unwrap();
        let quarantine = Quarantine::of(&own);
        let kept = quarantine.move_in(&root.join("w/.vscode")).unwrap();
        assert!(kept.starts_with(&home) && !root.join("w/.vscode").exists());
        assert_eq!(fs::read_to_string(kept.join("deep/tasks.json")).unwrap(), "x");
        std::os::unix::fs::symlink("w", root.join("link")).unwrap();
        fs::write(root.join("w/.bashrc"), "x").unwrap();
        assert!(quarantine.move_in(&root.join("link/.bashrc")).is_err(), "no link is followed");
    }
}
