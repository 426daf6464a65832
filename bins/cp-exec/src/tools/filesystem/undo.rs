//! Undoes the changes of a run: restores each path that is unchanged since the run to the content that was kept
//! before the run.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::wire::{ChangeKind, FileChange, FileKind, FileState, Receipt};
use cp_common::{Code, Error, Result, signals};
use cp_hosts::{After, Pending};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::json;

use super::{locked, present};
use crate::changes::{Store, state_of};
use crate::nofollow;
use crate::policy::{Policy, writable};
use crate::run::Engine;

/// The paths of a run that are restored, and those that are not.
pub(crate) struct Undo {
    store: Store,
    /// In path order, so that a directory comes before its content.
    pub steps: Vec<Step>,
    /// Paths that changed after the run.
    pub changed: Vec<PathBuf>,
    /// Paths that cannot be restored, with the reason.
    pub lost: Vec<(PathBuf, &'static str)>,
    _lock: Option<fs::File>,
}

/// One path with its current and its restored state.
pub(crate) struct Step {
    pub path: PathBuf,
    pub from: Option<FileState>,
    pub to: Option<FileState>,
}

impl Undo {
    /// Compares each path with its state after the run. Changes nothing yet. A preview takes no lock, because that
    /// would create a file.
    pub(crate) fn of(policy: &Policy, changes: Vec<FileChange>, is_preview: bool) -> Result<Self> {
        policy.check_base()?;
        let store = Store::of_home(&policy.cp_home);
        let lock = if is_preview { None } else { Some(locked(policy)?) };
        let mut undo = Self { store, steps: Vec::new(), changed: Vec::new(), lost: Vec::new(), _lock: lock };
        for change in changes {
            undo.add(policy, change)?;
        }
        undo.steps.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        undo.retain_full_directories();
        undo.retain_reachable();
        Ok(undo)
    }

    fn add(&mut self, policy: &Policy, change: FileChange) -> Result<()> {
        let path = path_of(&change);
        writable(policy, &path, &path)?;
        let mut now = state_of(&path).map_err(|e| Error::io("cannot be compared", e).in_file(&path))?;
        let FileChange { change: kind, before, after, .. } = change;
        if kind == ChangeKind::Mode && differs_in_hash_only(now.as_ref(), after.as_ref()) {
            now.clone_from(&after);
        }
        if now == before {
            return Ok(());
        }
        // The permissions of a directory are not compared: a restored one may not have them yet, and one with other
        // files keeps them.
        let is_directory = |state: &Option<FileState>| kind_of(state.as_ref()) == Some(FileKind::Directory);
        let is_left = now == after
            || (is_directory(&now) && (is_directory(&after) || is_directory(&before)))
            || (now.is_none()
                && kind_of(before.as_ref()) != kind_of(after.as_ref())
                && before.is_some()
                && after.is_some());
        let reason = match (&before, &after) {
            _ if !is_left => {
                self.changed.push(path);
                return Ok(());
            }
            (Some(before), _) => self.reason(kind, before),
            // Removed content must be content that the run wrote, so its hash must be known.
            (None, Some(FileState { kind: FileKind::File, sha256: None, .. })) => Some("its content was not recorded"),
            (None, _) => None,
        };
        match reason {
            Some(reason) => self.lost.push((path, reason)),
            None => self.steps.push(Step { path, from: now, to: before }),
        }
        Ok(())
    }

    /// The reason why a state cannot be restored.
    fn reason(&self, change: ChangeKind, before: &FileState) -> Option<&'static str> {
        match before.kind {
            _ if change == ChangeKind::Mode => None,
            FileKind::Directory => None,
            FileKind::Link => before.target.is_none().then_some("its target is not text"),
            FileKind::Other => Some("it was not a regular file"),
            FileKind::File => match hash_of(Some(before)) {
                None => Some("its content was not kept"),
                Some(hash) => self.store.load(&hash).is_err().then_some("its content is no longer kept"),
            },
        }
    }

    /// Keeps a directory of the run if it contains entries that are not removed.
    fn retain_full_directories(&mut self) {
        let mut removed: HashSet<PathBuf> =
            self.steps.iter().filter(|step| step.to.is_none()).map(|step| step.path.clone()).collect();
        for Step { path, from, to } in self.steps.iter().rev() {
            if kind_of(from.as_ref()) == Some(FileKind::Directory)
                && kind_of(to.as_ref()) != Some(FileKind::Directory)
                && !is_empty(path, &removed)
            {
                removed.remove(path);
                self.lost.push((path.clone(), "it holds other files"));
            }
        }
    }

    /// Skips paths whose directory was removed or replaced by another program.
    fn retain_reachable(&mut self) {
        let left_out: HashSet<PathBuf> = self.lost.iter().map(|(path, _)| path.clone()).collect();
        let mut made = HashSet::new();
        for step in std::mem::take(&mut self.steps) {
            let parent = step.path.parent().unwrap_or(&step.path);
            let is_there = || nofollow::open_with(parent, OFlags::PATH | OFlags::DIRECTORY).is_ok();
            if left_out.contains(&step.path) {
                continue;
            }
            if step.to.is_some() && !made.contains(parent) && !is_there() {
                self.lost.push((step.path, "the directory that it was in is not there"));
                continue;
            }
            if kind_of(step.to.as_ref()) == Some(FileKind::Directory) {
                made.insert(step.path.clone());
            }
            self.steps.push(step);
        }
    }

    /// Keeps the current contents of the paths, records the undo, and carries it out. `repositories` is recorded with it.
    pub(crate) fn carry_out(&self, engine: &mut Engine, intent: u64, repositories: &impl Serialize) -> Result<Receipt> {
        let _effect = signals::effect();
        let files = self.keep()?;
        let receipt = engine
            .journal
            .operation("undo", &json!({ "intent": intent, "files": files, "repositories": repositories }))?;
        // Directories stay accessible until everything in them is restored.
        for Step { path, from, .. } in &self.steps {
            if let Some(from) = from.as_ref().filter(|from| from.kind == FileKind::Directory) {
                set_permissions(path, mode_of(from)? | 0o700)?;
            }
        }
        for step in self.steps.iter().rev() {
            if step.from.is_some() && kind_of(step.from.as_ref()) != kind_of(step.to.as_ref()) {
                remove(step)?;
            }
        }
        for step in &self.steps {
            self.restore(step)?;
        }
        for Step { path, to, .. } in self.steps.iter().rev() {
            if let Some(to) = to.as_ref().filter(|to| to.kind == FileKind::Directory) {
                set_permissions(path, mode_of(to)?)?;
            }
        }
        Ok(receipt)
    }

    /// The changes of this undo. Contents that it removes are kept in the store.
    fn keep(&self) -> Result<Vec<FileChange>> {
        let failed = |e: std::io::Error| Error::io("cannot keep what the run wrote", e);
        let mut session = self.store.session().map_err(failed)?;
        let (mut changes, mut pins) = (Vec::new(), Vec::new());
        for Step { path, from, to } in &self.steps {
            if let Some(hash) = hash_of(from.as_ref()).filter(|hash| hash_of(to.as_ref()) != Some(*hash)) {
                let file =
                    nofollow::open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW).map_err(|e| failed(e.into()))?;
                if session.keep(&mut file.into()).map_err(failed)? != Some(hash) {
                    return Err(Error::new(Code::Conflict, format!("{} cannot be kept", path.display()))
                        .with("path", path.display().to_string())
                        .hint("the store is full, or the file changed meanwhile; try again"));
                }
            }
            pins.extend([from, to].into_iter().filter_map(|state| hash_of(state.as_ref())));
            changes.push(FileChange {
                path: path.display().to_string(),
                path_bytes: cp_common::wire::bytes_of(path),
                change: match (from, to) {
                    (None, _) => ChangeKind::Created,
                    (_, None) => ChangeKind::Removed,
                    (Some(from), Some(to))
                        if (&from.sha256, &from.target, from.kind) == (&to.sha256, &to.target, to.kind) =>
                    {
                        ChangeKind::Mode
                    }
                    _ => ChangeKind::Changed,
                },
                before: from.clone(),
                after: to.clone(),
            });
        }
        session.finish_with(&pins).map_err(failed)?;
        Ok(changes)
    }

    fn restore(&self, Step { path, from, to }: &Step) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("cannot be restored", e).in_file(path);
        let Some(to) = to else { return Ok(()) };
        let from = from.as_ref().filter(|from| from.kind == to.kind);
        match to.kind {
            FileKind::Directory if from.is_some() => Ok(()),
            FileKind::Directory => {
                nofollow::make_directory(path).map_err(failed)?;
                set_permissions(path, mode_of(to)? | 0o700)
            }
            FileKind::File | FileKind::Other if from.is_some_and(|from| from.sha256 == to.sha256) => {
                set_permissions(path, mode_of(to)?)
            }
            FileKind::Other => Ok(()),
            FileKind::File => {
                let bytes = hash_of(Some(to)).map(|hash| self.store.load(&hash)).transpose().map_err(failed)?;
                let after = bytes.map(|bytes| After::new(bytes, mode_of(to).ok()));
                Pending { path: path.clone(), mode: "restore", before: present(path)?, after }.carry_out()
            }
            FileKind::Link => {
                let (parent, name) = opened_parent(path)?;
                let temporary = nofollow::random_name().map_err(failed)?;
                let target = to.target.as_deref().unwrap_or_default();
                let placed = rustix::fs::symlinkat(target, &parent, temporary.as_str())
                    .and_then(|()| rustix::fs::renameat(&parent, temporary.as_str(), &parent, name));
                placed.map_err(|e| failed(e.into()))
            }
        }
    }
}

/// True if a directory contains only entries that are removed.
fn is_empty(directory: &Path, removed: &HashSet<PathBuf>) -> bool {
    fs::read_dir(directory)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| removed.contains(&entry.path()))))
}

fn path_of(change: &FileChange) -> PathBuf {
    use base64::Engine as _;
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = change.path_bytes.as_ref().and_then(|bytes| base64::prelude::BASE64_STANDARD.decode(bytes).ok());
    bytes.map_or_else(|| PathBuf::from(&change.path), |bytes| std::ffi::OsString::from_vec(bytes).into())
}

fn hash_of(state: Option<&FileState>) -> Option<Hash> {
    state.and_then(|state| Hash::parse(state.sha256.as_deref()?))
}

fn kind_of(state: Option<&FileState>) -> Option<FileKind> {
    state.map(|state| state.kind)
}

/// True if a file is unreadable, so that its hash is unknown, but otherwise unchanged since the run.
fn differs_in_hash_only(now: Option<&FileState>, after: Option<&FileState>) -> bool {
    let (Some(now), Some(after)) = (now, after) else { return false };
    now.sha256.is_none() && FileState { sha256: None, ..after.clone() } == *now
}

fn mode_of(state: &FileState) -> Result<u32> {
    u32::from_str_radix(&state.permissions, 8).map_err(|_| Error::new(Code::Integrity, "permissions are not octal"))
}

fn opened_parent(path: &Path) -> Result<(OwnedFd, &std::ffi::OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::validation("not a file name").with("rule", "path"));
    };
    let opened = nofollow::open_with(parent, OFlags::PATH | OFlags::DIRECTORY);
    opened.map(|opened| (opened, name)).map_err(|e| Error::io("cannot be opened", e).in_file(parent))
}

/// Sets the permissions of a file or directory without following links, even if it cannot be opened for reading.
fn set_permissions(path: &Path, mode: u32) -> Result<()> {
    let file = nofollow::open_with(path, OFlags::PATH | OFlags::NOFOLLOW).map_err(std::io::Error::from);
    let set = file.and_then(|file| {
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(place, fs::Permissions::from_mode(mode))
    });
    set.map_err(|e| Error::io("cannot set its permissions", e).in_file(path))
}

/// Removes an entry that the run created.
fn remove(Step { path, from, .. }: &Step) -> Result<()> {
    let flags = match kind_of(from.as_ref()) {
        Some(FileKind::File) => {
            return Pending { path: path.clone(), mode: "remove", before: present(path)?, after: None }.carry_out();
        }
        Some(FileKind::Directory) => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    let (parent, name) = opened_parent(path)?;
    match rustix::fs::unlinkat(&parent, name, flags) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(e) => Err(Error::io("cannot be removed", e).in_file(path)),
    }
}
