//! Undoes changes by runs and file tools: restores each path that nobody else changed to the state before the first of
//! them.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::exec_result::{ChangeKind, FileChange, FileKind, FileState};
use crate::files::{After, Pending};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::{locked, present};
use crate::changes::{Store, changed, state_of};
use crate::nofollow;
use crate::policy::{Policy, writable};
use crate::run::Engine;

/// Why a path that others changed is not restored.
pub(crate) const CHANGED: &str = "changed since";

/// The paths that are restored, and those that are not.
pub(crate) struct Undo {
    store: Store,
    /// In path order.
    pub steps: Vec<Step>,
    /// Paths that are not restored, with the reason.
    pub left_out: Vec<(PathBuf, &'static str)>,
    /// Held until the end; a preview has none.
    lock: Option<fs::File>,
}

/// One path with its current and its restored state.
pub(crate) struct Step {
    pub path: PathBuf,
    pub from: Option<FileState>,
    pub to: Option<FileState>,
}

impl Undo {
    /// Compares each path with the states that the changes, the oldest first, gave it. Changes nothing yet. A preview
    /// takes no lock, because that would create a file.
    pub(crate) fn of(policy: &Policy, changes: Vec<FileChange>, is_preview: bool) -> Result<Self> {
        policy.check_base()?;
        let store = Store::of_home(&policy.cp_home);
        let lock = if is_preview { None } else { Some(locked(policy)?) };
        let mut undo = Self { store, steps: Vec::new(), left_out: Vec::new(), lock };
        // In path order, so that a directory comes before its content.
        let mut paths: BTreeMap<OsString, Vec<FileChange>> = BTreeMap::new();
        for change in changes {
            paths.entry(path_of(&change)).or_default().push(change);
        }
        for (path, changes) in paths {
            undo.add(policy, path.into(), changes)?;
        }
        undo.retain_full_directories();
        undo.retain_reachable();
        Ok(undo)
    }

    fn add(&mut self, policy: &Policy, path: PathBuf, mut changes: Vec<FileChange>) -> Result<()> {
        writable(policy, &path, &path)?;
        if !self.is_preview() {
            crate::files::remove_abandoned(&path);
        }
        let mut now = state_of(&path).map_err(|e| Error::io("cannot be compared", e).in_file(&path))?;
        if !changes.iter().any(is_of_permissions) {
            // Permissions that someone else set stay.
            let states = changes.iter_mut().flat_map(|change| [&mut change.before, &mut change.after]).flatten();
            states.for_each(|state| state.permissions = permissions_of(now.as_ref(), state));
        }
        let is_mode = changes.iter().all(|change| change.change == ChangeKind::Mode);
        let after = changes.last().and_then(|change| change.after.clone());
        if is_mode && differs_in_hash_only(now.as_ref(), after.as_ref()) {
            now.clone_from(&after);
        }
        let before = changes[0].before.clone();
        if now == before {
            return Ok(());
        }
        // A change that was recorded may not have been made, or may have been undone: each state of the path is known.
        let mut known = vec![before.clone()];
        let mut is_left = true;
        for change in changes {
            is_left &= is_known(&known, change.before.as_ref());
            known.push(change.after);
        }
        let is_between =
            now.is_none() && before.is_some() && after.is_some() && kind_of(before.as_ref()) != kind_of(after.as_ref());
        let reason = match (&before, &now) {
            _ if !is_left || !is_known(&known, now.as_ref()) && !is_between => Some(CHANGED),
            (Some(before), _) if !is_mode => self.reason(before),
            // Removed content must be content that the run wrote, so its hash must be known.
            (None, Some(FileState { kind: FileKind::File, sha256: None, .. })) => Some("its content was not recorded"),
            _ => None,
        };
        match reason {
            Some(reason) => self.left_out.push((path, reason)),
            None => self.steps.push(Step { path, from: now, to: before }),
        }
        Ok(())
    }

    fn is_preview(&self) -> bool {
        self.lock.is_none()
    }

    /// The reason why a state cannot be restored.
    fn reason(&self, before: &FileState) -> Option<&'static str> {
        match before.kind {
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
                self.left_out.push((path.clone(), "it holds other files"));
            }
        }
    }

    /// Skips paths whose directory was removed or replaced by another program.
    fn retain_reachable(&mut self) {
        let left_out: HashSet<PathBuf> = self.left_out.iter().map(|(path, _)| path.clone()).collect();
        let mut made = HashSet::new();
        for step in std::mem::take(&mut self.steps) {
            let parent = step.path.parent().unwrap_or(&step.path);
            let is_there = || nofollow::open_with(parent, OFlags::PATH | OFlags::DIRECTORY).is_ok();
            if left_out.contains(&step.path) {
                continue;
            }
            if step.to.is_some() && !made.contains(parent) && !is_there() {
                self.left_out.push((step.path, "the directory that it was in is not there"));
                continue;
            }
            if kind_of(step.to.as_ref()) == Some(FileKind::Directory) {
                made.insert(step.path.clone());
            }
            self.steps.push(step);
        }
    }

    /// Keeps the current contents of the paths, records the undo with `more`, and carries it out.
    pub(crate) fn carry_out(&self, engine: &mut Engine, more: &impl Serialize) -> Result<Receipt> {
        let _effect = signals::effect();
        let files = self.keep()?;
        let receipt = engine.journal.changes("undo", files, more)?;
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
            changes.push(changed(path, from.clone(), to.clone()));
        }
        session.finish(&pins).map_err(failed)?;
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
                let bytes = hash_of(Some(to)).map(|hash| self.store.load(&hash)).transpose()?;
                let after = bytes.map(|bytes| After::new(bytes, mode_of(to).ok()));
                Pending { path: path.clone(), before: present(path)?, after }.carry_out()
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

fn path_of(change: &FileChange) -> OsString {
    use base64::Engine as _;
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = change.path_bytes.as_ref().and_then(|bytes| base64::prelude::BASE64_STANDARD.decode(bytes).ok());
    bytes.map_or_else(|| OsString::from(&change.path), OsString::from_vec)
}

/// True if a change affects permissions: of a path that it creates, removes or replaces, or of a file.
fn is_of_permissions(change: &FileChange) -> bool {
    let of = |state: &Option<FileState>| state.as_ref().map(|state| (state.kind, state.permissions.clone()));
    change.before.is_none() || of(&change.before) != of(&change.after)
}

/// The current permissions of a path, if it has this kind, else those of the state.
fn permissions_of(now: Option<&FileState>, state: &FileState) -> String {
    now.filter(|now| now.kind == state.kind).unwrap_or(state).permissions.clone()
}

/// True if a path had this state. The permissions of a directory are not compared: a restored one may not have them
/// yet, and one with other files keeps them.
fn is_known(known: &[Option<FileState>], state: Option<&FileState>) -> bool {
    let is_directory = |state: Option<&FileState>| kind_of(state) == Some(FileKind::Directory);
    known.iter().any(|known| known.as_ref() == state || is_directory(known.as_ref()) && is_directory(state))
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
            return Pending { path: path.clone(), before: present(path)?, after: None }.carry_out();
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
