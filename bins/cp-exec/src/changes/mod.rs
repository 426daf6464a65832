//! File changes of runs and of file tools: contents are kept before a change, the trees of a run are compared after it,
//! and `cp-exec undo` restores files.
//!
//! - [`Store`] keeps the contents of regular files under the home, by their SHA-256, for runs, file tools and the
//!   history of repositories.
//! - [`Baseline`] walks the writable trees before a run and keeps the contents of their files.
//! - [`Changes`] lists the files that the run created, changed or removed.

mod store;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::exec_result::{ChangeKind, FileChange, FileKind, FileState, FilesChanged};
use cp_ledger::format::line::Hash;
use serde::Serialize;

pub(crate) use self::store::Stamp;
pub(crate) use self::store::Store;
use self::store::{LARGEST, LARGEST_OF_GIT, Session};
use self::tree::{Entry, hash_of, open};
pub(crate) use self::tree::{Tree, state_of};
use crate::nofollow::Node;

/// The most changes that are recorded with hashes, and the most that a result shows.
const RECORDED: usize = 10_000;
const SHOWN: usize = 1000;
/// The most paths that are listed because their contents are not kept.
const NAMED: usize = 20;

/// The writable trees before a run.
pub(crate) struct Baseline<'a> {
    store: &'a Store,
    trees: Vec<PathBuf>,
    exclude: &'a dyn Fn(&Path) -> bool,
    walk_limit: u64,
    tree: Tree,
    kept: KeptContents<'a>,
}

/// The contents that are kept for a run.
#[derive(Default)]
struct KeptContents<'a> {
    hashes: HashMap<Stamp, Hash>,
    /// Device and inode of entries that are not kept, such as ignored directories and large files.
    missing: HashSet<Node>,
    /// The session, which pins the manifests.
    session: Option<Session<'a>>,
    /// The time of the capture, in nanoseconds.
    now: i64,
    /// The reason why no contents are kept.
    error: Option<String>,
}

/// The changes of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Changes {
    #[serde(flatten)]
    pub files: FilesChanged,
    /// The number of changed or removed files that are not kept, and the first of their paths.
    not_kept: u64,
    #[serde(rename = "not_kept_paths")]
    named: Vec<String>,
    /// New paths of entries whose contents were not kept at their old path.
    #[serde(skip)]
    moved: Vec<PathBuf>,
}

impl<'a> Baseline<'a> {
    /// Walks the trees and keeps the contents of their files.
    pub(crate) fn capture(
        trees: &[PathBuf],
        exclude: &'a dyn Fn(&Path) -> bool,
        store: &'a Store,
        walk_limit: u64,
    ) -> Self {
        let mut trees = trees.to_vec();
        trees.sort();
        trees.dedup_by(|below, above| below.starts_with(above));
        let tree = Tree::of(&trees, exclude, walk_limit, None);
        let kept = match store.session() {
            Ok(session) => KeptContents::of(&trees, &tree, session, LARGEST),
            Err(e) => Err(e),
        };
        let kept = kept.unwrap_or_else(|e| KeptContents { error: Some(e.to_string()), ..KeptContents::default() });
        Self { store, trees, exclude, walk_limit, tree, kept }
    }

    /// Walks the trees again and lists the changes.
    pub(crate) fn compare(self) -> Changes {
        let mut after = Tree::of(&self.trees, self.exclude, self.walk_limit, Some(&self.tree));
        let mut found = Changes::default();
        let mut pinned = Vec::new();
        for (path, before) in &self.tree.entries {
            let now = after.entries.remove(path);
            self.compared(path, Some(before), now.as_ref(), &mut found, &mut pinned);
        }
        for (path, now) in &after.entries {
            self.compared(path, None, Some(now), &mut found, &mut pinned);
        }
        found.files.files.sort_by(|one, other| one.path.cmp(&other.path));
        for path in after.unseen {
            found.name(&path, "it is not searched");
        }
        if let Some(error) = &self.kept.error {
            found.named.push(format!("nothing: {error}"));
        }
        if let Some(session) = self.kept.session {
            // Pins that cannot be removed now are removed by a later sweep.
            drop(session.keep_only(&pinned));
        }
        found
    }

    /// Adds the change of one path, if any, and the content that the change needs.
    fn compared(
        &self,
        path: &OsStr,
        before: Option<&Entry>,
        now: Option<&Entry>,
        found: &mut Changes,
        pinned: &mut Vec<Hash>,
    ) {
        let path = Path::new(path);
        let (change, after) = match (before, now) {
            (Some(before), Some(now)) if self.is_same(before, now) => return,
            (Some(before), Some(now)) => {
                let hash = found.hash_after(path, now);
                match self.change(before, now, hash) {
                    Some(change) => (change, hash),
                    None => return,
                }
            }
            (None, Some(now)) if self.is_moved(path, now, found) => return,
            (None, Some(now)) => (ChangeKind::Created, found.hash_after(path, now)),
            (Some(_), None) if is_gone(path) => (ChangeKind::Removed, None),
            // The path lies in a directory that cannot be searched any more.
            (_, None) => return,
        };
        let kept = before.and_then(|before| self.kept_of(before));
        // If a file can no longer be read, only its permissions are known to have changed.
        let after = after.or(kept.filter(|_| change == ChangeKind::Mode));
        if let Some(before) = before
            && change != ChangeKind::Mode
            && let Some(reason) = not_kept(before, kept)
        {
            found.name(path, reason);
        }
        found.files.count(change);
        if found.files.files.len() == RECORDED {
            found.files.truncated = true;
            return;
        }
        pinned.extend(kept);
        found.files.files.push(FileChange {
            path: path.display().to_string(),
            path_bytes: cp_common::wire::bytes_of(path),
            change,
            before: before.map(|before| before.state(kept)),
            after: now.map(|now| now.state(after)),
        });
    }

    /// True if an entry did not change. Time stamps as new as the capture prove nothing, so the content is compared.
    fn is_same(&self, before: &Entry, now: &Entry) -> bool {
        (before.kind, before.mode, &before.target) == (now.kind, now.mode, &now.target)
            && match before.kind {
                FileKind::File => before.stamp == now.stamp && before.stamp.is_settled(self.kept.now),
                FileKind::Other => before.stamp.ino == now.stamp.ino,
                FileKind::Directory | FileKind::Link => true,
            }
    }

    fn change(&self, before: &Entry, now: &Entry, after: Option<Hash>) -> Option<ChangeKind> {
        let is_content_same = before.kind == now.kind
            && match before.kind {
                FileKind::File => match (self.kept_of(before), after) {
                    (Some(before), Some(after)) => before == after,
                    _ => {
                        (before.stamp.ino, before.stamp.size, before.stamp.mtime)
                            == (now.stamp.ino, now.stamp.size, now.stamp.mtime)
                    }
                },
                FileKind::Directory => true,
                FileKind::Link => before.target == now.target,
                FileKind::Other => before.stamp.ino == now.stamp.ino,
            };
        match (is_content_same, before.mode == now.mode) {
            (true, true) => None,
            (true, false) => Some(ChangeKind::Mode),
            (false, _) => Some(ChangeKind::Changed),
        }
    }

    /// True if an entry was moved here without kept contents, or could not be seen before. Such an entry is not new
    /// and must not be removed.
    fn is_moved(&self, path: &Path, now: &Entry, found: &mut Changes) -> bool {
        let is_unseen = |directories: &[PathBuf]| directories.iter().any(|directory| path.starts_with(directory));
        if is_unseen(&self.tree.unseen) || is_unseen(&found.moved) {
            return true;
        }
        let is_moved = self.kept.missing.contains(&(now.stamp.dev, now.stamp.ino));
        if is_moved {
            found.moved.push(path.to_owned());
            found.name(path, "it was not kept where it was before");
        }
        is_moved
    }

    fn kept_of(&self, before: &Entry) -> Option<Hash> {
        let hash = self.kept.hashes.get(&before.stamp).filter(|_| before.kind == FileKind::File)?;
        self.store.has(hash).then_some(*hash)
    }
}

impl<'a> KeptContents<'a> {
    /// Keeps the contents of all files of the walk, up to a size.
    fn of(trees: &[PathBuf], tree: &Tree, mut session: Session<'a>, largest: u64) -> io::Result<Self> {
        let now = session.now;
        let mut hashes = HashMap::new();
        for root in trees {
            let known = session.known(root);
            let (mut rows, mut is_new) = (Vec::new(), false);
            let files = tree.entries.iter().filter(|(path, entry)| {
                let is_kept = entry.kind == FileKind::File && entry.stamp.size <= largest && !entry.is_ignored;
                is_kept && path.as_encoded_bytes().starts_with(root.as_os_str().as_encoded_bytes())
            });
            for (path, entry) in files {
                let hash = known.get(&entry.stamp).copied();
                is_new |= hash.is_none();
                let hash = hash.or_else(|| keep(&mut session, Path::new(path), &entry.stamp).ok().flatten());
                if let Some(hash) = hash {
                    hashes.insert(entry.stamp, hash);
                    rows.push((entry.stamp, hash, Path::new(path)));
                }
            }
            // A file that is gone must not be put back.
            let has_gone = || known.keys().any(|stamp| !hashes.contains_key(stamp));
            if is_new || rows.len() != known.len() && has_gone() {
                session.publish(root, &rows)?;
            }
        }
        let missing = tree.entries.values().filter(|entry| entry.is_ignored || entry.kind == FileKind::File);
        let missing = missing.filter(|entry| !hashes.contains_key(&entry.stamp));
        let missing = missing.map(|entry| (entry.stamp.dev, entry.stamp.ino)).collect();
        session.release()?;
        Ok(Self { hashes, missing, session: Some(session), now, error: None })
    }
}

/// Keeps the files of a repository. Returns the name of the manifest, and the number of files that are not kept.
pub(crate) fn keep_history(store: &Store, repository: &Path, tree: &Tree) -> io::Result<(Option<String>, usize)> {
    let kept = KeptContents::of(&[repository.to_owned()], tree, store.session()?, LARGEST_OF_GIT)?;
    let manifest = kept.session.and_then(|session| session.manifests().pop());
    Ok((manifest, kept.missing.len() + tree.unseen.len()))
}

/// Keeps the content of a file, unless the file changed after the walk or during the copy.
fn keep(session: &mut Session<'_>, path: &Path, stamp: &Stamp) -> io::Result<Option<Hash>> {
    let mut file = open(path, stamp)?;
    let hash = session.keep(&mut file)?;
    Ok(hash.filter(|_| rustix::fs::fstat(&file).is_ok_and(|stat| Stamp::of(&stat) == *stamp)))
}

/// The change from one state of a path to another.
pub(crate) fn changed(path: &Path, before: Option<FileState>, after: Option<FileState>) -> FileChange {
    let content = |state: &FileState| (state.kind, state.sha256.clone(), state.target.clone());
    let change = match (&before, &after) {
        (None, _) => ChangeKind::Created,
        (_, None) => ChangeKind::Removed,
        (Some(before), Some(after)) if content(before) == content(after) => ChangeKind::Mode,
        _ => ChangeKind::Changed,
    };
    let path_bytes = cp_common::wire::bytes_of(path);
    FileChange { path: path.display().to_string(), path_bytes, change, before, after }
}

/// The reason why a path cannot be restored.
fn not_kept(before: &Entry, kept: Option<Hash>) -> Option<&'static str> {
    match before.kind {
        FileKind::File if kept.is_some() => None,
        _ if before.is_ignored => Some("git ignores it"),
        FileKind::File if before.stamp.size > LARGEST => Some("it is larger than 16 MiB"),
        FileKind::File => Some("the store is full, or it could not be read"),
        FileKind::Directory => None,
        FileKind::Link if before.target.as_ref().is_some_and(|target| target.to_str().is_some()) => None,
        FileKind::Link | FileKind::Other => Some("it is not a regular file"),
    }
}

fn is_gone(path: &Path) -> bool {
    let kind = path.symlink_metadata().map_err(|e| e.kind());
    kind.is_err_and(|kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.files.is_empty() && self.named.is_empty()
    }

    /// The changes in the form of a result.
    pub(crate) fn for_result(&self) -> Option<FilesChanged> {
        let mut shown = self.files.clone();
        shown.truncated |= shown.files.len() > SHOWN;
        shown.files.truncate(SHOWN);
        (!shown.files.is_empty()).then_some(shown)
    }

    /// The entry of `enforcement.missing` about contents that are not kept.
    pub(crate) fn missing(&self) -> Option<String> {
        (!self.named.is_empty()).then(|| format!("undo: {} not kept: {}", self.not_kept, self.named.join(", ")))
    }

    /// The hash of the content of a path, as long as hashes are recorded.
    fn hash_after(&self, path: &Path, now: &Entry) -> Option<Hash> {
        (self.files.files.len() < RECORDED).then(|| hash_of(path, now).ok()).flatten()
    }

    fn name(&mut self, path: &Path, reason: &str) {
        self.not_kept += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{} ({reason})", path.display()));
        }
    }
}
