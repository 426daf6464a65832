//! Undoes changes by runs and file tools: restores each path that nobody else changed to the state before the first of
//! them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::exec_result::{ChangeKind, FileChange, FileKind, FileState, FilesChanged};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, clock, signals};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::changes::{Store, state_of};
use crate::files::replace;
use crate::nofollow;
use crate::policy::{Policy, writable};
use crate::run::Engine;

/// Why a path that others changed is not restored.
pub(crate) const CHANGED: &str = "changed since";

/// The paths that are restored, and those that are not.
pub(crate) struct Undo {
    store: Store,
    /// From the current state of each path to the restored one, in path order.
    pub steps: Vec<FileChange>,
    pub left_out: Vec<LeftOut>,
}

/// The changes that an entry of the ledger lists.
pub(crate) struct Recorded {
    /// The time of the entry. The changes were made before it.
    pub time: String,
    pub files: Vec<FileChange>,
}

/// A path that was not restored.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeftOut {
    pub path: String,
    pub reason: String,
}

impl Undo {
    /// Compares each path with the states that the changes, the oldest first, gave it. Changes nothing yet. The caller
    /// holds the lock of file changes, unless this is a preview.
    pub(crate) fn of(policy: &Policy, mut recorded: Vec<Recorded>) -> Result<Self> {
        policy.check_base()?;
        let store = Store::of_home(&policy.cp_home);
        let mut undo = Self { store, steps: Vec::new(), left_out: Vec::new() };
        // In path order, so that a directory comes before its content.
        let mut paths: BTreeMap<PathBuf, (Vec<FileChange>, &str)> = BTreeMap::new();
        for Recorded { time, files } in &mut recorded {
            for change in files.drain(..) {
                let (changes, last) = paths.entry(change.path()).or_default();
                changes.push(change);
                *last = time;
            }
        }
        for (path, (changes, last)) in paths {
            undo.add(policy, &path, changes, last)?;
        }
        undo.retain_possible();
        Ok(undo)
    }

    /// Adds a path, whose `last` recorded change has this time.
    fn add(&mut self, policy: &Policy, path: &Path, mut changes: Vec<FileChange>, last: &str) -> Result<()> {
        writable(policy, path, path)?;
        let mut now = state_of(path).map_err(|e| Error::io("cannot be compared", e).in_file(path))?;
        if let Some(now) = now.as_ref().filter(|_| !changes.iter().any(is_of_permissions)) {
            // Permissions that someone else set stay.
            let states = changes.iter_mut().flat_map(|change| [&mut change.before, &mut change.after]).flatten();
            let states = states.filter(|state| state.kind == now.kind);
            states.for_each(|state| state.permissions.clone_from(&now.permissions));
        }
        let is_mode = changes.iter().all(|change| change.change == ChangeKind::Mode);
        let (before, after) = (changes[0].before.clone(), changes.last().and_then(|change| change.after.clone()));
        if let (true, Some(now), Some(after)) = (is_mode, &mut now, &after)
            && now.sha256.is_none()
        {
            // It cannot be read now, and the run did not change its content.
            now.sha256.clone_from(&after.sha256);
        }
        if now == before {
            return Ok(());
        }
        // A change that was recorded may not have been made, or may have been undone: each state of the path is known.
        let mut known = vec![before.clone()];
        let mut is_continued = true;
        for change in changes {
            is_continued &= is_known(&known, change.before.as_ref());
            known.push(change.after);
        }
        // An undo that was killed had removed it, to make one of the other kind.
        let is_between = now.is_none()
            && before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| before.kind != after.kind);
        let reason = match (&before, &now) {
            _ if !is_continued || !is_known(&known, now.as_ref()) && !is_between => Some(CHANGED),
            // Removed content must be content that the run wrote, so its hash must be known.
            (None, Some(FileState { kind: FileKind::File, sha256: None, .. })) => Some("its content was not recorded"),
            (Some(before), now) if !is_mode => {
                self.reason(before).or_else(|| reason_without_hash(path, now.as_ref()?, last))
            }
            _ => None,
        };
        match reason {
            Some(reason) => self.leave_out(path, reason),
            None => self.steps.push(FileChange::new(path, now, before)),
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, reason: &str) {
        self.left_out.push(LeftOut { path: path.display().to_string(), reason: reason.to_owned() });
    }

    /// The reason why a state cannot be restored.
    fn reason(&self, before: &FileState) -> Option<&'static str> {
        match before.kind {
            FileKind::Directory => None,
            FileKind::Link => before.target.is_none().then_some("its target is not text"),
            FileKind::Other => Some("it was not a regular file"),
            FileKind::File => match before.hash() {
                None => Some("its content was not kept"),
                Some(hash) => self.store.load(&hash).is_err().then_some("its content is no longer kept"),
            },
        }
    }

    /// Leaves out directories of the run that hold entries which are not removed, and paths whose directory was
    /// removed or replaced by another program.
    fn retain_possible(&mut self) {
        let mut removed: HashSet<PathBuf> =
            self.steps.iter().filter(|step| step.after.is_none()).map(FileChange::path).collect();
        let mut full = HashSet::new();
        for step in self.steps.iter().rev() {
            let path = step.path();
            let is_directory = step.kinds().map(|kind| kind == Some(FileKind::Directory));
            if is_directory == [true, false] && !is_empty(&path, &removed) {
                removed.remove(&path);
                full.insert(path);
            }
        }
        let mut made = HashSet::new();
        for step in std::mem::take(&mut self.steps) {
            let path = step.path();
            let is_there =
                || path.parent().is_some_and(|parent| made.contains(parent)) || nofollow::open_parent(&path).is_ok();
            if full.contains(&path) {
                self.leave_out(&path, "it holds other files");
            } else if step.after.is_some() && !is_there() {
                self.leave_out(&path, "the directory that it was in is not there");
            } else {
                if step.kinds()[1] == Some(FileKind::Directory) {
                    made.insert(path);
                }
                self.steps.push(step);
            }
        }
    }

    /// Keeps the current contents of the paths, records the undo with `more`, and carries it out.
    pub(crate) fn carry_out(mut self, engine: &mut Engine, more: &impl Serialize) -> Result<Receipt> {
        let _effect = signals::effect();
        self.keep()?;
        let entry = engine.journal.entry("exec.changes").with("operation", "undo").data(more);
        let receipt = engine.journal.synced(entry.data(&FilesChanged::of(self.steps.clone())))?;
        self.restore_all().map(|()| receipt)
    }

    pub(super) fn restore_all(&self) -> Result<()> {
        let directory = |state: &Option<FileState>| state.clone().filter(|state| state.kind == FileKind::Directory);
        // Directories stay accessible until everything in them is restored.
        for step in &self.steps {
            if let Some(before) = directory(&step.before) {
                set_permissions(&step.path(), before.mode()? | 0o700)?;
            }
            step.path().parent().into_iter().for_each(nofollow::remove_abandoned);
        }
        for step in self.steps.iter().rev() {
            let [before, after] = step.kinds();
            if let Some(kind) = before.filter(|_| before != after) {
                remove(&step.path(), kind)?;
            }
        }
        self.steps.iter().try_for_each(|step| self.restore(&step.path(), step))?;
        for step in self.steps.iter().rev() {
            if let Some(after) = directory(&step.after) {
                set_permissions(&step.path(), after.mode()?)?;
            }
        }
        Ok(())
    }

    /// Keeps the contents that this undo removes in the store.
    fn keep(&mut self) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("cannot keep what the run wrote", e);
        let session = self.store.session().map_err(failed)?;
        let mut kept = Vec::new();
        for step in &mut self.steps {
            let path = step.path();
            let removed = step.before.as_mut().filter(|from| from.kind == FileKind::File);
            if let Some(from) = removed.filter(|_| step.change != ChangeKind::Mode) {
                let mut file = nofollow::open_file(&path).map_err(|e| failed(e.into()))?;
                let hash = session.keep(&mut file).map_err(failed)?;
                if hash.is_none() || from.sha256.is_some() && from.hash() != hash {
                    return Err(Error::new(Code::Conflict, format!("{} cannot be kept", step.path))
                        .with("path", step.path.as_str())
                        .hint("the store is full, or the file changed meanwhile; try again"));
                }
                from.sha256 = hash.map(|hash| hash.to_string());
            }
            kept.extend(step.hashes().into_iter().flatten());
        }
        session.finish(&kept).map_err(failed)
    }

    fn restore(&self, path: &Path, step: &FileChange) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("cannot be restored", e).in_file(path);
        let Some(to) = &step.after else { return Ok(()) };
        let from = step.before.as_ref().filter(|from| from.kind == to.kind);
        match to.kind {
            FileKind::Directory if from.is_some() => Ok(()),
            FileKind::Directory => {
                nofollow::make_directory(path).map_err(failed)?;
                set_permissions(path, to.mode()? | 0o700)
            }
            FileKind::File | FileKind::Other if from.is_some_and(|from| from.sha256 == to.sha256) => {
                set_permissions(path, to.mode()?)
            }
            FileKind::Other => Ok(()),
            FileKind::File => {
                let Some(hash) = to.hash() else { return Ok(()) };
                let replaced = nofollow::open_parent(path)
                    .and_then(|(parent, name)| rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW))
                    .ok();
                replace(path, replaced.as_ref(), Some((&self.store.load(&hash)?, to.mode()?))).map_err(failed)
            }
            FileKind::Link => {
                let temporary = nofollow::random_name().map_err(failed)?;
                let target = to.target.as_deref().unwrap_or_default();
                let placed = nofollow::open_parent(path).and_then(|(parent, name)| {
                    rustix::fs::symlinkat(target, &parent, temporary.as_str())?;
                    rustix::fs::renameat(&parent, temporary.as_str(), &parent, name)
                });
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

/// True if a change affects permissions: of a path that it creates, removes or replaces, or of a file.
fn is_of_permissions(change: &FileChange) -> bool {
    let of = |state: &Option<FileState>| state.as_ref().map(|state| (state.kind, state.permissions.clone()));
    change.before.is_none() || of(&change.before) != of(&change.after)
}

/// True if a path had this state. The permissions of a directory are not compared: a restored one may not have them
/// yet, and one with other files keeps them.
fn is_known(known: &[Option<FileState>], state: Option<&FileState>) -> bool {
    let is_directory = |state: Option<&FileState>| state.is_some_and(|state| state.kind == FileKind::Directory);
    known.iter().any(|known| known.as_ref() == state || is_directory(known.as_ref()) && is_directory(state))
}

/// The reason why a file without a known hash, because it is too large, cannot be replaced. A change after the entry
/// that lists the last one of the run is one by others.
fn reason_without_hash(path: &Path, now: &FileState, last: &str) -> Option<&'static str> {
    if now.kind != FileKind::File || now.sha256.is_some() {
        return None;
    }
    let Ok(meta) = nofollow::open_file(path).and_then(|file| rustix::fs::fstat(&file)) else {
        return Some("it cannot be read");
    };
    let second = clock::from_unix_seconds(u64::try_from(meta.st_ctime).unwrap_or(0));
    let changed = second.replace(".000000Z", &format!(".{:06}Z", meta.st_ctime_nsec / 1000));
    (changed.as_str() > last).then_some(CHANGED)
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
fn remove(path: &Path, kind: FileKind) -> Result<()> {
    let flags = if kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match nofollow::open_parent(path).and_then(|(parent, name)| rustix::fs::unlinkat(&parent, name, flags)) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(e) => Err(Error::io("cannot be removed", e).in_file(path)),
    }
}
