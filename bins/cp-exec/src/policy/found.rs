//! What a policy hides or keeps by its name, such as `**/.env`: looked for at any depth before every run, since a command can move
//! what an earlier one left in its place.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use rustix::fs::{FileType, OFlags, RawDir};

use super::hidden::is_environment_file;
use super::patterns::Pattern;
use super::resolved::Policy;
use crate::glob::name_matches;
use crate::place;
use crate::refusal::refuse;

/// What was found, by what is done with it. `pinned` is what a rename of a directory on the way could take out of its pattern.
#[derive(Default)]
pub(crate) struct Found {
    pub hidden: Vec<PathBuf>,
    pub hidden_pinned: Vec<PathBuf>,
    pub kept: Vec<PathBuf>,
    pub kept_pinned: Vec<PathBuf>,
}

impl Policy {
    /// Looks for what is hidden or kept for its name, everywhere in these trees.
    pub(crate) fn look_for_names(&self, roots: &[&Path]) -> Result<Found> {
        let by_words = |patterns: &'_ [Pattern]| -> Vec<Pattern> {
            patterns.iter().filter(|pattern| pattern.tree().is_none()).cloned().collect()
        };
        let (hidden, kept) = (by_words(&self.bounds.forbidden), by_words(&self.pristine));
        let mut roots: Vec<&Path> = roots.iter().copied().filter(|root| !is_of_the_system(root)).collect();
        roots.sort_unstable();
        roots.dedup();
        let mut outermost: Vec<&Path> = Vec::new();
        for root in roots {
            if !outermost.iter().any(|outer| root.starts_with(outer)) {
                outermost.push(root);
            }
        }
        let most = self.loaded.settings.paths.walk;
        let skipped = self.masks();
        let mut walk = Walk { hidden, kept, skipped, left: most, most, found: Found::default() };
        for root in outermost {
            walk.root(root)?;
        }
        Ok(walk.found)
    }
}

/// Trees of programs that the system's owner keeps, and no command can write.
fn is_of_the_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store"].iter().any(|tree| path.starts_with(tree))
}

struct Walk {
    hidden: Vec<Pattern>,
    kept: Vec<Pattern>,
    /// Hidden by their paths, with everything in them.
    skipped: Vec<PathBuf>,
    /// How many entries may still be looked at, and how many there could be at first.
    left: u64,
    most: u64,
    found: Found,
}

impl Walk {
    fn root(&mut self, root: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("cannot be looked at", e).in_file(root);
        let Some(file) = place::open(root).map_err(failed)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            self.look(root);
            return Ok(());
        }
        // Directories still to be read, deepest last: their paths alone, for thousands may wait.
        let mut waiting = vec![root.to_owned()];
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        while let Some(directory) = waiting.pop() {
            match open(&directory) {
                Ok(Some(file)) => self.read(&directory, &file, &mut buffer, &mut waiting)?,
                Ok(None) => {}
                // Its owner could change its mode, so what cannot be looked into is hidden as a whole.
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => self.found.hidden.push(directory),
                Err(e) => return Err(unseen(&directory, &e)),
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        directory: &Path,
        file: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        waiting: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let mut entries = RawDir::new(file.as_fd(), buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| unseen(directory, &e.into()))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or_else(|| too_many(self.most, directory))?;
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let stat = rustix::fs::statat(file, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            let is_directory = kind == FileType::Directory;
            if !is_directory && !self.may_mean(name) {
                continue;
            }
            let path = directory.join(OsStr::from_bytes(name));
            // A link is not what it leads to, and that is looked at where it lies.
            if kind != FileType::Symlink && !self.look(&path) && is_directory && !self.skipped.contains(&path) {
                waiting.push(path);
            }
        }
        Ok(())
    }

    /// Whether a pattern could mean an entry with this name. It spares most entries a path.
    fn may_mean(&self, name: &[u8]) -> bool {
        let text = String::from_utf8_lossy(name);
        is_environment_file(&text)
            || self
                .hidden
                .iter()
                .chain(&self.kept)
                .any(|pattern| pattern.anywhere().is_none_or(|word| name_matches(word, &text)))
    }

    /// Takes an entry down if it is meant; true if it is hidden with everything in it.
    fn look(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let meant = |patterns: &[Pattern]| {
            let meant = patterns.iter().filter(|pattern| match pattern.anywhere() {
                Some(word) => name_matches(word, &name),
                None => pattern.matches(path),
            });
            // It is found again wherever it is moved if its name alone decides.
            meant.map(|pattern| pattern.anywhere().is_none()).min()
        };
        let environment = is_environment_file(&name).then_some(false);
        match (environment.or_else(|| meant(&self.hidden)), meant(&self.kept)) {
            (Some(false), _) => self.found.hidden.push(path.to_owned()),
            (Some(true), _) => self.found.hidden_pinned.push(path.to_owned()),
            (None, Some(false)) => self.found.kept.push(path.to_owned()),
            (None, Some(true)) => self.found.kept_pinned.push(path.to_owned()),
            (None, None) => {}
        }
        environment.is_some() || meant(&self.hidden).is_some()
    }
}

/// Opens a directory of the walk to be read, through no link; none if it is no longer there.
fn open(directory: &Path) -> std::io::Result<Option<OwnedFd>> {
    match place::open_with(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Some(file)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What cannot be looked into may hold anything, so nothing runs beside it.
fn unseen(directory: &Path, error: &std::io::Error) -> Error {
    let shown: String = directory.display().to_string().chars().take(200).collect();
    refuse("paths.walk", format!("{shown} cannot be searched for what the policy hides by its name: {error}"))
        .with("path", shown)
        .hint("move or remove that directory, then try again")
}

fn too_many(most: u64, directory: &Path) -> Error {
    refuse("paths.walk", format!("more than {most} entries to look through for what the policy hides by its name"))
        .with("setting", "paths.walk")
        .with("path", directory.display().to_string())
        .hint("make fewer files visible: start in a smaller directory; the owner of the policy can raise paths.walk or list narrower directories")
}
