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
const ENTRIES: &str = "objects shallow logs rr-cache rebase-merge rebase-apply sequencer COMMIT_EDITMSG TAG_EDITMSG \
    MERGE_MSG MERGE_MODE MERGE_RR SQUASH_MSG AUTO_MERGE ORIG_HEAD FETCH_HEAD MERGE_HEAD \
    CHERRY_PICK_HEAD REVERT_HEAD refs packed-refs HEAD index branches";

/// The settings file, which stays if it names no programs.
const SETTINGS: &str = "config";
/// The directory of programs that git starts.
const HOOKS: &str = "hooks";
/// Files that point to objects elsewhere.
const ALTERNATES: [&str; 2] = ["objects/info/alternates", "objects/info/http-alternates"];
const COMMANDS: &str = "names commands to execute";
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
        } else if has_word(ENTRIES, &name) {
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
        FileType::Directory if STATES.iter().any(|(state, _)| path == Path::new(state)) => {
            let fault = fault_in_state(directory.as_fd(), Path::new(name));
            violations.extend(fault.map(|why| Violation::new(path.to_owned(), why)));
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

/// True if a name is in a list of words.
fn has_word(words: &str, name: &OsStr) -> bool {
    words.split(' ').any(|word| name == word)
}

/// True if a file exists only while git runs.
fn is_transient(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".lock") || name.as_bytes().starts_with(b"gc.")
}

/// The strategies of git. Another word is a program `git-merge-WORD`.
const STRATEGIES: [&str; 6] = ["ort", "recursive", "resolve", "octopus", "ours", "subtree"];

/// The directories in which git keeps the state of an interrupted rebase, am, cherry-pick or revert, and the files that
/// git writes in them.
pub(super) const STATES: [(&str, &str); 3] = [
    (
        "rebase-merge",
        "allow_rerere_autoupdate amend author-script autostash cdate_is_adate current-fixups done \
        drop_redundant_commits end git-rebase-todo git-rebase-todo.backup gpg_sign_opt head-name \
        ignore_date interactive keep_redundant_commits message message-fixup message-squash msgnum \
        no-reschedule-failed-exec onto orig-head patch quiet refs-to-delete reschedule-failed-exec \
        rewritten-list rewritten-pending signoff squash-onto stopped-sha strategy strategy_opts \
        update-refs verbose",
    ),
    (
        "rebase-apply",
        "abort-safety apply-opt applying author-script autostash dirtyindex final-commit head-name \
        info keep last messageid msg msg-clean next no_inbody_headers onto orig-head original-commit \
        patch quiet patch-merge-index quoted-cr rebasing rewritten scissors sign threeway utf8",
    ),
    ("sequencer", "abort-safety head opts todo"),
];

/// The fault of a state directory: a file or a value that git does not write there, or a command to execute.
pub(super) fn fault_in_state(at: BorrowedFd<'_>, state: &Path) -> Option<String> {
    let (_, known) = STATES.iter().find(|(name, _)| state.ends_with(name))?;
    let Ok(directory) = open_directory(at, state) else { return Some("is not a directory".to_owned()) };
    let Ok(names) = names(&directory) else { return Some("cannot be inspected".to_owned()) };
    names.iter().find_map(|name| {
        let text = name.to_str().unwrap_or_default();
        let is_patch = state.ends_with("rebase-apply") && text.bytes().all(|digit| digit.is_ascii_digit());
        if !has_word(known, name) && !is_patch || kind_of(&directory, name).ok() != Some(FileType::RegularFile) {
            return Some(format!("{} is not a file that git writes there", name.to_string_lossy()));
        }
        let is_fine = match text {
            "git-rebase-todo" | "todo" => {
                return runs_commands(directory.as_fd(), Path::new(name)).then(|| COMMANDS.into());
            }
            "strategy" => is_text(&directory, name, |text| STRATEGIES.contains(&text)),
            "strategy_opts" | "apply-opt" => is_text(&directory, name, is_options),
            "gpg_sign_opt" => is_text(&directory, name, is_signature),
            "opts" => is_text(&directory, name, are_opts),
            _ => true,
        };
        (!is_fine).then(|| format!("{text} has a value that git does not write there"))
    })
}

/// True if a small file has a text for which this holds.
fn is_text(directory: &OwnedFd, name: &OsStr, holds: impl Fn(&str) -> bool) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return false };
    let mut text = String::new();
    let read = File::from(file).take(LONGEST).read_to_string(&mut text);
    read.is_ok() && holds(text.trim())
}

/// True for options of a strategy of git, or of `git apply`, without a path.
fn is_options(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || b" -='\"%".contains(&c))
}

fn is_signature(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix("-S")
            .is_some_and(|key| key.bytes().all(|c| c.is_ascii_alphanumeric() || b"@._".contains(&c)))
}

/// True for options of a cherry-pick or revert that git writes.
fn are_opts(text: &str) -> bool {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "[options]").all(|line| {
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        match key {
            "strategy" => STRATEGIES.contains(&value),
            "strategy-option" => is_options(value),
            "gpg-sign" => value.bytes().all(|c| c.is_ascii_alphanumeric() || b"@._".contains(&c)),
            "mainline" => value.bytes().all(|c| c.is_ascii_digit()),
            "default-msg-cleanup" => value.bytes().all(|c| c.is_ascii_lowercase()),
            _ => ["true", "false"].contains(&value) && key.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'),
        }
    })
}

/// Entries that git creates in the directory of a linked working tree.
const OF_WORKTREE: &str = "HEAD ORIG_HEAD FETCH_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD AUTO_MERGE COMMIT_EDITMSG \
    MERGE_MSG MERGE_MODE MERGE_RR SQUASH_MSG commondir gitdir index locked logs refs rebase-merge \
    sequencer";

/// The fault of the directory of a linked working tree that was made during a run.
pub(super) fn fault_in_worktree(directory: &Path) -> Option<String> {
    let Ok(opened) = open_directory(CWD, directory) else { return Some("is not a directory".to_owned()) };
    let Ok(names) = names(&opened) else { return Some("cannot be inspected".to_owned()) };
    let odd = names.iter().find(|name| !has_word(OF_WORKTREE, name) && !is_transient(name));
    if let Some(odd) = odd {
        return Some(format!("{} is not a file that git writes there", odd.to_string_lossy()));
    }
    let text = |name| super::read_small(&directory.join(name)).map(|text| text.trim().to_owned());
    if text("commondir").as_deref() != Some("../..") || text("gitdir").is_none_or(|at| !Path::new(&at).is_absolute()) {
        return Some("its commondir or gitdir has a value that git does not write there".to_owned());
    }
    STATES
        .iter()
        .filter(|(name, _)| directory.join(name).symlink_metadata().is_ok())
        .find_map(|(name, _)| fault_in_state(opened.as_fd(), Path::new(name)))
}

/// True if executing a list would run commands of it. An unreadable list counts as one with commands.
fn runs_commands(at: BorrowedFd<'_>, list: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(at, list, flags, Mode::empty()) else { return true };
    let file = File::from(file);
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
