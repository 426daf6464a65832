//! Inspects a repository that a run created. The repository stays if its settings are harmless, its hooks are
//! samples, and no link points out of it. Files that are not part of git stay if the repository does not refer to
//! them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};

use super::settings::fault_in_new_settings;
use super::{LONGEST, Violation};
use crate::nofollow::{names, open_directory};

/// Entries that git creates in a repository, besides settings and hooks.
const ENTRIES: [&str; 24] = [
    "objects",
    "shallow",
    "logs",
    "rr-cache",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "SQUASH_MSG",
    "AUTO_MERGE",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "refs",
    "packed-refs",
    "HEAD",
    "index",
    "branches",
];

/// The settings file, which stays if it names no programs.
const SETTINGS: &str = "config";
/// The directory of programs that git starts.
const HOOKS: &str = "hooks";
/// Files that point to objects elsewhere.
const ALTERNATES: [&str; 2] = ["objects/info/alternates", "objects/info/http-alternates"];
/// A rebase in progress, and the reason why it may have to be removed.
pub(super) const REBASE: &str = "rebase-merge";
pub(super) const COMMANDS: &str = "names commands to execute";
/// The longest rebase list that is read.
const LONGEST_LIST: u64 = 16 << 20;
/// The maximum depth of a search. Git does not create references with more components.
const DEEPEST: usize = 64;

/// Files that git creates and does not read.
const SILENT: [&str; 2] = ["description", "gitweb.owner"];
/// Files that git creates in `info`. `attributes` is not among them, because it can name filters.
const INFO: [&str; 3] = ["exclude", "refs", "sparse-checkout"];
/// The entries by which git recognizes a repository.
const ESSENTIAL: [&str; 3] = ["HEAD", "objects", "refs"];

/// True if a directory is a bare repository.
pub(crate) fn is_bare(directory: &Path) -> bool {
    directory.file_name() != Some(OsStr::new(".git"))
        && ESSENTIAL.iter().all(|part| directory.join(part).symlink_metadata().is_ok())
}

/// True if this part of a repository can be harmless.
pub(crate) fn may_be_harmless(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == SETTINGS || name == HOOKS)
}

/// True if a path in a repository is git's own, even if other files lie beside it.
pub(crate) fn is_of_git(path: &Path) -> bool {
    ESSENTIAL.iter().any(|part| path.starts_with(part))
}

/// The parts of a repository that must not stay.
pub(crate) fn inspect(repository: &Path, trees: &[PathBuf]) -> io::Result<Vec<Violation>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(CWD, repository, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let mut violations = Vec::new();
    for name in names(&directory)? {
        let path = Path::new(&name);
        let kind = kind_of(&directory, &name)?;
        if name == SETTINGS {
            violations.extend(settings(&directory, trees).map(|why| Violation::new(path.to_owned(), why)));
        } else if name == HOOKS {
            violations.extend(hooks(&directory).map(|why| Violation::new(path.to_owned(), why)));
        } else if name == "info" && kind == FileType::Directory {
            info(&directory, &mut violations)?;
        } else if ENTRIES.iter().any(|known| name == *known) {
            below(&directory, path, &mut violations)?;
        } else if kind != FileType::RegularFile || !(is_transient(&name) || SILENT.iter().any(|silent| name == *silent))
        {
            violations.push(Violation::unknown(path.to_owned()));
        }
    }
    Ok(violations)
}

/// The fault of the settings. A settings file that has another name could be changed by it later.
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
        Ok(text) => fault_in_new_settings(&text, trees),
        Err(e) => Some(e.to_string()),
    }
}

fn info(directory: &OwnedFd, violations: &mut Vec<Violation>) -> io::Result<()> {
    let info = open_directory(directory.as_fd(), Path::new("info"))?;
    for name in names(&info)? {
        let plain = kind_of(&info, &name)? == FileType::RegularFile && INFO.iter().any(|known| name == *known);
        if !plain {
            violations.push(Violation::unknown(Path::new("info").join(name)));
        }
    }
    Ok(())
}

/// Searches files and directories. Other kinds of entries, and links that point out of the repository, must not stay.
fn below(directory: &OwnedFd, path: &Path, violations: &mut Vec<Violation>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let kind = kind_of(directory, name)?;
    if ALTERNATES.iter().any(|never| path == Path::new(never)) || path.components().count() > DEEPEST {
        violations.push(Violation::unknown(path.to_owned()));
        return Ok(());
    }
    match kind {
        // Files in `branches` name remotes.
        FileType::RegularFile if path.starts_with("branches") => violations.push(Violation::unknown(path.to_owned())),
        FileType::RegularFile => {}
        FileType::Directory if path == Path::new(REBASE) && runs_commands(directory.as_fd(), Path::new(name)) => {
            violations.push(Violation::new(path.to_owned(), COMMANDS));
        }
        FileType::Directory => {
            let Ok(inner) = open_directory(directory.as_fd(), Path::new(name)) else {
                violations.push(Violation::new(path.to_owned(), "cannot be inspected"));
                return Ok(());
            };
            for below_it in names(&inner)? {
                below(&inner, &path.join(below_it), violations)?;
            }
        }
        _ => violations.push(Violation::new(path.to_owned(), "is a special file, or a link out of the repository")),
    }
    Ok(())
}

/// True if a file exists only while git runs.
fn is_transient(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".lock") || name.as_bytes().starts_with(b"gc.")
}

/// True if continuing a rebase would run commands of its list. An unreadable list counts as one with commands.
pub(super) fn runs_commands(at: BorrowedFd<'_>, rebase: &Path) -> bool {
    let list = rebase.join("git-rebase-todo");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(at, &list, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return false,
        Err(_) => return true,
    };
    let mut text = Vec::new();
    let read = file.take(LONGEST_LIST).read_to_end(&mut text);
    let first = |line: &[u8]| line.trim_ascii_start().split(u8::is_ascii_whitespace).next().map(<[u8]>::to_vec);
    let commands = text.split(|byte| *byte == b'\n').filter_map(first);
    read.is_err()
        || text.len() as u64 == LONGEST_LIST
        || commands.into_iter().any(|command| [&b"exec"[..], b"x"].contains(&command.as_slice()))
}

fn kind_of(directory: &OwnedFd, name: &OsStr) -> io::Result<FileType> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// The fault of the hooks. Git does not run files that end in `.sample`.
fn hooks(directory: &OwnedFd) -> Option<String> {
    let sample = |hooks: &OwnedFd, name: &OsStr| {
        name.as_bytes().ends_with(b".sample") && kind_of(hooks, name).is_ok_and(|kind| kind == FileType::RegularFile)
    };
    let found = open_directory(directory.as_fd(), Path::new(HOOKS)).and_then(|hooks| Ok((names(&hooks)?, hooks)));
    match found {
        Ok((names, hooks)) => {
            let other = names.iter().find(|name| !sample(&hooks, name))?;
            Some(format!("{} is not a sample", other.to_string_lossy()))
        }
        Err(e) => Some(e.to_string()),
    }
}
