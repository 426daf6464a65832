//! The places of the default home: data, configuration and state, as the XDG Base Directory Specification divides them.
//!
//! Earlier versions kept `config` and `state` in the directory of data. As long as these exist, they are used there. After
//! a move they are links, so that earlier versions and other configurations still find the files.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};

use crate::home::files::{lock, lock_shared};
use crate::home::{Home, make_directory};
use crate::signals;
use crate::wire::{Code, Error, Result};

/// A place of the default home.
pub(super) struct Place {
    /// The name in a home that holds everything; empty for data.
    pub(super) name: &'static str,
    variable: &'static str,
    /// The value of the variable if it is not set, below the user's home directory.
    default: &'static str,
}

pub(super) const DATA: Place = Place { name: "", variable: "XDG_DATA_HOME", default: ".local/share" };
pub(super) const CONFIG: Place = Place { name: "config", variable: "XDG_CONFIG_HOME", default: ".config" };
pub(super) const STATE: Place = Place { name: "state", variable: "XDG_STATE_HOME", default: ".local/state" };

/// The places that a move empties.
const MOVED: [Place; 2] = [CONFIG, STATE];

impl Place {
    /// Returns the directory. A relative value of the variable is ignored, as the specification requires.
    pub(super) fn directory(&self) -> Result<PathBuf> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute(self.variable).or_else(|| Some(absolute("HOME")?.join(self.default)));
        let Some(base) = base else {
            return Err(Error::config("no home directory: HOME is not an absolute path")
                .hint(format!("give --home DIR, or set CP_HOME or HOME; {} must be absolute, too", self.variable)));
        };
        Ok(base.join("cp"))
    }

    /// Returns the directory of the home with these data: inside it, or the target of a link there, as long as it exists.
    pub(super) fn of(&self, data: &Path) -> Result<PathBuf> {
        let inside = data.join(self.name);
        match inside.symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                Ok(inside.read_link().ok().filter(|to| to.is_absolute()).unwrap_or(inside))
            }
            Ok(_) => Ok(inside),
            Err(_) => self.directory(),
        }
    }

    fn is_inside(&self, data: &Path) -> bool {
        data.join(self.name).symlink_metadata().is_ok_and(|found| found.is_dir())
    }
}

/// Waits until no move is in progress. Returns a lock that prevents one, if a place is still inside the directory of data.
pub(super) fn keep(data: &Path) -> Result<Option<File>> {
    let is_movable = || MOVED.iter().any(|place| place.is_inside(data));
    // A directory that cannot be opened cannot be moved either.
    let Some(directory) = is_movable().then(|| File::open(data).ok()).flatten() else { return Ok(None) };
    lock_shared(&directory).map_err(|e| e.in_file(data).fatal())?;
    Ok(is_movable().then_some(directory))
}

impl Home {
    /// Returns the places that a move would empty, each with its new directory.
    pub fn movable(&self) -> Vec<(PathBuf, PathBuf)> {
        let inside = MOVED.iter().filter(|place| self.is_default && place.is_inside(&self.root));
        inside.filter_map(|place| Some((self.root.join(place.name), place.directory().ok()?))).collect()
    }

    /// Moves the configuration and the state out of the directory of data, while no other process uses the home. Returns
    /// what was moved. Data stay. If this process is killed, each place is whole, in the old or the new directory.
    pub fn move_places(&mut self) -> Result<Vec<(PathBuf, PathBuf)>> {
        if let Some(directory) = self.lock.clone() {
            lock(&*directory).map_err(|e| e.in_file(&self.root).fatal())?;
        }
        let _effect = signals::effect();
        // Another process may have moved them during the wait.
        let moves = self.movable();
        for (from, to) in &moves {
            move_directory(from, to)?;
        }
        for place in MOVED.iter().filter(|_| self.is_default) {
            // The original of a copy, also of a process that was killed.
            let _ = std::fs::remove_dir_all(original(&self.root.join(place.name)));
        }
        (self.config, self.state) = (CONFIG.of(&self.root)?, STATE.of(&self.root)?);
        Ok(moves)
    }
}

/// Returns the name of a directory after its copy has taken its place.
fn original(from: &Path) -> PathBuf {
    from.with_extension("moved")
}

/// Moves a directory, and leaves a link to it. One rename completes the move.
fn move_directory(from: &Path, to: &Path) -> Result<()> {
    make_directory(to.parent().unwrap_or(to))?;
    let failed = |e: std::io::Error| Error::io("moving to", e).in_file(to).with("from", from.display().to_string());
    // The mark of a copy names its original, because only such a copy may be removed.
    let mark = to.join(format!(".cp-copy-{}", from.metadata().map_err(failed)?.ino()));
    let _ = match to.read_link() {
        // What a move leaves that is killed before its rename.
        Ok(target) if target == to => std::fs::remove_file(to),
        Err(_) if mark.exists() => std::fs::remove_dir_all(to),
        _ => std::fs::remove_dir(to),
    };
    if to.symlink_metadata().is_ok() {
        return Err(Error::new(Code::Conflict, format!("{} and {} both exist", from.display(), to.display()))
            .with("path", to.display().to_string())
            .hint("the second is not in use: move its files into the first, or away, and repeat"));
    }
    let moved = exchange(from, to, to).or_else(|_| {
        // The two lie on different file systems, or theirs cannot exchange names.
        let original = original(from);
        let _ = std::fs::remove_file(&original);
        copy_directory(from, to, Some(&mark))?;
        syncfs(File::open(to)?)?;
        exchange(from, &original, to)?;
        std::fs::remove_file(&mark)
    });
    let places = [from.parent().unwrap_or(from), to];
    moved.and_then(|()| places.iter().try_for_each(|place| Ok(syncfs(File::open(place)?)?))).map_err(failed)
}

/// Puts a link to `target` in the place of a directory, which takes the name `to`.
fn exchange(from: &Path, to: &Path, target: &Path) -> std::io::Result<()> {
    symlink(target, to)?;
    let exchanged = renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE);
    if exchanged.is_err() {
        std::fs::remove_file(to)?;
    }
    Ok(exchanged?)
}

fn copy_directory(from: &Path, to: &Path, mark: Option<&Path>) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    if let Some(mark) = mark {
        File::create(mark)?;
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy_directory(&from, &to, None)?;
        } else if kind.is_symlink() {
            symlink(from.read_link()?, to)?;
        } else if kind.is_file() {
            std::fs::copy(from, to)?;
        }
    }
    std::fs::set_permissions(to, from.metadata()?.permissions())
}
