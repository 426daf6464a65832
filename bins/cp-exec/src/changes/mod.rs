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

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use cp_common::output::line_to_stderr;
use cp_ledger::format::line::Hash;
use serde::Serialize;

pub(crate) use self::store::{Kept, Store};
use self::store::{Row, Session, rows};
use self::tree::{Directory, Entry, LARGEST, each, hash_of, open};
pub(crate) use self::tree::{Exclude, Tree, state_of};
use crate::exec_result::{ChangeKind, FileChange, FileKind, FileState, FilesChanged};
use crate::file_id::FileId;
use crate::nofollow::Node;

/// The largest file of a repository that is kept.
const LARGEST_OF_GIT: u64 = 256 << 20;
/// The most changes that are recorded with hashes, and the most that a result shows.
const RECORDED: usize = 10_000;
const SHOWN: usize = 1000;
/// The most paths that are listed because their contents are not kept.
const NAMED: usize = 20;

/// The time in which a run may wait for its contents to be kept without a word, and the words after it.
const SILENT: Duration = Duration::from_secs(2);
const EXPLANATION: &str =
    "cp-exec: keeping what the command may write, for `cp-exec undo`; only new and changed files take this time";

/// The writable trees before a run.
pub(crate) struct Baseline<'a> {
    trees: Vec<PathBuf>,
    exclude: &'a Exclude<'a>,
    walk_limit: u64,
    tree: Tree,
    /// Holds what is kept until the changes are known, or the reason why nothing is kept.
    session: io::Result<Session<'a>>,
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
    pub(crate) fn capture(trees: &[PathBuf], exclude: &'a Exclude<'a>, store: &'a Store, walk_limit: u64) -> Self {
        let mut trees = trees.to_vec();
        trees.sort();
        trees.dedup_by(|below, above| below.starts_with(above));
        let mut tree = Tree::of(&trees, exclude, walk_limit, None);
        let session = store.session().and_then(|session| {
            for root in &trees {
                capture(&session, root, &mut tree, LARGEST, false)?;
            }
            Ok(session)
        });
        let missing = tree.directories.values().flat_map(|directory| &directory.entries).map(|(_, entry)| entry);
        let missing = missing.filter(|entry| entry.is_ignored || entry.kind == FileKind::File);
        // If nothing is kept, each entry is recorded as it is.
        let missing = missing.filter(|entry| entry.kept.is_none() && session.is_ok());
        let missing = missing.map(|entry| entry.id.node()).collect();
        Self { trees, exclude, walk_limit, tree, session, missing }
    }

    /// Walks the trees again and lists the changes.
    pub(crate) fn compare(self) -> Changes {
        let mut after = Tree::of(&self.trees, self.exclude, self.walk_limit, Some(&self.tree));
        let mut found = Changes::default();
        for (path, before) in &self.tree.directories {
            let now = after.directories.remove(path).unwrap_or_default();
            self.compared_directory(path, before, &now, &mut found);
        }
        for (path, now) in &after.directories {
            self.compared_directory(path, &Directory::default(), now, &mut found);
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

    /// Adds the changes of the entries of a directory.
    fn compared_directory(&self, path: &Path, before: &Directory, now: &Directory, found: &mut Changes) {
        let is_same =
            |before: &Entry, now: &Entry| now.kind == FileKind::File && before.id == now.id && self.is_settled(&now.id);
        for (name, before, now) in side_by_side(&before.entries, &now.entries) {
            if !before.zip(now).is_some_and(|(before, now)| is_same(before, now)) {
                self.compared(&path.join(name), before, now, found);
            }
        }
    }

    /// Adds the change of one path, if any.
    fn compared(&self, path: &Path, before: Option<&Entry>, now: Option<&Entry>, found: &mut Changes) {
        let (change, after) = match (before, now) {
            (Some(before), Some(now)) => match Self::change(path, before, now, found) {
                Some(changed) => changed,
                None => return,
            },
            (None, Some(now)) if self.is_moved(path, now, found) => return,
            (None, Some(now)) => (ChangeKind::Created, found.hash_after(path, now)),
            (Some(_), None) if is_gone(path) => (ChangeKind::Removed, None),
            // The path lies in a directory that cannot be searched any more.
            (_, None) => return,
        };
        let kept = before
            .and_then(|before| self.session.as_ref().ok()?.keep_changed(before.kept.as_ref()?, before.id.size).ok());
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
    fn change(path: &Path, before: &Entry, now: &Entry, found: &Changes) -> Option<(ChangeKind, Option<Hash>)> {
        let after = found.hash_after(path, now);
        let is_same = before.kind == now.kind
            && match (before.kind, before.kept.map(|kept| kept.hash), after) {
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
}

/// Two sorted lists of entries, side by side by their names.
fn side_by_side<'t>(
    before: &'t [(OsString, Entry)],
    now: &'t [(OsString, Entry)],
) -> impl Iterator<Item = (&'t OsStr, Option<&'t Entry>, Option<&'t Entry>)> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (before.peek(), now.peek()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let before = if order == Ordering::Greater { None } else { before.next() };
        let now = if order == Ordering::Less { None } else { now.next() };
        let (name, _) = before.or(now)?;
        Some((name.as_os_str(), before.map(|(_, entry)| entry), now.map(|(_, entry)| entry)))
    })
}

/// Keeps the contents of the files of a tree, up to a size, and notes them in its entries. Returns the name of the
/// manifest. The manifest of a history is not replaced, because a run can be undone with it.
fn capture(session: &Session<'_>, root: &Path, tree: &mut Tree, largest: u64, is_history: bool) -> io::Result<String> {
    let (last, manifest) = session.last(root)?;
    let known = Known::of(&manifest);
    let (begun, is_said) = (Instant::now(), AtomicBool::new(false));
    let directories =
        tree.directories.iter_mut().filter(|(path, _)| path.starts_with(root) || root.parent() == Some(path));
    let counted = each(directories.collect(), |(path, directory): (&PathBuf, &mut Directory)| {
        let (is_below, mut known, mut kept, mut new) = (path.starts_with(root), known.within(path), 0, 0);
        for (name, entry) in &mut directory.entries {
            let is_meant = entry.kind == FileKind::File && entry.id.size <= largest && !entry.is_ignored;
            if !is_meant || !is_below && path.join(&name) != root {
                continue;
            }
            entry.kept = known.find(name).filter(|(id, _)| *id == entry.id).map(|(_, kept)| kept);
            if entry.kept.is_none() {
                entry.kept = keep(session, &path.join(&name), &entry.id).ok().flatten();
                new += usize::from(entry.kept.is_some());
                if begun.elapsed() > SILENT && !is_said.swap(true, Relaxed) {
                    line_to_stderr(EXPLANATION);
                }
            }
            kept += usize::from(entry.kept.is_some());
        }
        (kept, new)
    });
    let (kept, new) = counted.iter().fold((0, 0), |(kept, new), counted| (kept + counted.0, new + counted.1));
    // A file that is gone must not be put back.
    if new == 0 && kept == known.rows.len() {
        return Ok(last);
    }
    let kept = tree.entries().filter(|(path, _)| path.starts_with(root));
    let kept = kept.filter_map(|(path, entry)| Some((entry.id, entry.kept?, path)));
    let name = if is_history { session.name(root) } else { last };
    session.publish(&name, kept)?;
    Ok(name)
}

/// The contents that a manifest lists, in the order of the walk that it is of.
struct Known<'m> {
    rows: Vec<Row<'m>>,
    /// The rows of each directory.
    directories: HashMap<&'m [u8], Range<usize>>,
}

impl<'m> Known<'m> {
    fn of(manifest: &'m [u8]) -> Self {
        let (rows, mut directories) = (rows(manifest).collect::<Vec<_>>(), HashMap::<_, Range<usize>>::new());
        for (at, (_, _, path)) in rows.iter().enumerate() {
            let path = path.as_os_str().as_bytes();
            let directory = &path[..memchr::memrchr(b'/', path).unwrap_or(0)];
            directories.entry(directory).or_insert(at..at).end = at + 1;
        }
        Self { rows, directories }
    }

    fn within<'k>(&'k self, directory: &Path) -> KnownFiles<'k, 'm> {
        let directory = directory.as_os_str().as_bytes();
        let rows = self.directories.get(directory).map_or(&[][..], |range| &self.rows[range.clone()]);
        KnownFiles { rows, skipped: directory.len() + 1 }
    }
}

/// The rows of one directory, whose files are asked about in their order.
struct KnownFiles<'k, 'm> {
    rows: &'k [Row<'m>],
    /// The length of a path before the name.
    skipped: usize,
}

impl KnownFiles<'_, '_> {
    fn find(&mut self, name: &OsStr) -> Option<(FileId, Kept)> {
        let order = |row: &Row<'_>| row.2.as_os_str().as_bytes()[self.skipped..].cmp(name.as_bytes());
        let before = self.rows.iter().take_while(|row| order(row) == Ordering::Less).count();
        self.rows = &self.rows[before..];
        let (id, kept, _) = self.rows.first().filter(|row| order(row) == Ordering::Equal)?;
        Some((*id, *kept))
    }
}

/// Keeps the files of a repository. Returns the name of the manifest, and the number of files that are not kept.
pub(crate) fn keep_history(store: &Store, repository: &Path, tree: &mut Tree) -> io::Result<(Option<String>, usize)> {
    let manifest = capture(&store.session()?, repository, tree, LARGEST_OF_GIT, true)?;
    let lost = tree.entries().filter(|(_, entry)| entry.kind == FileKind::File && entry.kept.is_none()).count();
    Ok((Some(manifest), lost + tree.unseen.len()))
}

/// Keeps the content of a file, unless the file changed after the walk or during the copy.
fn keep(session: &Session<'_>, path: &Path, id: &FileId) -> io::Result<Option<Kept>> {
    let mut file = open(path, id)?;
    let kept = session.keep_of_tree(&mut file)?;
    Ok(kept.filter(|_| file.metadata().is_ok_and(|meta| FileId::from(&meta) == *id)))
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
