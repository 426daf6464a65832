//! The content store under the home, `state/kept`: for runs, for file tools and for the history of repositories.
//! Objects are named by the SHA-256 of their bytes. A manifest lists the files of one tree by device, inode, size and
//! times, so that an unchanged file costs one stat and no read. Each run pins its manifests, by hard links, until its
//! changes are known; then the run pins only the contents that it overwrote or removed, and the manifests of
//! repositories.
//!
//! Objects of a run are not synced: after a power failure the newest may be missing. A read verifies the hash, and the
//! stamps in a manifest of an earlier boot are not trusted.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::Result;
use cp_common::home::{Home, make_directory};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use rustix::fs::{FlockOperation, Stat, flock};
use sha2::{Digest as _, Sha256};

/// The objects are stored like the blobs of a ledger of this name.
const OBJECTS: &str = "objects";
/// The largest file of a working tree that is kept and hashed, and the largest of a repository.
pub(crate) const LARGEST: u64 = 16 << 20;
pub(super) const LARGEST_OF_GIT: u64 = 256 << 20;
/// The size of all objects together.
const CAPACITY: u64 = 1 << 30;
/// A sweep runs if the objects need more than this. It removes the least recently used manifests until less is in
/// use.
const NEARLY_FULL: u64 = CAPACITY / 8 * 7;
/// Contents that older runs overwrote are kept for this long, and those of the newest runs even longer.
const RETENTION_SECONDS: i64 = 7 * 24 * 3600;
const NEWEST_RUNS: usize = 50;
/// The time between two sweeps.
const SWEEP_SECONDS: i64 = 600;
/// A file that changed within this time before a capture could change again with the same time stamps, because some
/// file systems have a resolution of 2 s.
const SETTLED_NANOSECONDS: i64 = 2_000_000_000;

/// The length of a boot id with padding, and of a row without its path: the stamp, the hash and the path's length.
const HEADER: usize = 40;
const ROW: usize = 76;

/// Numbers the runs and temporary files of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Device, inode, size, modification and change time: the identity of a file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime: i64,
    pub ctime: i64,
}

impl Stamp {
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds of a second")]
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest as i64);
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            mtime: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// True if a later change of the file is certain to change the stamp.
    pub(super) fn is_settled(&self, now: i64) -> bool {
        self.mtime.max(self.ctime) < now.saturating_sub(SETTLED_NANOSECONDS)
    }
}

/// The content store of a home.
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    pub(crate) fn of_home(home: &Home) -> Self {
        Self { root: home.state("kept") }
    }

    /// Reads an object and verifies its hash.
    pub(crate) fn load(&self, hash: &Hash) -> Result<Vec<u8>> {
        blob::load(&self.root.join(OBJECTS), hash)
    }

    pub(super) fn has(&self, hash: &Hash) -> bool {
        self.length(hash).is_some()
    }

    fn length(&self, hash: &Hash) -> Option<u64> {
        fs::metadata(self.object(hash)).ok().map(|meta| meta.len())
    }

    /// Starts to add contents. Sweeps first if a sweep is due.
    pub(crate) fn session(&self) -> io::Result<Session<'_>> {
        for part in ["objects.blobs", "runs", "trees", "tmp"] {
            make_directory(&self.root.join(part)).map_err(|e| io::Error::other(e.message().to_owned()))?;
        }
        let path = self.root.join("lock");
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let now = touch(&lock)?;
        let swept = fs::metadata(self.root.join("swept")).map_or(0, |meta| meta.mtime());
        if now / 1_000_000_000 - swept > SWEEP_SECONDS && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            self.sweep(now / 1_000_000_000, NEARLY_FULL)?;
        }
        flock(&lock, FlockOperation::LockShared)?;
        let run = format!("{:012}-{}-{:08}", now / 1_000_000_000, std::process::id(), number());
        Ok(Session {
            store: self,
            lock: Some(lock),
            now,
            size: self.size(),
            added: 0,
            clones: true,
            run,
            pins: Vec::new(),
        })
    }

    /// The files that a manifest lists, with their hashes; none if it is no longer kept.
    pub(crate) fn files_of(&self, manifest: &str) -> Vec<(Stamp, Hash, PathBuf)> {
        let manifest = fs::read(self.run(manifest)).unwrap_or_default();
        rows(&manifest).map(|(stamp, hash, path)| (stamp, hash, path.to_owned())).collect()
    }

    fn run(&self, name: &str) -> PathBuf {
        self.root.join("runs").join(name)
    }

    fn object(&self, hash: &Hash) -> PathBuf {
        blob::path(&self.root.join(OBJECTS), hash)
    }

    fn temporary(&self) -> PathBuf {
        self.root.join("tmp").join(format!("{}-{}", std::process::id(), number()))
    }

    /// The size of all objects: the result of the last sweep, and the additions of each session since then.
    fn size(&self) -> u64 {
        let bytes = fs::read(self.root.join("size")).unwrap_or_default();
        bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok()).map(u64::from_le_bytes).sum()
    }

    /// Removes objects that no run needs, and the least recently used manifests beyond `most` bytes. Waits until no
    /// session is open.
    pub(super) fn sweep(&self, now: i64, most: u64) -> io::Result<()> {
        let mut runs = names(&self.root.join("runs"))?;
        runs.sort_by(|one, other| other.cmp(one));
        let mut holders = Vec::new();
        for (place, name) in runs.iter().enumerate() {
            let since = name.get(..12).and_then(|digits| digits.parse::<i64>().ok()).unwrap_or(0);
            holders.push((since, place < NEWEST_RUNS, self.root.join("runs").join(name)));
        }
        for name in names(&self.root.join("trees"))? {
            let path = self.root.join("trees").join(name);
            holders.push((fs::metadata(&path).map_or(0, |meta| meta.mtime()), false, path));
        }
        holders.sort_by_key(|(since, ..)| std::cmp::Reverse(*since));
        let mut live = HashMap::new();
        let mut total = 0;
        for (since, is_new, path) in &holders {
            let is_needed = *is_new || now - since < RETENTION_SECONDS;
            let manifest = if is_needed { fs::read(path).unwrap_or_default() } else { Vec::new() };
            let listed: HashMap<Hash, u64> = rows(&manifest).map(|(stamp, hash, _)| (hash, stamp.size)).collect();
            let is_empty = listed.is_empty();
            let fresh: HashMap<Hash, u64> = listed.into_iter().filter(|(hash, _)| !live.contains_key(hash)).collect();
            let added: u64 = fresh.values().sum();
            if is_empty || (total > 0 && total + added > most) {
                fs::remove_file(path)?;
                continue;
            }
            total += added;
            live.extend(fresh);
        }
        let (mut size, objects) = (0, blob::directory(&self.root.join(OBJECTS)));
        for name in names(&objects)? {
            match Hash::from_hex(name.as_bytes()).and_then(|hash| live.get(&hash)) {
                Some(kept) => size += kept,
                None => fs::remove_file(objects.join(name))?,
            }
        }
        for name in names(&self.root.join("tmp"))? {
            fs::remove_file(self.root.join("tmp").join(name))?;
        }
        replace(&self.root.join("size"), &u64::to_le_bytes(size))?;
        replace(&self.root.join("swept"), b"")
    }
}

/// Adds contents to a store. While a session is open, no sweep removes anything.
pub(crate) struct Session<'a> {
    store: &'a Store,
    lock: Option<File>,
    /// The time of the kernel when the session began, in nanoseconds.
    pub(super) now: i64,
    size: u64,
    added: u64,
    /// True if the file system may share blocks between files.
    clones: bool,
    /// The name of the run among the pins.
    run: String,
    pins: Vec<PathBuf>,
}

impl Session<'_> {
    /// Keeps the content of a regular file. `None` if the store is full.
    pub(crate) fn keep(&mut self, file: &mut File) -> io::Result<Option<Hash>> {
        if self.size + self.added + file.metadata()?.len() > CAPACITY {
            let hash = Hash::from_raw(&copy(file, &mut io::sink())?.into());
            return Ok(self.store.has(&hash).then_some(hash));
        }
        let temporary = self.store.temporary();
        let mut made = create(&temporary)?;
        // A file shares the blocks of another one, if the file system supports it.
        self.clones &= rustix::fs::ioctl_ficlone(&made, &*file).is_ok();
        let hash =
            if self.clones { copy(&mut File::open(&temporary)?, &mut io::sink())? } else { copy(file, &mut made)? };
        let (hash, length) = (Hash::from_raw(&hash.into()), made.metadata()?.len());
        if self.store.length(&hash) == Some(length) {
            return fs::remove_file(temporary).map(|()| Some(hash));
        }
        fs::rename(temporary, self.store.object(&hash))?;
        self.added += length;
        Ok(Some(hash))
    }

    /// Keeps a content that a tool is about to replace, even if the store is full. It is on disk on return.
    pub(crate) fn keep_durably(&mut self, hash: &Hash, bytes: &[u8]) -> Result<()> {
        if !self.store.has(hash) {
            self.added += bytes.len() as u64;
        }
        blob::store_as(&self.store.root.join(OBJECTS), hash, bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.store.temporary();
        create(&path)?.write_all(bytes)?;
        Ok(path)
    }

    /// The files that the last capture of a tree kept. The run pins the manifest.
    pub(super) fn known(&mut self, tree: &Path) -> HashMap<Stamp, Hash> {
        let pin = self.store.run(&format!("{}-{}", self.run, self.pins.len()));
        self.pins.push(pin.clone());
        if fs::hard_link(self.tree(tree), &pin).is_err() {
            return HashMap::new();
        }
        if let Ok(file) = File::open(&pin) {
            // A sweep removes the least recently used manifest first, so the time of use is updated.
            drop(touch(&file));
        }
        let manifest = fs::read(&pin).unwrap_or_default();
        let rows = rows(&manifest).filter(|_| manifest.starts_with(&boot_id()));
        rows.filter(|(stamp, ..)| stamp.ino != 0).map(|(stamp, hash, _)| (stamp, hash)).collect()
    }

    /// Replaces the manifest of the tree whose files were asked for last, and the pin.
    pub(super) fn publish(&mut self, tree: &Path, kept: &[(Stamp, Hash, &Path)]) -> io::Result<()> {
        // A stamp that another file could match is omitted from the row; only the content is listed.
        let row = |(stamp, hash, path): &(Stamp, Hash, &'_ Path)| {
            let size = Stamp { size: stamp.size, ..Stamp::default() };
            row(if stamp.is_settled(self.now) { *stamp } else { size }, hash, path)
        };
        let manifest = boot_id().into_iter().chain(kept.iter().flat_map(row)).collect::<Vec<_>>();
        let pin = self.pins.last().ok_or(io::ErrorKind::NotFound)?;
        fs::rename(self.write(&manifest)?, pin)?;
        let link = self.store.temporary();
        fs::hard_link(pin, &link)?;
        fs::rename(link, self.tree(tree))
    }

    /// Lets sweeps run again. What the run pins stays.
    pub(super) fn release(&mut self) -> io::Result<()> {
        if self.added > 0 {
            let mut size =
                OpenOptions::new().create(true).append(true).mode(0o600).open(self.store.root.join("size"))?;
            size.write_all(&self.added.to_le_bytes())?;
        }
        (self.added, self.lock) = (0, None);
        Ok(())
    }

    /// The names of the manifests, which stay as long as the store keeps what a run needs.
    pub(super) fn manifests(&self) -> Vec<String> {
        self.pins.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
    }

    /// Ends the session, and pins only these contents, such as those that a run overwrote or removed.
    pub(crate) fn keep_only(mut self, kept: &[Hash]) -> io::Result<()> {
        self.release()?;
        let lock = File::open(self.store.root.join("lock"))?;
        flock(&lock, FlockOperation::LockShared)?;
        if !kept.is_empty() {
            let stamp = |hash| Stamp { size: self.store.length(hash).unwrap_or(0), ..Stamp::default() };
            let rows = kept.iter().flat_map(|hash| row(stamp(hash), hash, Path::new("")));
            let manifest = boot_id().into_iter().chain(rows).collect::<Vec<_>>();
            fs::rename(self.write(&manifest)?, self.store.run(&self.run))?;
        }
        // An empty tree has no manifest.
        self.pins.iter().for_each(|path| drop(fs::remove_file(path)));
        Ok(())
    }

    fn tree(&self, tree: &Path) -> PathBuf {
        let name = Hash::of(tree.as_os_str().as_encoded_bytes());
        self.store.root.join("trees").join(name.hex())
    }
}

fn number() -> u64 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Writes a file that only its owner can read.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Sets the times of a file to the current time of the kernel, which also stamps changed files, and returns it.
fn touch(file: &File) -> io::Result<i64> {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?;
    Ok(Stamp::of(&rustix::fs::fstat(file)?).mtime)
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The id of this boot, or zeros if the kernel does not provide one.
fn boot_id() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    header.iter_mut().zip(id).for_each(|(byte, of_id)| *byte = of_id);
    header
}

/// A row of a manifest.
fn row(Stamp { dev, ino, size, mtime, ctime }: Stamp, hash: &Hash, path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let numbers = [dev, ino, size, mtime.cast_unsigned(), ctime.cast_unsigned()].map(u64::to_le_bytes);
    let length = u32::try_from(path.len()).unwrap_or(0).to_le_bytes();
    [numbers.as_flattened(), &hash.raw(), &length, path].concat()
}

/// The rows of a manifest, up to damage.
fn rows(manifest: &[u8]) -> impl Iterator<Item = (Stamp, Hash, &Path)> {
    let mut rest = manifest.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (row, after) = rest.split_first_chunk::<ROW>()?;
        let number = |at: usize| row[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (mtime, ctime) = (number(3).cast_signed(), number(4).cast_signed());
        let stamp = Stamp { dev: number(0), ino: number(1), size: number(2), mtime, ctime };
        let hash = Hash::from_raw(row[40..72].try_into().ok()?);
        let length = u32::from_le_bytes(row[72..].try_into().ok()?);
        let (path, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        Some((stamp, hash, Path::new(OsStr::from_bytes(path))))
    })
}

/// Copies a file. Returns the hash of what was copied.
fn copy(from: &mut File, to: &mut impl io::Write) -> io::Result<sha2::digest::Output<Sha256>> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hash.finalize()),
            length => {
                hash.update(&buffer[..length]);
                to.write_all(&buffer[..length])?;
            }
        }
    }
}
