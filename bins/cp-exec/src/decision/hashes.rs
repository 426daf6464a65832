//! Hashes of programs, cached by device, inode, size, modification and change time. Hashes of large files are also
//! stored in the home, because reading a whole interpreter for each command takes longer than starting it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cp_common::{Error, Result, clock};

use crate::digest::sha256_of;
use crate::policy::others_write;
use crate::sandbox::plan::Identity;

/// Hashes of files of at least this size are stored in the home.
const LARGE: u64 = 1 << 20;
/// A cache file that reaches this size is truncated.
const FULL: u64 = 256 << 10;
/// A file that changed within this time, in nanoseconds, could change again without a new time stamp.
const SETTLED: i64 = 2_000_000_000;

/// Hashes of files by their identity.
#[derive(Clone, Default)]
pub(crate) struct HashCache {
    known: HashMap<Key, String>,
    /// The interpreters that the first lines of scripts name.
    interpreters: HashMap<Key, Interpreter>,
    /// The cache file for large files; `None` if nothing is stored.
    kept: Option<PathBuf>,
    loaded: bool,
}

/// The interpreter that the first line of a script names, with its one argument; `None` for a program.
pub(crate) type Interpreter = Option<(String, Option<String>)>;

/// Device, inode, size, modification and change time.
type Key = (u64, u64, u64, i64, i64);

fn key(identity: &Identity) -> Option<Key> {
    identity.content.map(|(size, modified, changed)| (identity.dev, identity.ino, size, modified, changed))
}

impl HashCache {
    /// The cache of a home.
    pub(crate) fn of_home(home: &Path) -> Self {
        Self { kept: Some(home.join("state/program-hashes")), ..Self::default() }
    }

    /// The hash of a file, and whether the hash was cached.
    pub(crate) fn of(&mut self, identity: &Identity) -> Result<(String, bool)> {
        self.of_file(identity, || File::open(&identity.path))
    }

    /// The hash of a file that is open for reading.
    pub(crate) fn of_opened(&mut self, identity: &Identity, opened: &File) -> Result<String> {
        self.of_file(identity, || opened.try_clone()).map(|(hash, _)| hash)
    }

    fn of_file(&mut self, identity: &Identity, open: impl FnOnce() -> std::io::Result<File>) -> Result<(String, bool)> {
        let key = key(identity);
        let large = key.is_some_and(|(_, _, size, ..)| size >= LARGE);
        if large && !self.loaded {
            self.load();
        }
        if let Some(known) = key.and_then(|key| self.known.get(&key)) {
            return Ok((known.clone(), true));
        }
        let failed = |e| Error::io("cannot be read", e).in_file(&identity.path);
        let text = open().and_then(sha256_of).map_err(failed)?;
        if let Some(key) = key {
            self.known.insert(key, text.clone());
            if large {
                self.keep(key, &text);
            }
        }
        Ok((text, false))
    }

    /// The interpreter of a file. `read` determines it if it is not cached.
    pub(crate) fn interpreter(
        &mut self,
        identity: &Identity,
        read: impl FnOnce(&Path) -> Result<Interpreter>,
    ) -> Result<Interpreter> {
        let key = key(identity);
        if let Some(known) = key.and_then(|key| self.interpreters.get(&key)) {
            return Ok(known.clone());
        }
        let found = read(&identity.path)?;
        if let Some(key) = key {
            self.interpreters.insert(key, found.clone());
        }
        Ok(found)
    }

    /// Reads the cache file, unless other users could have written it.
    fn load(&mut self) {
        self.loaded = true;
        let Some(file) = &self.kept else { return };
        let me = rustix::process::geteuid().as_raw();
        let trusted = fs::metadata(file).is_ok_and(|meta| meta.uid() == me && !others_write(&meta));
        let text = if trusted { fs::read_to_string(file).unwrap_or_default() } else { String::new() };
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
            let (Some(dev), Some(ino), Some(size), Some(modified), Some(changed)) =
                (number(), number(), number(), number(), number())
            else {
                continue;
            };
            let Some(hash) = words.next().filter(|hash| hash.len() == 71 && hash.starts_with("sha256:")) else {
                continue;
            };
            let key = (dev.cast_unsigned(), ino.cast_unsigned(), size.cast_unsigned(), modified, changed);
            self.known.insert(key, hash.to_owned());
        }
    }

    /// Appends a hash to the cache file. Errors are ignored, because the hash can be computed again.
    fn keep(&self, key: Key, hash: &str) {
        let (dev, ino, size, modified, changed) = key;
        let now = i64::try_from(clock::unix_seconds()).unwrap_or(0).saturating_mul(1_000_000_000);
        let Some(file) = self.kept.as_ref().filter(|_| changed.max(modified) < now.saturating_sub(SETTLED)) else {
            return;
        };
        let mut line = String::new();
        let (dev, ino, size) = (dev.cast_signed(), ino.cast_signed(), size.cast_signed());
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{dev} {ino} {size} {modified} {changed} {hash}");
        let full = fs::metadata(file).is_ok_and(|meta| meta.len() > FULL);
        if let Some(directory) = file.parent()
            && cp_common::home::make_directory(directory).is_ok()
            && let Ok(mut file) =
                OpenOptions::new().append(!full).write(true).truncate(full).create(true).mode(0o600).open(file)
        {
            drop(file.write_all(line.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &Path) -> Identity {
        Identity::of(path, &fs::metadata(path).unwrap())
    }

    #[test]
    fn large_file_hash_is_cached_until_file_changes() {
        let home = tempfile::tempdir().unwrap();
        let large = home.path().join("large");
        fs::write(&large, vec![7; 2 << 20]).unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_mins(1);
        File::options().write(true).open(&large).unwrap().set_modified(long_ago).unwrap();
        let mut old = identity(&large);
        // The change time cannot be set, so the test replaces it in the identity.
        let (size, modified, _) = old.content.unwrap();
        old.content = Some((size, modified, modified));
        let (hash, known) = HashCache::of_home(home.path()).of(&old).unwrap();
        assert!(!known);
        assert_eq!(HashCache::of_home(home.path()).of(&old).unwrap(), (hash.clone(), true));
        fs::write(&large, vec![8; 2 << 20]).unwrap();
        let (other, known) = HashCache::of_home(home.path()).of(&identity(&large)).unwrap();
        assert!(!known && other != hash);
        // The file changed just now, so its hash is not stored.
        assert!(!HashCache::of_home(home.path()).of(&identity(&large)).unwrap().1);
    }
}
