//! Inspects a repository that a run created. The repository stays if its settings are harmless, its hooks are
//! samples, and no link points out of it. Files that are not part of git stay if the repository does not refer to
//! them. Also inspects the state of interrupted operations and the directories of linked working trees.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};

use super::data::{GIT, has};
use super::settings::fault_in_new_settings;
use super::{LONGEST, Violation, read_at};
use crate::nofollow::{names, open_directory};

/// The settings file, which stays if it names no programs.
const SETTINGS: &str = "config";
/// The directory of programs that git starts.
const HOOKS: &str = "hooks";
/// Files that point to objects elsewhere.
const ALTERNATES: [&str; 2] = ["objects/info/alternates", "objects/info/http-alternates"];
/// The longest rebase list that is read.
const LONGEST_LIST: u64 = 16 << 20;
/// The maximum depth of a search. Git does not create references with more components.
const DEEPEST: usize = 64;
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
        inspect_entry(&directory, Path::new(&name), trees, &mut violations)?;
    }
    Ok(violations)
}

/// Inspects an entry of a directory and what is below it. `path` is its path in the repository.
fn inspect_entry(at: &OwnedFd, path: &Path, trees: &[PathBuf], violations: &mut Vec<Violation>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let kind = kind_of(at, name)?;
    let is_state = path.to_str().is_some_and(|path| GIT.states.contains_key(path));
    let fault = match kind {
        _ if path == Path::new(SETTINGS) => fault_in_settings(at, trees),
        _ if path == Path::new(HOOKS) => fault_in_hooks(at),
        FileType::RegularFile | FileType::Directory if !is_known(path, kind) => {
            violations.push(Violation::unknown(path.to_owned()));
            None
        }
        FileType::RegularFile => None,
        FileType::Directory if is_state => fault_in_state(at.as_fd(), Path::new(name)),
        FileType::Directory => match open_directory(at.as_fd(), Path::new(name)) {
            Ok(inner) => {
                let mut below = names(&inner)?.into_iter();
                return below.try_for_each(|name| inspect_entry(&inner, &path.join(name), trees, violations));
            }
            Err(_) => Some("cannot be inspected".to_owned()),
        },
        _ => Some("is a special file, or a link out of the repository".to_owned()),
    };
    violations.extend(fault.map(|why| Violation::new(path.to_owned(), why)));
    Ok(())
}

/// True if git makes a file or directory with this path in a repository.
fn is_known(path: &Path, kind: FileType) -> bool {
    let is_file = kind == FileType::RegularFile;
    match path.iter().collect::<Vec<_>>()[..] {
        [name] if is_file => has(&GIT.entries, name) || has(&GIT.silent, name) || is_transient(name),
        [name] => has(&GIT.entries, name) || name == "info",
        [first, name] if first == "info" => is_file && has(&GIT.info, name),
        // Files in `branches` name remotes.
        [first, ..] if first == "branches" => !is_file,
        ref parts => parts.len() <= DEEPEST && !ALTERNATES.iter().any(|never| path == Path::new(never)),
    }
}

/// The fault of the settings. A settings file that has another name could be changed by it later.
fn fault_in_settings(directory: &OwnedFd, trees: &[PathBuf]) -> Option<String> {
    let stat = rustix::fs::statat(directory, SETTINGS, AtFlags::SYMLINK_NOFOLLOW);
    let text = read_at(directory, Path::new(SETTINGS), LONGEST);
    match text.and_then(|text| String::from_utf8(text).map_err(io::Error::other)) {
        Ok(text) if stat.is_ok_and(|stat| stat.st_nlink == 1) => fault_in_new_settings(&text, trees),
        Ok(_) => Some("is not a file of one name".to_owned()),
        Err(e) => Some(e.to_string()),
    }
}

/// The fault of the hooks. Git does not run files that end in `.sample`.
fn fault_in_hooks(directory: &OwnedFd) -> Option<String> {
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

/// True if a file exists only while git runs.
fn is_transient(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".lock") || name.as_bytes().starts_with(b"gc.")
}

/// The fault of a state directory: a file or a value that git does not write there, or a command to execute.
pub(super) fn fault_in_state(at: BorrowedFd<'_>, state: &Path) -> Option<String> {
    let known = GIT.states.get(state.file_name()?.to_str()?)?;
    let Ok(directory) = open_directory(at, state) else { return Some("is not a directory".to_owned()) };
    let Ok(names) = names(&directory) else { return Some("cannot be inspected".to_owned()) };
    names.iter().find_map(|name| {
        let text = name.to_str().unwrap_or_default();
        let is_patch = state.ends_with("rebase-apply") && text.bytes().all(|digit| digit.is_ascii_digit());
        if !has(known, name) && !is_patch || kind_of(&directory, name).ok() != Some(FileType::RegularFile) {
            return Some(format!("{} is not a file that git writes there", name.to_string_lossy()));
        }
        let is_value_of: fn(&str) -> bool = match text {
            "git-rebase-todo" | "todo" => {
                let list = read_at(&directory, Path::new(name), LONGEST_LIST);
                return list.map_or(true, |list| runs_commands(&list)).then(|| "names commands to execute".to_owned());
            }
            "strategy" => |value| has(&GIT.strategies, value),
            "strategy_opts" | "apply-opt" => is_options,
            "gpg_sign_opt" => |value| value.is_empty() || value.strip_prefix("-S").is_some_and(is_key),
            "opts" => are_opts,
            _ => return None,
        };
        let value = read_at(&directory, Path::new(name), LONGEST).ok().and_then(|text| String::from_utf8(text).ok());
        let is_fine = value.is_some_and(|value| is_value_of(value.trim()));
        (!is_fine).then(|| format!("{text} has a value that git does not write there"))
    })
}

/// True for options of a strategy of git, or of `git apply`, without a path.
fn is_options(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || b" -='\"%".contains(&c))
}

/// True for the name of a key.
fn is_key(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || b"@._".contains(&c))
}

/// True for options of a cherry-pick or revert that git writes.
fn are_opts(text: &str) -> bool {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "[options]").all(|line| {
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        match key {
            "strategy" => has(&GIT.strategies, value),
            "strategy-option" => is_options(value),
            "gpg-sign" => is_key(value),
            "mainline" => value.bytes().all(|c| c.is_ascii_digit()),
            "default-msg-cleanup" => value.bytes().all(|c| c.is_ascii_lowercase()),
            _ => ["true", "false"].contains(&value) && key.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'),
        }
    })
}

/// True if executing a list would run commands of it.
fn runs_commands(list: &[u8]) -> bool {
    let first = |line: &[u8]| line.trim_ascii_start().split(u8::is_ascii_whitespace).next().map(<[u8]>::to_vec);
    let mut commands = list.split(|byte| *byte == b'\n').filter_map(first);
    commands.any(|command| [&b"exec"[..], b"x"].contains(&command.as_slice()))
}

/// The fault of the directory of a linked working tree that was made during a run.
pub(super) fn fault_in_worktree(directory: &Path) -> Option<String> {
    let Ok(opened) = open_directory(CWD, directory) else { return Some("is not a directory".to_owned()) };
    let Ok(names) = names(&opened) else { return Some("cannot be inspected".to_owned()) };
    if let Some(odd) = names.iter().find(|name| !has(&GIT.worktree, name) && !is_transient(name)) {
        return Some(format!("{} is not a file that git writes there", odd.to_string_lossy()));
    }
    let text = |name| super::read_small(&directory.join(name)).map(|text| text.trim().to_owned());
    if text("commondir").as_deref() != Some("../..") || text("gitdir").is_none_or(|at| !Path::new(&at).is_absolute()) {
        return Some("its commondir or gitdir has a value that git does not write there".to_owned());
    }
    let mut states = names.iter().filter(|name| name.to_str().is_some_and(|name| GIT.states.contains_key(name)));
    states.find_map(|name| fault_in_state(opened.as_fd(), Path::new(name)))
}

fn kind_of(directory: &OwnedFd, name: &OsStr) -> io::Result<FileType> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
