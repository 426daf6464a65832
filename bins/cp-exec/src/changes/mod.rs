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

use self::store::Session;
pub(crate) use self::store::Store;
use self::tree::{Entry, LARGEST, hash_of, open};
pub(crate) use self::tree::{Tree, state_of};
use crate::file_id::FileId;
use crate::nofollow::Node;

/// The largest file of a repository that is kept.
const LARGEST_OF_GIT: u64 = 256 << 20;
/// The most changes that are recorded with hashes, and the most that a result shows.
const RECORDED: usize = 10_000;
const SHOWN: usize = 1000;
/// The most paths that are listed because their contents are not kept.
const NAMED: usize = 20;

/// The writable trees before a run.
pub(crate) struct Baseline<'a> {
    trees: Vec<PathBuf>,
    exclude: &'a dyn Fn(&Path) -> bool,
    walk_limit: u64,
    tree: Tree,
    store: &'a Store,
    /// Holds what is kept until the changes are known, or the reason why nothing is kept.
    session: io::Result<Session<'a>>,
    hashes: HashMap<FileId, Hash>,
    /// Entries that are not kept, such as ignored directories and large files.
    missing: HashSet<Node>,
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
        let mut hashes = HashMap::new();
        let session = store.session().and_then(|mut session| {
            for root in &trees {
                hashes.extend(capture(&mut session, root, &tree, LARGEST, false)?.1);
            }
            Ok(session)
        });
        let missing = tree.entries.values().filter(|entry| entry.is_ignored || entry.kind == FileKind::File);
        let missing = missing.filter(|entry| !hashes.contains_key(&entry.id)).map(|entry| entry.id.node());
        // If nothing is kept, each entry is recorded as it is.
        let missing = missing.filter(|_| session.is_ok()).collect();
        Self { trees, exclude, walk_limit, tree, store, session, hashes, missing }
    }

    /// Walks the trees again and lists the changes.
    pub(crate) fn compare(self) -> Changes {
        let mut after = Tree::of(&self.trees, self.exclude, self.walk_limit, Some(&self.tree));
        let mut found = Changes::default();
        for (path, before) in &self.tree.entries {
            let now = after.entries.remove(path);
            self.compared(path, Some(before), now.as_ref(), &mut found);
        }
        for (path, now) in &after.entries {
            self.compared(path, None, Some(now), &mut found);
        }
        found.files.files.sort_by(|one, other| one.path.cmp(&other.path));
        for path in after.unseen {
            found.name(&path, "it is not searched");
        }
        let before = found.files.files.iter().filter_map(|file| file.before.as_ref()?.sha256.as_deref());
        let before: Vec<Hash> = before.filter_map(Hash::parse).collect();
        if let Err(error) = self.session.and_then(|session| session.finish(&before)) {
            found.named.push(format!("nothing: {error}"));
        }
        found
    }

    /// Adds the change of one path, if any.
    fn compared(&self, path: &OsStr, before: Option<&Entry>, now: Option<&Entry>, found: &mut Changes) {
        let path = Path::new(path);
        if let (Some(before), Some(now)) = (before, now)
            && now.kind == FileKind::File
            && before.id == now.id
            && self.is_settled(&now.id)
        {
            return;
        }
        let kept = before.and_then(|before| self.kept_of(before));
        let (change, after) = match (before, now) {
            (Some(before), Some(now)) => match Self::change(path, (before, kept), now, found) {
                Some(changed) => changed,
                None => return,
            },
            (None, Some(now)) if self.is_moved(path, now, found) => return,
            (None, Some(now)) => (ChangeKind::Created, found.hash_after(path, now)),
            (Some(_), None) if is_gone(path) => (ChangeKind::Removed, None),
            // The path lies in a directory that cannot be searched any more.
            (_, None) => return,
        };
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
        found.files.files.push(FileChange {
            path: path.display().to_string(),
            path_bytes: cp_common::wire::bytes_of(path),
            change,
            before: before.map(|before| before.state(kept)),
            after: now.map(|now| now.state(after)),
        });
    }

    /// How an entry changed, and the hash of its content now.
    fn change(
        path: &Path,
        (before, kept): (&Entry, Option<Hash>),
        now: &Entry,
        found: &Changes,
    ) -> Option<(ChangeKind, Option<Hash>)> {
        let after = found.hash_after(path, now);
        let is_same = before.kind == now.kind
            && match (before.kind, kept, after) {
                (FileKind::File, Some(before), Some(after)) => before == after,
                (FileKind::File, ..) => before.id.without_change_time() == now.id.without_change_time(),
                (FileKind::Directory, ..) => true,
                (FileKind::Link, ..) => before.target == now.target,
                (FileKind::Other, ..) => before.id.ino == now.id.ino,
            };
        let change = if is_same { ChangeKind::Mode } else { ChangeKind::Changed };
        (!is_same || before.mode != now.mode).then_some((change, after))
    }

    fn is_settled(&self, id: &FileId) -> bool {
        self.session.as_ref().is_ok_and(|session| id.is_settled(session.now))
    }

    /// True if an entry was moved here without kept contents, or could not be seen before. Such an entry is not new
    /// and must not be removed.
    fn is_moved(&self, path: &Path, now: &Entry, found: &mut Changes) -> bool {
        let is_unseen = |directories: &[PathBuf]| directories.iter().any(|directory| path.starts_with(directory));
        if is_unseen(&self.tree.unseen) || is_unseen(&found.moved) {
            return true;
        }
        let is_moved = self.missing.contains(&now.id.node());
        if is_moved {
            found.moved.push(path.to_owned());
            found.name(path, "it was not kept where it was before");
        }
        is_moved
    }

    fn kept_of(&self, before: &Entry) -> Option<Hash> {
        let hash = (before.kind == FileKind::File).then(|| self.hashes.get(&before.id)).flatten()?;
        self.store.has(hash).then_some(*hash)
    }
}

/// Keeps the contents of the files of a tree, up to a size. Returns the name of the manifest, and the hash of each
/// content. The manifest of a history is not replaced, because a run can be undone with it.
fn capture(
    session: &mut Session<'_>,
    root: &Path,
    tree: &Tree,
    largest: u64,
    is_history: bool,
) -> io::Result<(String, HashMap<FileId, Hash>)> {
    let (last, known) = session.last(root)?;
    let (mut rows, mut hashes) = (Vec::new(), HashMap::new());
    for (path, entry) in &tree.entries {
        let path = Path::new(path);
        let is_kept = entry.kind == FileKind::File && entry.id.size <= largest && !entry.is_ignored;
        if !is_kept || !path.as_os_str().as_encoded_bytes().starts_with(root.as_os_str().as_encoded_bytes()) {
            continue;
        }
        let hash = known.get(&entry.id).copied();
        if let Some(hash) = hash.or_else(|| keep(session, path, &entry.id).ok().flatten()) {
            hashes.insert(entry.id, hash);
            rows.push((entry.id, hash, path));
        }
    }
    // A file that is gone must not be put back.
    if hashes == known {
        return Ok((last, hashes));
    }
    let name = if is_history { session.name(root) } else { last };
    session.publish(&name, &rows)?;
    Ok((name, hashes))
}

/// Keeps the files of a repository. Returns the name of the manifest, and the number of files that are not kept.
pub(crate) fn keep_history(store: &Store, repository: &Path, tree: &Tree) -> io::Result<(Option<String>, usize)> {
    let (manifest, hashes) = capture(&mut store.session()?, repository, tree, LARGEST_OF_GIT, true)?;
    let files = tree.entries.values().filter(|entry| entry.kind == FileKind::File);
    let lost = files.filter(|entry| !hashes.contains_key(&entry.id)).count();
    Ok((Some(manifest), lost + tree.unseen.len()))
}

/// Keeps the content of a file, unless the file changed after the walk or during the copy.
fn keep(session: &mut Session<'_>, path: &Path, id: &FileId) -> io::Result<Option<Hash>> {
    let mut file = open(path, id)?;
    let hash = session.keep(&mut file)?;
    Ok(hash.filter(|_| file.metadata().is_ok_and(|meta| FileId::from(&meta) == *id)))
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
        FileKind::File if before.id.size > LARGEST => Some("it is larger than 16 MiB"),
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
