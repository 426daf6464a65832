//! Restores the history of a repository from the copies that were kept before a run: its objects, and the references,
//! logs and index of a snapshot.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use rustix::fs::OFlags;

use super::keep::{DAY, DIRECTORY, GONE, OBJECTS, SNAPSHOTS, numbers};
use super::{give_to_owner_of, make_directories};
use crate::nofollow;

/// The files that are restored in a repository.
pub(crate) struct Recovery {
    pub repository: PathBuf,
    pub objects: Vec<Restored>,
    /// References, logs and indexes.
    pub files: Vec<Restored>,
}

/// A file of the repository that is restored.
pub(crate) struct Restored {
    /// Its path in the repository.
    pub path: PathBuf,
    pub reason: &'static str,
    pub from: PathBuf,
}

const MISSING: &str = "missing";

impl Recovery {
    /// Finds what is missing or differs from a snapshot and from the objects that existed then.
    pub(crate) fn find(snapshot: &Path) -> Result<Self> {
        let gone = || Error::not_found("the history from before the run is no longer kept").in_file(snapshot);
        let id = snapshot.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        let keep = snapshot.parent().filter(|parent| parent.ends_with(SNAPSHOTS)).and_then(Path::parent);
        let repository = keep.filter(|keep| keep.ends_with(DIRECTORY)).and_then(Path::parent);
        let (Some(id), Some(keep), Some(repository), true) = (id, keep, repository, snapshot.is_dir()) else {
            return Err(gone());
        };
        // Objects that the run removed were put aside later.
        let later = numbers(&keep.join(GONE)).into_iter().filter(|day| *day >= id / DAY);
        let kept = later.map(|day| keep.join(GONE).join(day.to_string())).chain([keep.join(OBJECTS)]);
        let (mut objects, mut seen) = (Vec::new(), BTreeSet::new());
        for kept in kept {
            let new = files_below(&kept).into_iter().filter(|path| seen.insert(path.clone()));
            objects.extend(new.filter_map(|path| restored(repository, &kept, path, "damaged")));
        }
        let files = files_below(snapshot).into_iter();
        let files = files.filter(|path| !is_continued(&repository.join(path), &snapshot.join(path)));
        let files = files.filter_map(|path| restored(repository, snapshot, path, "has another value")).collect();
        Ok(Self { repository: repository.to_owned(), objects, files })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.files.is_empty()
    }

    /// Restores the files, objects first.
    pub(crate) fn apply(&self) -> Result<()> {
        for directory in ["objects", "refs"] {
            let path = self.repository.join(directory);
            let made =
                make_directories(&self.repository, &path).and_then(|()| give_to_owner_of(&self.repository, &path));
            made.map_err(|e| Error::io("cannot be put back", e).in_file(&path))?;
        }
        let objects = self.objects.iter().map(|one| (one, 0o444));
        for (restored, mode) in objects.chain(self.files.iter().map(|one| (one, 0o644))) {
            let to = self.repository.join(&restored.path);
            self.restore(&restored.from, &to, mode).map_err(|e| Error::io("cannot be put back", e).in_file(&to))?;
        }
        // Files that git derives from objects may be damaged too. Git creates them again.
        for derived in ["objects/info/commit-graph", "objects/pack/multi-pack-index"] {
            drop(fs::remove_file(self.repository.join(derived)));
        }
        Ok(())
    }

    fn restore(&self, from: &Path, to: &Path, mode: u32) -> io::Result<()> {
        make_directories(&self.repository, to.parent().unwrap_or(to))?;
        super::put_back(to, &mut File::open(from)?, Some(mode))
    }
}

/// A file that is missing in the repository, or differs from its copy for this reason.
fn restored(repository: &Path, kept: &Path, path: PathBuf, reason: &'static str) -> Option<Restored> {
    let (from, to) = (kept.join(&path), repository.join(&path));
    let reason = if to.symlink_metadata().is_ok() { reason } else { MISSING };
    (reason == MISSING || !begins_with(&to, &from, true)).then_some(Restored { path, reason, from })
}

/// True if a log was only continued. Its new lines name what the owner may still need.
fn is_continued(now: &Path, before: &Path) -> bool {
    before.iter().any(|part| part == "logs") && begins_with(now, before, false)
}

/// True if a regular file begins with the bytes of another one, and has no more if `is_all`.
fn begins_with(path: &Path, other: &Path, is_all: bool) -> bool {
    let open = |path| nofollow::open_with(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from).ok();
    let (Some(file), Some(other)) = (open(path), open(other)) else { return false };
    let (Ok(meta), Ok(other_meta)) = (file.metadata(), other.metadata()) else { return false };
    if !meta.is_file() || meta.len() < other_meta.len() || is_all && meta.len() > other_meta.len() {
        return false;
    }
    let (mut file, mut other) = (BufReader::new(file), BufReader::new(other));
    loop {
        let (Ok(bytes), Ok(wanted)) = (file.fill_buf(), other.fill_buf()) else { return false };
        let length = bytes.len().min(wanted.len());
        if wanted.is_empty() || length == 0 || bytes[..length] != wanted[..length] {
            return wanted.is_empty();
        }
        file.consume(length);
        other.consume(length);
    }
}

/// The paths of the files below a directory, relative to it.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => found.extend(entry.path().strip_prefix(root).map(Path::to_owned)),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
