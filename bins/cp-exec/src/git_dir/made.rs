//! Inspects a repository that a run created. The repository stays if its settings are harmless, its hooks are
//! samples, no link points out of it, and it has only what git writes. Also inspects the state of interrupted
//! operations and the directories of linked working trees, and removes the lock files that killed processes left.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, OFlags};

use super::settings::fault_in_new_settings;
use super::{
    GIT, Repository, SPECIAL, SPECIAL_KINDS, UNKNOWN, Violation, binds, has, node_of, open_small, outermost,
    read_small, walked,
};
use crate::changes::Known;
use crate::nofollow::{self, Node};
use crate::sandbox::processes;

/// The longest list of an interrupted rebase that is read.
const LONGEST_LIST: u64 = 16 << 20;
/// The entries by which git recognizes a repository.
const ESSENTIAL: [&str; 3] = ["HEAD", "objects", "refs"];

/// True if a directory is a bare repository.
pub(crate) fn is_bare(directory: &Path) -> bool {
    directory.file_name() != Some(OsStr::new(".git"))
        && ESSENTIAL.iter().all(|part| directory.join(part).symlink_metadata().is_ok())
}

/// The parts of a bare repository that name programs or redirect git.
pub(crate) fn parts_of_bare(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let names = GIT.parts.keys().map(String::as_str).chain(["modules", "worktrees"]);
    names.map(|name| repository.join(name)).filter(|path| path.symlink_metadata().is_ok())
}

/// True if a path in a bare repository is git's own. Beside it there may be files that have nothing to do with it.
pub(crate) fn is_of_bare(repository: &Path, path: &Path) -> bool {
    let essential = ESSENTIAL.iter().map(|part| repository.join(part));
    essential.chain(parts_of_bare(repository)).any(|part| path.starts_with(part))
}

/// The parts of a repository that must not stay. `trees`: the repository may have been cloned from there.
pub(crate) fn inspect(repository: &Path, trees: &[PathBuf]) -> Vec<Violation> {
    let unknown = GIT.entries.iter().flat_map(|(inner, known)| unknown_in(&repository.join(inner), known));
    let mut found: Vec<Violation> = unknown.map(|path| Violation::new(path, UNKNOWN)).collect();
    for config in ["config", "config.worktree"].map(|name| repository.join(name)) {
        found.extend(fault_in_settings(&config, trees).map(|fault| Violation::new(config, fault)));
    }
    let hooks = repository.join("hooks");
    found.extend(fault_in_hooks(&hooks).map(|fault| Violation::new(hooks, fault)));
    found.extend(
        walked(repository, true, &Known::default()).paths_of(&SPECIAL_KINDS).map(|path| Violation::new(path, SPECIAL)),
    );
    found.extend(faulty_states(&[repository.to_owned()]));
    outermost(found)
}

fn names_in(directory: &Path) -> Option<Vec<OsString>> {
    let opened = nofollow::open_with(directory, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
    nofollow::names(&opened).ok()
}

/// The entries of a directory that git does not make there, or the directory if it cannot be read.
fn unknown_in(directory: &Path, known: &[String]) -> Vec<PathBuf> {
    let Some(names) = names_in(directory) else {
        return Vec::from_iter(directory.symlink_metadata().is_ok().then(|| directory.to_owned()));
    };
    let odd = names.iter().filter(|name| !has(known, name)).map(|name| directory.join(name));
    odd.filter(|path| !is_transient(path)).collect()
}

/// True for a file that exists only while git runs.
fn is_transient(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    (name.ends_with(b".lock") || name.starts_with(b"gc.")) && is_file(path)
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file())
}

/// The fault of the settings. A settings file that has another name could be changed by it later.
fn fault_in_settings(config: &Path, trees: &[PathBuf]) -> Option<String> {
    let meta = config.symlink_metadata().ok()?;
    match read_small(config).filter(|_| meta.nlink() == 1) {
        Some(text) => fault_in_new_settings(&text, trees),
        None => Some("is not a small file of one name".to_owned()),
    }
}

/// The fault of the hooks. Git does not run files that end in `.sample`.
fn fault_in_hooks(hooks: &Path) -> Option<String> {
    let is_sample = |path: &PathBuf| path.as_os_str().as_bytes().ends_with(b".sample") && is_file(path);
    let other = unknown_in(hooks, &[]).into_iter().find(|path| !is_sample(path))?;
    Some(format!("{} is not a sample", other.file_name().unwrap_or_default().to_string_lossy()))
}

/// The state directories with files or values that git does not write.
pub(super) fn faulty_states(directories: &[PathBuf]) -> impl Iterator<Item = Violation> {
    let states = directories.iter().flat_map(|directory| GIT.states.keys().map(|name| directory.join(name)));
    states.filter_map(|path| fault_in_state(&path).map(|fault| Violation::new(path, fault)))
}

/// The fault of a state directory: a file or a value that git does not write there, or a command to execute.
fn fault_in_state(state: &Path) -> Option<String> {
    let known = GIT.states.get(state.file_name()?.to_str()?)?;
    state.symlink_metadata().ok()?;
    let Some(names) = names_in(state) else { return Some("is not a directory that can be read".to_owned()) };
    names.iter().find_map(|name| {
        let (path, text) = (state.join(name), name.to_str().unwrap_or_default());
        let is_patch = state.ends_with("rebase-apply") && text.bytes().all(|digit| digit.is_ascii_digit());
        if !has(known, name) && !is_patch || !is_file(&path) {
            return Some(format!("{} is not a file that git writes there", name.to_string_lossy()));
        }
        let is_fine = !has(&GIT.judged, name)
            || open_small(CWD, &path, LONGEST_LIST)
                .is_ok_and(|(_, value)| is_value_of(text, String::from_utf8_lossy(&value).trim()));
        (!is_fine).then(|| format!("{text} has a value that git does not write there, or a command to execute"))
    })
}

/// True if git writes this value to a file of a state, or to an option in `opts`.
fn is_value_of(name: &str, value: &str) -> bool {
    let has_only = |text: &str, others: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c));
    match name {
        "git-rebase-todo" | "todo" => {
            !value.lines().any(|line| matches!(line.split_whitespace().next(), Some("exec" | "x")))
        }
        "strategy" => has(&GIT.strategies, value),
        "strategy_opts" | "strategy-option" | "apply-opt" => has_only(value, " -='\"%"),
        "gpg_sign_opt" => value.is_empty() || value.strip_prefix("-S").is_some_and(|key| has_only(key, "@._")),
        "gpg-sign" | "mainline" | "default-msg-cleanup" => has_only(value, "@._"),
        "opts" => {
            value.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "[options]").all(|line| {
                line.split_once('=').is_some_and(|(option, value)| is_value_of(option.trim(), value.trim()))
            })
        }
        _ => ["true", "false"].contains(&value) && has_only(name, "-"),
    }
}

/// The fault of the directory of a linked working tree that was made during a run.
pub(super) fn fault_in_worktree(directory: &Path) -> Option<String> {
    if let Some(odd) = unknown_in(directory, &GIT.worktree).first() {
        return Some(format!("{} is not a file that git writes there", odd.display()));
    }
    let text = |name| read_small(&directory.join(name)).map(|text| text.trim().to_owned());
    if text("commondir").as_deref() != Some("../..") || text("gitdir").is_none_or(|at| !Path::new(&at).is_absolute()) {
        return Some("its commondir or gitdir has a value that git does not write there".to_owned());
    }
    let state = faulty_states(&[directory.to_owned()]).next();
    state.map(|violation| violation.reason)
}

/// The time in which a program that has closed a lock file renames it.
const RENAMING: Duration = Duration::from_millis(50);

/// Removes new lock files that no process holds, because git refuses to work beside them. The processes of the run have
/// ended.
pub(super) fn remove_locks(repository: &Repository, new: Vec<PathBuf>) {
    let new: Vec<(PathBuf, Node)> =
        new.into_iter().filter_map(|path| node_of(&path).map(|node| (path, node))).collect();
    if new.is_empty() {
        return;
    }
    sleep(RENAMING);
    // While `git commit` waits for its editor, it keeps the file of the lock but not the descriptor.
    let Some(open) = open_files(&repository.path) else { return };
    for (path, _) in new.into_iter().filter(|(path, node)| !open.contains(node) && node_of(path) == Some(*node)) {
        // What cannot be removed is for the owner, whom git tells about it.
        let _ = nofollow::open_parent(&path)
            .and_then(|(directory, name)| rustix::fs::unlinkat(directory, name, AtFlags::empty()));
    }
}

/// The files that processes of this user have open. `None` if git works in a working tree of the repository.
fn open_files(repository: &Path) -> Option<BTreeSet<Node>> {
    let mut open = BTreeSet::new();
    for (pid, _) in processes() {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let is_git = fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("git"));
        if is_git && fs::read_link(process.join("cwd")).is_ok_and(|cwd| is_of(&cwd, repository)) {
            return None;
        }
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let files = descriptors.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        open.extend(files.map(|meta| (meta.dev(), meta.ino())));
    }
    Some(open)
}

/// True if a directory lies in a repository or one of its working trees.
fn is_of(directory: &Path, repository: &Path) -> bool {
    directory.ancestors().any(|above| {
        let git = above.join(".git");
        above == repository
            || git == repository
            || binds::common_directory(&git).is_some_and(|common| common.starts_with(repository))
    })
}
