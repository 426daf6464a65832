//! Copies of a repository's history that are kept before a run, in a directory of the repository that is hidden
//! inside the run. Objects are kept once and never change; references, logs and indexes are kept as dated snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::{Repository, give_to_owner_of, make_directories};
use crate::nofollow::{self, NewFile, names, open_directory};

/// The name of the directory in the repository.
pub(crate) const DIRECTORY: &str = "cp-keep";
/// Objects that exist in the repository, and objects that no longer exist, by the day on which they were found
/// missing.
pub(super) const OBJECTS: &str = "kept";
pub(super) const GONE: &str = "gone";
pub(super) const SNAPSHOTS: &str = "snapshots";
/// The file with the state of the directory.
const STATE: &str = "state.json";

/// The most bytes that are copied if the file system cannot share blocks between files.
const COPIED: u64 = 256 << 20;
/// The number of snapshots that are always kept. Of older ones the newest of each day is kept.
const NEWEST: usize = 10;
/// The time for which removed objects and older snapshots are kept.
const DAYS: u64 = 7;
/// A day in milliseconds, in which snapshots are named.
pub(super) const DAY: u64 = 86_400_000;
/// A directory that changed within this time may change again without a new time stamp.
const RACY: Duration = Duration::from_millis(50);

/// Parts of a repository, besides its objects, that ordinary work changes.
const CHANGING: [&str; 6] = ["HEAD", "index", "packed-refs", "shallow", "refs", "logs"];

/// Size and change time of a file of the repository.
type Stamp = (u64, i64);

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The change time of each directory of objects when it was last read.
    directories: BTreeMap<PathBuf, i64>,
    /// True if the file system can share blocks between files.
    shares: Option<bool>,
    /// The number of bytes that were copied.
    copied: u64,
    /// The number of objects that are hard links to files of the repository.
    linked: u64,
    /// The newest snapshot, and its files.
    snapshot: String,
    files: BTreeMap<PathBuf, Stamp>,
}

/// The kept history of a repository.
pub(super) struct KeptHistory {
    /// The snapshot of references, logs and indexes.
    pub snapshot: PathBuf,
    /// The number of objects that share their file with the repository, so that a run can damage both.
    pub linked: u64,
}

/// The directory with the kept history of one repository.
pub(super) struct KeepDirectory<'a> {
    repository: &'a Repository,
    path: PathBuf,
}

impl<'a> KeepDirectory<'a> {
    pub(super) fn of(repository: &'a Repository) -> Self {
        Self { repository, path: repository.path.join(DIRECTORY) }
    }

    /// Opens the directory, and creates it if it does not exist.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(CWD, &self.path, Mode::RWXU) {
            Ok(()) => self.give_to_owner(&self.path)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        open_directory(CWD, &self.path)
    }

    /// Gives a new file to the owner of the repository.
    pub(super) fn give_to_owner(&self, made: &Path) -> io::Result<()> {
        give_to_owner_of(&self.repository.path, made)
    }

    /// Keeps new objects and references. If nothing changed, this costs one stat per directory of objects and per
    /// reference.
    pub(super) fn update(&self) -> io::Result<KeptHistory> {
        let file = self.path.join(STATE);
        let text = super::read_bounded(&file, u64::MAX);
        let mut state: State = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let objects = self.objects(&mut state)?;
        let snapshot = self.snapshot(&mut state)?;
        if objects || snapshot {
            self.expire(&state)?;
            super::put_back(&file, &mut serde_json::to_vec(&state)?.as_slice(), None)?;
        }
        let snapshot = self.path.join(SNAPSHOTS).join(&state.snapshot);
        Ok(KeptHistory { snapshot, linked: state.linked })
    }

    /// Keeps new objects, and moves removed ones aside. True if anything changed.
    fn objects(&self, state: &mut State) -> io::Result<bool> {
        let (mut changed, mut seen) = (false, BTreeSet::new());
        for directory in &self.repository.directories {
            let objects = directory.join("objects");
            let Some(held) = open_plain(&objects)? else { continue };
            for name in names(&held)?.into_iter().filter(|name| name == "pack" || name.len() == 2) {
                let path = objects.join(&name);
                let stat = rustix::fs::statat(&held, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                let time = nanoseconds(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0));
                let relative = path.strip_prefix(&self.repository.path).unwrap_or(&path).to_owned();
                seen.insert(relative.clone());
                if state.directories.get(&relative) == Some(&time) {
                    continue;
                }
                changed = true;
                self.keep_directory(&path, &relative, state)?;
                let racy = i64::try_from(now().saturating_sub(RACY).as_nanos()).unwrap_or(i64::MAX) < time;
                if !racy {
                    state.directories.insert(relative, time);
                }
            }
        }
        // A directory that was removed as a whole is not seen above.
        for relative in state.directories.keys().filter(|known| !seen.contains(*known)).cloned().collect::<Vec<_>>() {
            changed = true;
            state.directories.remove(&relative);
            self.put_aside(&self.repository.path.join(&relative), &relative)?;
        }
        Ok(changed)
    }

    fn keep_directory(&self, path: &Path, relative: &Path, state: &mut State) -> io::Result<()> {
        let Some(from) = open_plain(path)? else { return Ok(()) };
        let to = self.path.join(OBJECTS).join(relative);
        make_directories(&self.repository.path, &to)?;
        let held = open_directory(CWD, &to)?;
        let kept: BTreeSet<_> = names(&held)?.into_iter().collect();
        for name in names(&from)? {
            let is_temporary =
                name.as_encoded_bytes().starts_with(b"tmp_") || name.as_encoded_bytes().starts_with(b".");
            if !is_temporary && !kept.contains(&name) {
                keep_file(from.as_fd(), &held, Path::new(&name), state)?;
            }
        }
        self.put_aside(path, relative)
    }

    /// Moves kept objects aside that no longer exist in the repository.
    fn put_aside(&self, path: &Path, relative: &Path) -> io::Result<()> {
        let kept = self.path.join(OBJECTS).join(relative);
        let Some(held) = open_plain(&kept)? else { return Ok(()) };
        for name in names(&held)?.into_iter().filter(|name| path.join(name).symlink_metadata().is_err()) {
            let aside = self.path.join(GONE).join(today().to_string()).join(relative);
            make_directories(&self.repository.path, &aside)?;
            fs::rename(kept.join(&name), aside.join(&name))?;
        }
        Ok(())
    }

    /// Keeps references, logs and indexes if any of them changed. True if so.
    fn snapshot(&self, state: &mut State) -> io::Result<bool> {
        let mut files = BTreeMap::new();
        for directory in &self.repository.directories {
            files.extend(files_of(&self.repository.path, directory)?);
        }
        if files == state.files {
            return Ok(false);
        }
        let snapshots = self.path.join(SNAPSHOTS);
        let mut id = format!("{}", now().as_millis());
        while snapshots.join(&id).exists() {
            id.push('0');
        }
        for (relative, stamp) in &files {
            let to = snapshots.join(&id).join(relative);
            make_directories(&self.repository.path, to.parent().unwrap_or(&to))?;
            let before = snapshots.join(&state.snapshot).join(relative);
            let is_same = state.files.get(relative) == Some(stamp) && !state.snapshot.is_empty();
            if is_same && fs::hard_link(&before, &to).is_ok() {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let Ok(source) = nofollow::open_with(&self.repository.path.join(relative), flags) else { continue };
            io::copy(&mut File::from(source), &mut File::create_new(&to)?)?;
            self.give_to_owner(&to)?;
        }
        (state.snapshot, state.files) = (id, files);
        Ok(true)
    }

    /// Removes copies that have expired.
    fn expire(&self, state: &State) -> io::Result<()> {
        for day in numbers(&self.path.join(GONE)).into_iter().filter(|day| day + DAYS < today()) {
            fs::remove_dir_all(self.path.join(GONE).join(day.to_string()))?;
        }
        let mut days = BTreeSet::new();
        for old in snapshots(&self.path).into_iter().skip(NEWEST) {
            let day = old.parse().unwrap_or(0) / DAY;
            if old != state.snapshot && (day + DAYS < today() || !days.insert(day)) {
                fs::remove_dir_all(self.path.join(SNAPSHOTS).join(old))?;
            }
        }
        Ok(())
    }
}

/// Keeps an object: as a clone of the file, else as a copy, else as a hard link.
fn keep_file(from: std::os::fd::BorrowedFd<'_>, to: &OwnedFd, name: &Path, state: &mut State) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
    let meta = source.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    let mut target = NewFile::make(to.as_fd())?;
    if state.shares.is_some_and(|shares| !shares) || rustix::fs::ioctl_ficlone(&target.file, &source).is_err() {
        state.shares = Some(false);
        if state.copied + meta.len() > COPIED {
            state.linked += 1;
            return Ok(rustix::fs::linkat(from, name, to, name, AtFlags::empty())?);
        }
        state.copied += io::copy(&mut source, &mut target.file)?;
    }
    target.file.set_permissions(fs::Permissions::from_mode(0o400))?;
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::fchown(&target.file, Some(meta.uid()), Some(meta.gid()))?;
    }
    target.place(name.as_os_str())
}

/// The snapshots, newest first.
fn snapshots(keep: &Path) -> Vec<String> {
    let entries = fs::read_dir(keep.join(SNAPSHOTS)).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// Directories whose names are numbers.
pub(super) fn numbers(directory: &Path) -> Vec<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Opens a directory without following links; `None` if it does not exist.
fn open_plain(path: &Path) -> io::Result<Option<OwnedFd>> {
    match nofollow::open_with(path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(directory) => Ok(Some(directory)),
        Err(e) if matches!(io::Error::from(e).kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(rustix::io::Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The references, logs and index in a directory.
fn files_of(repository: &Path, directory: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut files = BTreeMap::new();
    for name in CHANGING {
        stamps(repository, &directory.join(name), &mut files)?;
    }
    Ok(files)
}

/// The files at and below a path, with size and change time.
fn stamps(root: &Path, path: &Path, files: &mut BTreeMap<PathBuf, Stamp>) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            stamps(root, &entry?.path(), files)?;
        }
    } else if meta.is_file() {
        let time = nanoseconds(meta.mtime(), meta.mtime_nsec());
        files.insert(path.strip_prefix(root).unwrap_or(path).to_owned(), (meta.size(), time));
    }
    Ok(())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Days since 1970.
fn today() -> u64 {
    now().as_secs() / 86_400
}
