//! A repository that a run made, looked through when the run has ended: it stays where its settings are those that git writes itself or
//! a run may make, its hooks are samples, and nothing in it leads elsewhere. What git does not make itself is not left in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use super::repository::{
    COMMANDS, DEEPEST, HOOKS, INDEX, Left, NEVER, REBASE, SETTINGS, TAKEN, hooks, is_passing, kind_of, names,
    open_directory, runs_commands,
};
use super::settings::wrong_in_new;

/// Files that git makes, and that say nothing to it.
const SILENT: [&str; 2] = ["description", "gitweb.owner"];
/// What git makes in `info`; `attributes` can name filters.
const INFO: [&str; 3] = ["exclude", "refs", "sparse-checkout"];
/// The longest settings that are read.
const LONGEST: u64 = 1 << 20;
/// What makes a directory a repository.
const ESSENTIAL: [&str; 3] = ["HEAD", "objects", "refs"];

/// Whether a directory is a repository without a working tree.
pub(super) fn is_bare(directory: &Path) -> bool {
    directory.file_name() != Some(OsStr::new(".git"))
        && ESSENTIAL.iter().all(|part| directory.join(part).symlink_metadata().is_ok())
}

/// Whether this part of a repository can be harmless.
pub(super) fn may_be_harmless(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == SETTINGS || name == HOOKS)
}

/// Whether a path in a repository is git's own, also where other files lie beside it.
pub(super) fn is_of_git(path: &Path) -> bool {
    ESSENTIAL.iter().any(|part| path.starts_with(part))
}

/// What must not stay of a repository.
pub(super) fn look(repository: &Path, trees: &[PathBuf]) -> io::Result<Vec<Left>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(CWD, repository, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let mut left = Vec::new();
    for name in names(&directory)? {
        let path = Path::new(&name);
        let kind = kind_of(&directory, &name)?;
        if name == SETTINGS {
            left.extend(settings(&directory, trees).map(|why| Left::new(path, why)));
        } else if name == HOOKS {
            left.extend(hooks(&directory).map(|why| Left::new(path, why)));
        } else if name == "info" && kind == FileType::Directory {
            info(&directory, &mut left)?;
        } else if TAKEN.iter().chain([INDEX, "branches"].iter()).any(|known| name == *known) {
            below(&directory, path, &mut left)?;
        } else if kind != FileType::RegularFile || !(is_passing(&name) || SILENT.iter().any(|silent| name == *silent)) {
            left.push(Left::unknown(path));
        }
    }
    Ok(left)
}

/// What is wrong with the settings. One that has another name could be changed by it later.
fn settings(directory: &OwnedFd, trees: &[PathBuf]) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let text = || -> io::Result<String> {
        let file = File::from(rustix::fs::openat(directory, SETTINGS, flags, Mode::empty())?);
        let meta = file.metadata()?;
        if !meta.is_file() || meta.nlink() != 1 || meta.len() > LONGEST {
            return Err(io::Error::other("is not a plain file of one name"));
        }
        io::read_to_string(file)
    };
    match text() {
        Ok(text) => wrong_in_new(&text, trees),
        Err(e) => Some(e.to_string()),
    }
}

fn info(directory: &OwnedFd, left: &mut Vec<Left>) -> io::Result<()> {
    let info = open_directory(directory.as_fd(), Path::new("info"))?;
    for name in names(&info)? {
        let plain = kind_of(&info, &name)? == FileType::RegularFile && INFO.iter().any(|known| name == *known);
        if !plain {
            left.push(Left::unknown(&Path::new("info").join(name)));
        }
    }
    Ok(())
}

/// Looks through files and directories: all the way down there is nothing else, and nothing that leads elsewhere.
fn below(directory: &OwnedFd, path: &Path, left: &mut Vec<Left>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let kind = kind_of(directory, name)?;
    if NEVER.iter().any(|never| path == Path::new(never)) || path.components().count() > DEEPEST {
        left.push(Left::unknown(path));
        return Ok(());
    }
    match kind {
        // What is in it names remotes.
        FileType::RegularFile if path.starts_with("branches") => left.push(Left::unknown(path)),
        FileType::RegularFile => {}
        FileType::Directory if path == Path::new(REBASE) && runs_commands(directory.as_fd(), name) => {
            left.push(Left::new(path, COMMANDS));
        }
        FileType::Directory => {
            let Ok(inner) = open_directory(directory.as_fd(), Path::new(name)) else {
                left.push(Left::new(path, "cannot be looked into"));
                return Ok(());
            };
            for below_it in names(&inner)? {
                below(&inner, &path.join(below_it), left)?;
            }
        }
        _ => left.push(Left::new(path, "leads elsewhere")),
    }
    Ok(())
}
