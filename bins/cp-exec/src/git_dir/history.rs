//! The history of a repository: its objects, and the references, logs and indexes that ordinary work changes. They are
//! kept in the content store before a run, and put back from there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, OFlags};
use serde::{Deserialize, Serialize};

use super::{Repository, binds, walked};
use crate::changes::{Kept, Known, Store};
use crate::digest::hash_of;
use crate::exec_result::FileKind;
use crate::file_id::FileId;
use crate::nofollow;
use crate::serde_paths::path_bytes;

/// Parts of a repository that ordinary work changes.
const CHANGING: [&str; 7] = ["HEAD", "index", PACKED, "shallow", "refs", "logs", OBJECTS];
const OBJECTS: &str = "objects";
const PACKED: &str = "packed-refs";
/// The log whose lines are the stashes.
const STASHES: &str = "logs/refs/stash";
/// The parts of it that are no objects.
const INFO: &str = "objects/info";
/// Files that git derives from objects, and creates again.
const DERIVED: [&str; 3] = ["objects/info/commit-graph", "objects/info/commit-graphs", "objects/pack/multi-pack-index"];

/// What was kept of a repository before a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Snapshot {
    #[serde(with = "path_bytes")]
    pub repository: PathBuf,
    /// The manifest in the content store.
    pub manifest: String,
    /// True if each file was kept, so that another file is newer than the snapshot.
    pub is_complete: bool,
}

/// True for a file of the history.
pub(super) fn is_history(repository: &Repository, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let is_in = |directory: &PathBuf| {
        let within = path.strip_prefix(directory).ok();
        within.is_some_and(|within| CHANGING.iter().any(|part| within.starts_with(part)) && !within.starts_with(INFO))
    };
    let is_transient = name.ends_with(b".lock") || name.starts_with(b"tmp_") && is_object(path);
    !is_transient && repository.directories.iter().any(is_in)
}

/// The files of a repository that are put back.
pub(crate) struct Recovery {
    store: Store,
    repository: PathBuf,
    files: Vec<(PathBuf, u64, Kept)>,
    /// The references that are newer than the snapshot.
    new: Vec<PathBuf>,
}

impl Recovery {
    /// Finds what is missing or differs from what was kept, and the references that were made since then.
    pub(crate) fn find(store: Store, Snapshot { repository, manifest, is_complete }: Snapshot) -> Result<Self> {
        let mut files = store.files_of(&manifest);
        if files.is_empty() {
            let gone = Error::not_found("the history from before the run is no longer kept");
            return Err(gone.in_file(&repository));
        }
        let known = files.iter().map(|(.., path)| path.as_path()).collect();
        let new = if is_complete { new_references(&repository, &known) } else { Vec::new() };
        files.retain(|(id, kept, path)| !is_same(path, id, &kept.hash) && !is_continued(&store, path, kept, id.size));
        let mut files: Vec<_> = files.into_iter().map(|(id, kept, path)| (path, id.size, kept)).collect();
        // A reference must not name an object that is not there yet.
        files.sort_by_key(|(path, ..)| !is_object(path));
        Ok(Self { store, repository, files, new })
    }

    /// True for a reference that is removed.
    pub(crate) fn removes(&self, path: &Path) -> bool {
        self.new.iter().any(|new| new == path)
    }

    /// The paths that are put back or removed; all objects of a repository are one path, because there are many.
    pub(crate) fn paths(&self) -> BTreeSet<PathBuf> {
        let objects = |path: &Path| path.ancestors().find(|above| above.ends_with(OBJECTS)).map(Path::to_owned);
        let files = self.files.iter().map(|(path, ..)| objects(path).unwrap_or_else(|| path.clone()));
        files.chain(self.new.iter().cloned()).collect()
    }

    pub(crate) fn apply(&self) -> Result<()> {
        let failed = |path: &Path, e| Error::io("cannot be put back", e).in_file(path);
        for part in ["objects", "refs"].map(|part| self.repository.join(part)) {
            make_directories(&part).map_err(|e| failed(&part, e))?;
        }
        for (path, size, kept) in &self.files {
            let bytes = self.store.load_kept(kept, *size).map_err(|e| failed(path, e))?;
            let mode = if is_object(path) { 0o444 } else { 0o644 };
            make_directories(path.parent().unwrap_or(path))
                .and_then(|()| nofollow::put_back(path, &bytes, mode))
                .map_err(|e| failed(path, e))?;
        }
        for path in &self.new {
            nofollow::open_parent(path)
                .and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, AtFlags::empty()))
                .map_err(|e| failed(path, e.into()))?;
        }
        // They may be damaged too.
        for derived in DERIVED.map(|derived| self.repository.join(derived)) {
            drop(fs::remove_file(&derived).or_else(|_| fs::remove_dir_all(&derived)));
        }
        Ok(())
    }
}

/// The references that are not among the known files. The repository of a submodule without a known file is newer as a
/// whole, and stays.
fn new_references(repository: &Path, known: &BTreeSet<&Path>) -> Vec<PathBuf> {
    let mut directories = binds::inner_directories(repository);
    directories.retain(|directory| known.iter().any(|path| path.starts_with(directory)));
    directories.push(repository.to_owned());
    let is_reference = |path: &PathBuf| {
        let mut within = directories.iter().filter_map(|directory| path.strip_prefix(directory).ok());
        within
            .any(|within| within.starts_with("refs") || [PACKED, STASHES].iter().any(|part| within == Path::new(part)))
    };
    let is_new = |path: &PathBuf| !known.contains(path.as_path()) && !path.as_os_str().as_bytes().ends_with(b".lock");
    let tree = walked(repository, false, &Known::default());
    tree.paths_of(&[FileKind::File]).filter(is_new).filter(is_reference).collect()
}

fn is_object(path: &Path) -> bool {
    path.iter().any(|part| part == OBJECTS)
}

fn is_same(path: &Path, id: &FileId, hash: &Hash) -> bool {
    nofollow::open_file(path).is_ok_and(|file| {
        let now = file.metadata().map(|meta| FileId::from(&meta)).unwrap_or_default();
        now == *id || now.size == id.size && hash_of(file).is_ok_and(|now| now == *hash)
    })
}

/// True for a log that was only continued. Its new lines name what the owner may still need.
fn is_continued(store: &Store, path: &Path, kept: &Kept, size: u64) -> bool {
    path.iter().any(|part| part == "logs")
        && !path.ends_with(STASHES)
        && fs::read(path).is_ok_and(|now| store.load_kept(kept, size).is_ok_and(|before| now.starts_with(&before)))
}

/// Creates directories with the owner of the directory in which they are. Fails at a link.
fn make_directories(path: &Path) -> io::Result<()> {
    match nofollow::open_with(path, OFlags::PATH | OFlags::DIRECTORY) {
        Err(rustix::io::Errno::NOENT) => {
            make_directories(path.parent().unwrap_or(path))?;
            let (around, name) = nofollow::open_parent(path)?;
            nofollow::make_directory_in(&around, name, 0o755)
        }
        opened => opened.map(drop).map_err(Into::into),
    }
}
