//! File changes of runs and of file tools: contents are kept before a change, the trees of a run are compared after it,
//! and `cp-exec undo` restores files.
//!
//! - [`Store`] keeps the contents of regular files under the home, by their SHA-256, for runs, file tools and the
//!   history of repositories.
//! - [`Baseline`] walks the writable trees before a run and keeps the contents of their files.
//! - [`Changes`] lists the files that the run created, changed or removed.

mod rows;
mod store;
#[cfg(test)]
mod tests;
mod tree;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use cp_common::output::line_to_stderr;
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use serde::{Deserialize, Serialize};

pub(crate) use self::rows::Kept;
use self::rows::{Entry, Manifest, Row, Rows, note_kept};
pub(crate) use self::store::{Last, Session, Store};
use self::tree::{Directory, LARGEST, Walk, hash_of, open, state};
pub(crate) use self::tree::{Known, Tree, state_of};
use crate::exec_result::{ChangeKind, FileChange, FileKind, FilesChanged};
use crate::file_id::FileId;
use crate::nofollow::{Node, each};
use crate::serde_paths::any_bytes;

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

/// The writable trees before a run. A start after a kill reads it again.
#[derive(Deserialize, Serialize)]
pub(crate) struct Baseline<'a> {
    trees: Vec<Tree>,
    /// Paths in them that are left out.
    #[serde(with = "any_bytes")]
    hidden: Vec<PathBuf>,
    walk_limit: u64,
    /// The time of the walk, as of the session; 0 if nothing is kept.
    now: i64,
    /// Changes after this time are not of the run.
    #[serde(skip)]
    until: i64,
    /// Holds what is kept until the changes are known, or the reason why nothing is kept.
    #[serde(skip, default = "no_session")]
    session: io::Result<Session<'a>>,
    /// The nodes of entries that are not kept, such as ignored directories and large files.
    #[serde(skip)]
    missing: OnceCell<HashSet<Node>>,
}

fn no_session<'a>() -> io::Result<Session<'a>> {
    Err(io::ErrorKind::NotFound.into())
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
    pub(crate) fn capture(roots: &[PathBuf], mut hidden: Vec<PathBuf>, store: &'a Store, walk_limit: u64) -> Self {
        let mut roots = roots.to_vec();
        roots.sort();
        roots.dedup_by(|below, above| below.starts_with(above));
        hidden.retain(|path| roots.iter().any(|root| path.starts_with(root)));
        let is_hidden = is_hidden(&hidden);
        let walk = Walk::new(&is_hidden, walk_limit);
        let (mut session, mut trees) = (store.session(), Vec::new());
        for root in &roots {
            let manifest = session.as_ref().map(Session::place_of_run).unwrap_or_default();
            let last = session.as_ref().map(|session| session.last(root, Some(&manifest))).unwrap_or_default();
            let mut tree = Tree { manifest, ..walk.tree(root, &last.known()) };
            session = session.and_then(|session| capture(&session, &mut tree, &last, false).map(|_| session));
            trees.push(tree);
        }
        let now = session.as_ref().map_or(0, |session| session.now);
        drop(is_hidden);
        Self { trees, hidden, walk_limit, now, until: i64::MAX, session, missing: OnceCell::new() }
    }

    /// The manifests, which are of this run alone until its result is recorded.
    pub(crate) fn manifests(&self) -> Vec<PathBuf> {
        self.trees.iter().map(|tree| tree.manifest.clone()).collect()
    }

    /// Lists the changes of a killed run that were made until a time; `None` after another boot, and if a manifest is
    /// no longer kept.
    pub(crate) fn compare_until(mut self, until: i64, store: &'a Store) -> Option<Changes> {
        let session = store.session();
        for tree in &mut self.trees {
            tree.list(&Manifest::new(fs::read(&tree.manifest).ok()?).of_this_boot()?);
        }
        Some(Self { until, session, ..self }.compare())
    }

    /// Walks the trees again and lists the changes.
    pub(crate) fn compare(self) -> Changes {
        let is_hidden = is_hidden(&self.hidden);
        let (walk, mut found) = (Walk::new(&is_hidden, self.walk_limit), Changes::default());
        for before in &self.trees {
            let now = walk.tree(&before.root, &Known::before(before, self.now));
            self.compared_tree(before, &now, &mut found);
            now.unseen.iter().for_each(|path| found.name(path, "it is not searched"));
        }
        found.files.files.sort_by(|one, other| one.path.cmp(&other.path));
        let before: Vec<Hash> = found.files.files.iter().filter_map(|file| file.hashes()[0]).collect();
        if let Err(error) = self.session.and_then(|session| session.finish(&before)) {
            found.named.push(format!("nothing: {error}"));
        }
        found
    }

    /// Adds the changes of a tree.
    fn compared_tree(&self, before: &Tree, now: &Tree, found: &mut Changes) {
        let none = Directory::default();
        let new = now.directories.keys().filter(|path| !before.directories.contains_key(*path));
        for (path, before) in before.directories.iter().chain(new.map(|path| (path, &none))) {
            let (rows, outdated) = match now.directories.get(path) {
                Some(now) => (now.rows.as_slice(), now.outdated.clone()),
                None => (&[][..], Rows::new(&before.rows).map(|row| row.place).collect()),
            };
            let mut rows: BTreeMap<_, _> = Rows::new(rows).map(|row| (row.name, row)).collect();
            for row in outdated.iter().filter_map(|place| Rows::new(&before.rows[*place..]).next()) {
                self.compared(&path.join(row.name), Some(&row), rows.remove(row.name).as_ref(), found);
            }
            for (name, row) in rows {
                self.compared(&path.join(name), None, Some(&row), found);
            }
        }
    }

    /// Adds the change of one path, if any.
    fn compared(&self, path: &Path, before: Option<&Row<'_>>, now: Option<&Row<'_>>, found: &mut Changes) {
        if now.is_some_and(|now| now.entry.id.ctime > self.until) {
            return;
        }
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
            .and_then(|Row { entry, .. }| self.session.as_ref().ok()?.keep_changed(&entry.kept()?, entry.id.size).ok());
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
        let shown = |row: &Row<'_>, hash| state(&row.entry, row.target, hash);
        let (before, after) = (before.map(|before| shown(before, kept)), now.map(|now| shown(now, after)));
        found.files.files.push(FileChange { change, ..FileChange::new(path, before, after) });
    }

    /// How an entry changed, and the hash of its content now.
    fn change(path: &Path, before: &Row<'_>, now: &Row<'_>, found: &Changes) -> Option<(ChangeKind, Option<Hash>)> {
        let after = found.hash_after(path, now);
        let is_same_link = before.target == now.target;
        let (before, now) = (&before.entry, &now.entry);
        let is_same = before.kind == now.kind
            && match (before.kind, before.kept().map(|kept| kept.hash), after) {
                (FileKind::File, Some(before), Some(after)) => before == after,
                (FileKind::File, ..) => before.id.without_change_time() == now.id.without_change_time(),
                (FileKind::Directory, ..) => true,
                (FileKind::Link, ..) => is_same_link,
                (FileKind::Other, ..) => before.id.ino == now.id.ino,
            };
        let change = if is_same { ChangeKind::Mode } else { ChangeKind::Changed };
        (!is_same || before.mode != now.mode).then_some((change, after))
    }

    /// Listed once a new entry needs it.
    fn missing(&self) -> &HashSet<Node> {
        let is_missing = |entry: &Entry| entry.kept().is_none() && (entry.is_ignored || entry.kind == FileKind::File);
        self.missing.get_or_init(|| {
            // If nothing is kept, each entry is recorded as it is.
            let rows = self.trees.iter().filter(|_| self.session.is_ok()).flat_map(Tree::rows);
            rows.map(|(_, row)| row.entry).filter(is_missing).map(|entry| entry.id.node()).collect()
        })
    }

    /// True if an entry was moved here without kept contents, or could not be seen before. Such an entry is not new
    /// and must not be removed.
    fn is_moved(&self, path: &Path, now: &Row<'_>, found: &mut Changes) -> bool {
        let is_unseen = |directories: &[PathBuf]| directories.iter().any(|directory| path.starts_with(directory));
        if self.trees.iter().any(|tree| is_unseen(&tree.unseen)) || is_unseen(&found.moved) {
            return true;
        }
        // The file system may give the inode of a removed file to a new one.
        let is_moved = self.missing().contains(&now.entry.id.node()) && !is_born_after(path, self.now);
        if is_moved {
            found.moved.push(path.to_owned());
            found.name(path, "it was not kept where it was before");
        }
        is_moved
    }
}

/// True for an entry of a directory that is one of these paths.
fn is_hidden(hidden: &[PathBuf]) -> impl Fn(&Path, &OsStr) -> bool + Sync {
    let hidden: HashSet<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    let names: BTreeSet<&OsStr> = hidden.iter().filter_map(|path| path.file_name()).collect();
    move |directory, name| names.contains(name) && hidden.contains(&*directory.join(name))
}

/// Keeps the contents of the files of a tree and notes them in its rows. Returns the name of the manifest. The manifest
/// of a history is not replaced, because a run can be undone with it.
fn capture(session: &Session<'_>, tree: &mut Tree, last: &Last, is_history: bool) -> io::Result<String> {
    let largest = if is_history { LARGEST_OF_GIT } else { LARGEST };
    let is_unknown = |Row { entry, .. }: &Row<'_>| {
        entry.kept().is_none() && entry.kind == FileKind::File && !entry.is_ignored && entry.id.size <= largest
    };
    let (begun, is_said) = (Instant::now(), AtomicBool::new(false));
    let adds = each(tree.directories.iter_mut().collect(), |(path, directory)| {
        let keep = |row: Row<'_>| {
            if begun.elapsed() > SILENT && !is_said.swap(true, Relaxed) {
                line_to_stderr(EXPLANATION);
            }
            Some((row.place, keep(session, &path.join(row.name), &row.entry.id).ok()??))
        };
        let kept: Vec<_> = Rows::new(&directory.rows).filter(is_unknown).filter_map(keep).collect();
        for (place, kept) in &kept {
            note_kept(&mut directory.rows[*place..], kept);
        }
        !kept.is_empty()
    });
    let rows = || tree.directories.iter().map(|(path, directory)| (path.as_path(), directory.rows.as_slice()));
    if !adds.contains(&true) && !tree.directories.is_empty() && rows().eq(last.manifest.directories()) {
        return Ok(last.name.clone());
    }
    let (name, of_run) =
        if is_history { (session.name(&tree.root), None) } else { (last.name.clone(), Some(tree.manifest.as_path())) };
    session.publish(&name, of_run, rows().collect())?;
    Ok(name)
}

/// Keeps the files of a repository. Returns the name of the manifest, and the number of files that are not kept.
pub(crate) fn keep_history(session: &Session<'_>, tree: &mut Tree, last: &Last) -> io::Result<(Option<String>, usize)> {
    let manifest = capture(session, tree, last, true)?;
    let missing = tree.rows().filter(|(_, row)| row.entry.kind == FileKind::File && row.entry.kept().is_none()).count();
    let has_files = tree.paths_of(&[FileKind::File]).next().is_some();
    Ok((has_files.then_some(manifest), missing + tree.unseen.len()))
}

/// Keeps the content of a file, unless the file changed after the walk or during the copy.
fn keep(session: &Session<'_>, path: &Path, id: &FileId) -> io::Result<Option<Kept>> {
    let mut file = open(path, id)?;
    let kept = session.keep_of_tree(&mut file)?;
    Ok(kept.filter(|_| file.metadata().is_ok_and(|meta| FileId::from(&meta) == *id)))
}

/// The reason why a path cannot be restored.
fn not_kept(before: &Row<'_>, kept: Option<Hash>) -> Option<&'static str> {
    match before.entry.kind {
        FileKind::File if kept.is_some() => None,
        _ if before.entry.is_ignored => Some("git ignores it"),
        FileKind::File if before.entry.id.size > LARGEST => Some("it is larger than 16 MiB"),
        FileKind::File => Some("the store is full, or it could not be read"),
        FileKind::Directory => None,
        FileKind::Link if before.target.to_str().is_some() => None,
        FileKind::Link | FileKind::Other => Some("it is not a regular file"),
    }
}

/// True if a path is known to be made after a time.
fn is_born_after(path: &Path, time: i64) -> bool {
    let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME);
    let born = stat.ok().filter(|stat| StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME));
    born.is_some_and(|Statx { stx_btime: born, .. }| born.tv_sec * 1_000_000_000 + i64::from(born.tv_nsec) > time)
}

fn is_gone(path: &Path) -> bool {
    let kind = path.symlink_metadata().map_err(|e| e.kind());
    kind.is_err_and(|kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.files.is_empty() && self.named.is_empty()
    }

    /// The number of changes of each kind.
    pub(crate) fn summary(&self) -> String {
        let FilesChanged { created, changed, removed, .. } = &self.files;
        format!("it created {created} paths, changed {changed} and removed {removed}")
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
    fn hash_after(&self, path: &Path, now: &Row<'_>) -> Option<Hash> {
        (self.files.files.len() < RECORDED).then(|| hash_of(path, &now.entry).ok()).flatten()
    }

    fn name(&mut self, path: &Path, reason: &str) {
        self.not_kept += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{} ({reason})", path.display()));
        }
    }
}
