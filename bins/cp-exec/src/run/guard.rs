//! After a run: its layers of repositories are taken over, and guarded names that it made are moved into quarantine, before anything
//! is reported.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};

use super::outcome::Outcome;
use super::repository::{DEEPEST, copy, names, open_directory, remove, take_over};
use crate::decision::{Watched, identity};
use crate::policy::Guarded;
use crate::sandbox::plan::Layer;
use crate::sandbox::report::Undone;

/// Runs that left something in quarantine.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Undoes what a run left behind that would run later, and puts it on the run's enforcement.
pub(super) fn finish(watched: &Watched, home: &Path, outcome: &mut Outcome) {
    let mut quarantine = Quarantine { home, place: None };
    let mut undone = Vec::new();
    for (at, layer) in std::mem::take(&mut outcome.layers) {
        let Some((path, real)) = watched.repositories.get(at) else { continue };
        match take_over(&layer, real) {
            Ok(left) => undone.extend(left.iter().map(|name| quarantine.keep_copy(layer.as_fd(), name, path))),
            Err(e) => undone.push(failed(path, &e)),
        }
    }
    let private = outcome.enforcement.has(Layer::Mount);
    let known: Vec<PathBuf> = watched.repositories.iter().map(|(path, _)| path.clone()).filter(|_| private).collect();
    match Guarded::in_trees(&watched.trees, &known, watched.walk) {
        Ok(found) => {
            let found = found.into_paths();
            let made = found.iter().filter(|path| !watched.listed.contains(path) && is_new(watched, path, private));
            undone.extend(made.map(|path| quarantine.take(path)));
        }
        Err(error) => outcome.enforcement.missing.push(format!("guard: {}", error.message())),
    }
    outcome.enforcement.guard = undone;
}

/// Whether a path was not there before. Where nothing could be made read-only, what was changed counts too.
fn is_new(watched: &Watched, path: &Path, private: bool) -> bool {
    let Some(now) = identity(path) else { return false };
    !watched.known.iter().any(|before| {
        let same = before.path == now.path && (before.dev, before.ino) == (now.dev, now.ino);
        same && (private || before.content == now.content)
    })
}

fn failed(path: &Path, error: &io::Error) -> Undone {
    Undone { path: path.display().to_string(), moved_to: None, error: Some(error.to_string()) }
}

struct Quarantine<'a> {
    home: &'a Path,
    /// The directory of this run, and how many things are in it.
    place: Option<(PathBuf, OwnedFd, u32)>,
}

impl Quarantine<'_> {
    /// A directory of its own for one thing.
    fn slot(&mut self) -> io::Result<(PathBuf, OwnedFd)> {
        let (path, directory, count) = match &mut self.place {
            Some(place) => place,
            none => {
                let run = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
                let seconds = cp_common::clock::now().replace([':', '.'], "-");
                let path = self.home.join("state/quarantine").join(format!("{seconds}-{run}"));
                cp_common::home::make_directory(&path).map_err(|e| io::Error::other(e.message().to_owned()))?;
                let directory = open_directory(CWD, &path)?;
                none.insert((path, directory, 0))
            }
        };
        *count += 1;
        let name = count.to_string();
        rustix::fs::mkdirat(&*directory, name.as_str(), Mode::RWXU)?;
        Ok((path.join(&name), open_directory(directory.as_fd(), Path::new(&name))?))
    }

    /// Moves a path away.
    fn take(&mut self, path: &Path) -> Undone {
        let mut moved = || -> io::Result<PathBuf> {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            let (to, slot) = self.slot()?;
            match rustix::fs::renameat(&parent, name, &slot, name) {
                Err(rustix::io::Errno::XDEV) => {
                    copy_all(parent.as_fd(), slot.as_fd(), Path::new(name), DEEPEST)?;
                    remove(parent.as_fd(), name)?;
                }
                other => other?,
            }
            Ok(to.join(name))
        };
        Self::said(path, moved())
    }

    /// Keeps what was left in the layer of a repository.
    fn keep_copy(&mut self, layer: BorrowedFd<'_>, name: &Path, repository: &Path) -> Undone {
        let mut kept = || -> io::Result<PathBuf> {
            let (to, slot) = self.slot()?;
            let (from, last) = match (name.parent(), name.file_name()) {
                (Some(parent), Some(last)) if !parent.as_os_str().is_empty() => {
                    (Some(open_directory(layer, parent)?), last)
                }
                _ => (None, name.as_os_str()),
            };
            copy_all(from.as_ref().map_or(layer, OwnedFd::as_fd), slot.as_fd(), Path::new(last), DEEPEST)?;
            Ok(to.join(last))
        };
        Self::said(&repository.join(name), kept())
    }

    fn said(path: &Path, moved: io::Result<PathBuf>) -> Undone {
        match moved {
            Ok(to) => {
                Undone { path: path.display().to_string(), moved_to: Some(to.display().to_string()), error: None }
            }
            Err(e) => failed(path, &e),
        }
    }
}

/// Copies files and directories. Of a link its target is kept as text, of anything else its name.
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
    fn what_is_taken_is_gone_from_its_place_and_whole_in_quarantine() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w/.vscode/deep")).unwrap();
        fs::write(root.join("w/.vscode/deep/tasks.json"), "x").unwrap();
        let home = root.join("home");
        let mut quarantine = Quarantine { home: &home, place: None };
        let undone = quarantine.take(&root.join("w/.vscode"));
        let kept = PathBuf::from(undone.moved_to.unwrap());
        assert!(kept.starts_with(&home) && !root.join("w/.vscode").exists());
        assert_eq!(fs::read_to_string(kept.join("deep/tasks.json")).unwrap(), "x");
        std::os::unix::fs::symlink("w", root.join("link")).unwrap();
        fs::write(root.join("w/.bashrc"), "x").unwrap();
        assert!(quarantine.take(&root.join("link/.bashrc")).error.is_some(), "no link is followed");
    }
}
