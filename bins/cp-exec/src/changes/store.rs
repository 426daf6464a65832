//! The content store under the home, `state/kept`: for runs, for file tools and for the history of repositories.
//!
//! Objects are named by the SHA-256 of their bytes. The small files of a captured tree are together in a pack, because
//! most of the time for many of them would go into the creation of their objects; the few of them that a run changes
//! become objects after it.
//!
//! Manifests list what is there and what is kept of it: `trees/` has the entries of each tree as it was last captured,
//! and of a repository as it was before each run, `runs/` what a run overwrote or removed, and the trees of each run
//! that has no result yet. The manifest of a tree is its cache too: an unchanged
//! file costs one stat and no read. Whoever adds contents, or needs some that no other manifest lists, such as a run,
//! holds a shared lock; a sweep removes something only if nobody does.
//!
//! Contents of a run are not synced: after a power failure the newest may be missing. A read verifies the hash, and the
//! identities in a manifest of an earlier boot are not trusted.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::thread;

use cp_common::home::{Home, make_directory};
use cp_common::{Result, keys};
use cp_ledger::blob;
use cp_ledger::format::line::Hash;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use super::rows::{Entry, Kept, Listed, Manifest, Rows};
use super::tree::Known;
use crate::digest::hash_of;
use crate::exec_result::FileKind;
use crate::file_id::{FileId, touch};

/// The objects are stored like the blobs of a ledger of this name.
const OBJECTS: &str = "objects";
const PACKS: &str = "packs";
const TREES: &str = "trees";
const RUNS: &str = "runs";
/// The time of the last sweep, and the size of everything then.
const SWEPT: &str = "swept";
/// The size of all objects and packs together.
const CAPACITY: u64 = 1 << 30;
/// A sweep removes the least recently used manifests until the others need no more than this.
const NEARLY_FULL: u64 = CAPACITY / 8 * 7;
/// In nanoseconds: manifests are kept for this long after their last use, and the newest even longer.
const RETENTION: i64 = 7 * 24 * 3600 * SECOND;
const NEWEST: usize = 50;
/// In nanoseconds: the time between two sweeps.
const BETWEEN_SWEEPS: i64 = 600 * SECOND;
const SECOND: i64 = 1_000_000_000;

/// A file up to this size is read into memory, and goes into a pack.
const SMALL: u64 = 64 << 10;
/// Numbers the manifests and temporary files of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The content store of a home.
pub(crate) struct Store {
    root: PathBuf,
}

/// A file of the store.
#[derive(PartialEq, Eq, Hash)]
enum Part {
    Object(Hash),
    Pack(u64),
}

impl Part {
    fn of(kept: &Kept) -> Self {
        if kept.pack[0] == 0 { Self::Object(kept.hash) } else { Self::Pack(kept.pack[0]) }
    }
}

impl Store {
    pub(crate) fn of_home(home: &Home) -> Self {
        Self { root: home.state("kept") }
    }

    /// Reads an object and verifies its hash.
    pub(crate) fn load(&self, hash: &Hash) -> Result<Vec<u8>> {
        blob::load(&self.root.join(OBJECTS), hash)
    }

    /// Reads a content of this size and verifies its hash.
    pub(crate) fn load_kept(&self, Kept { hash, pack }: &Kept, size: u64) -> io::Result<Vec<u8>> {
        if pack[0] == 0 {
            return self.load(hash).map_err(|e| io::Error::other(e.message().to_owned()));
        }
        let mut bytes = vec![0; usize::try_from(size.min(SMALL)).unwrap_or(0)];
        File::open(self.pack(pack[0]))?.read_exact_at(&mut bytes, pack[1])?;
        if Hash::of(&bytes) == *hash { Ok(bytes) } else { Err(io::Error::other("is damaged")) }
    }

    fn length(&self, hash: &Hash) -> Option<u64> {
        fs::metadata(self.object(hash)).ok().map(|meta| meta.len())
    }

    fn object(&self, hash: &Hash) -> PathBuf {
        blob::path(&self.root.join(OBJECTS), hash)
    }

    fn pack(&self, number: u64) -> PathBuf {
        self.root.join(PACKS).join(format!("{number:016x}"))
    }

    /// The files that a manifest of a tree lists; none if it is no longer kept.
    pub(crate) fn files_of(&self, manifest: &str) -> Vec<(FileId, Kept, PathBuf)> {
        let manifest = Manifest::new(fs::read(self.root.join(TREES).join(manifest)).unwrap_or_default());
        let time = manifest.time();
        let files = |(path, rows)| {
            Rows::new(rows).filter_map(move |row| {
                let id = row.entry.id;
                // An identity that another content could have is omitted.
                let id = if id.is_settled(time) { id } else { FileId { size: id.size, ..FileId::default() } };
                Some((id, row.entry.kept()?, Path::join(path, row.name)))
            })
        };
        manifest.directories().flat_map(files).collect()
    }

    /// Starts to add contents. Sweeps first if a sweep is due.
    pub(crate) fn session(&self) -> io::Result<Session<'_>> {
        for part in ["objects.blobs", PACKS, RUNS, TREES, "tmp"] {
            make_directory(&self.root.join(part)).map_err(|e| io::Error::other(e.message().to_owned()))?;
        }
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(self.root.join("lock"))?;
        let now = touch(&lock)?;
        let swept = File::open(self.root.join(SWEPT)).and_then(|mut file| {
            let mut size = [0; 8];
            file.read_exact(&mut size)?;
            Ok((FileId::from(&file.metadata()?).mtime, u64::from_le_bytes(size)))
        });
        let size = match swept {
            Ok((time, size)) if now - time < BETWEEN_SWEEPS => size,
            _ => {
                let is_alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
                self.sweep(now, NEARLY_FULL, is_alone)?
            }
        };
        flock(&lock, FlockOperation::LockShared)?;
        Ok(Session { store: self, _lock: lock, now, size: AtomicU64::new(size), pack: Mutex::new(None) })
    }

    /// Removes the manifests that are not needed or do not fit into `most` bytes, and what none of the others lists.
    /// Returns the size of what stays. Without `removes` it only counts, because a session is open.
    pub(super) fn sweep(&self, now: i64, most: u64, removes: bool) -> io::Result<u64> {
        let remove = |path: &Path| if removes { fs::remove_file(path) } else { Ok(()) };
        let ended = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { Ok(Vec::new()) } else { Err(e) };
        let mut manifests = Vec::new();
        for path in [TREES, RUNS].map(|part| paths(&self.root.join(part))).into_iter().flatten().flatten() {
            match fs::metadata(&path) {
                // The run has ended in the meantime.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                meta => manifests.push((Reverse(FileId::from(&meta?).mtime), path)),
            }
        }
        manifests.sort();
        let (mut live, mut total) = (HashMap::new(), 0);
        for (place, (Reverse(used), path)) in manifests.iter().enumerate() {
            let is_needed = place < NEWEST || now - used < RETENTION;
            let manifest = Manifest::new(if is_needed { fs::read(path).or_else(ended)? } else { Vec::new() });
            let listed = manifest.directories().flat_map(|(_, rows)| Rows::new(rows));
            let listed = listed.filter_map(|row| Some((Part::of(&row.entry.kept()?), row.entry.id.size)));
            let mut listed: HashMap<Part, u64> = listed.filter(|(part, _)| !live.contains_key(part)).collect();
            for (part, size) in &mut listed {
                if let Part::Pack(number) = part {
                    *size = fs::metadata(self.pack(*number)).map_or(0, |meta| meta.len());
                }
            }
            let added: u64 = listed.values().sum();
            if !is_needed || total > 0 && total + added > most {
                remove(path)?;
            } else {
                total += added;
                live.extend(listed);
            }
        }
        let mut size = 0;
        for path in [paths(&blob::directory(&self.root.join(OBJECTS)))?, paths(&self.root.join(PACKS))?].concat() {
            let name = path.file_name().unwrap_or_default();
            let number = || u64::from_str_radix(name.to_str()?, 16).ok().map(Part::Pack);
            let part = Hash::from_hex(name.as_bytes()).map(Part::Object).or_else(number);
            match part.and_then(|part| live.get(&part)) {
                Some(kept) => size += kept,
                None if removes => fs::remove_file(path)?,
                None => size += fs::metadata(path)?.len(),
            }
        }
        paths(&self.root.join("tmp"))?.iter().try_for_each(|path| remove(path))?;
        self.write(&size.to_le_bytes(), &self.root.join(SWEPT))?;
        Ok(size)
    }

    /// Creates a file with a name of its own.
    fn create(&self) -> io::Result<(PathBuf, File)> {
        let path = self.root.join("tmp").join(unique(0));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map(|file| (path, file))
    }

    fn new_pack(&self) -> io::Result<Pack> {
        let random = keys::random::<8>().map_err(|e| io::Error::other(e.message().to_owned()))?;
        let number = u64::from_le_bytes(random).max(1);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.pack(number))?;
        Ok(Pack { number, file: BufWriter::new(file), length: 0 })
    }

    /// Writes a file whole, which appears with its content.
    fn write(&self, bytes: &[u8], path: &Path) -> io::Result<()> {
        let (temporary, mut file) = self.create()?;
        file.write_all(bytes)?;
        fs::rename(temporary, path)
    }
}

/// Adds contents to a store. While a session is open, no sweep removes anything.
pub(crate) struct Session<'a> {
    store: &'a Store,
    _lock: File,
    /// The time of the kernel when the session began, in nanoseconds.
    pub(super) now: i64,
    /// The size of all objects at the last sweep, with what this session added.
    size: AtomicU64,
    /// The pack of this session, once it has one.
    pack: Mutex<Option<Pack>>,
}

/// A manifest of a tree, and its name.
#[derive(Default)]
pub(crate) struct Last {
    pub(super) name: String,
    pub(super) manifest: Manifest,
}

impl Last {
    pub(crate) fn known(&self) -> Known<'_> {
        Known { rows: self.manifest.directories().collect(), time: self.manifest.time(), before: None }
    }
}

struct Pack {
    number: u64,
    file: BufWriter<File>,
    length: u64,
}

impl Session<'_> {
    /// Keeps the content of a file of a tree. `None` if the store is full.
    pub(super) fn keep_of_tree(&self, file: &mut File) -> io::Result<Option<Kept>> {
        let size = file.metadata()?.len();
        if size > SMALL {
            return Ok(self.keep(file)?.map(|hash| Kept { hash, pack: [0, 0] }));
        }
        let mut bytes = Vec::new();
        file.take(SMALL).read_to_end(&mut bytes)?;
        let length = bytes.len() as u64;
        if self.size.fetch_add(length, Relaxed) + length > CAPACITY {
            return Ok(None);
        }
        let hash = Hash::of(&bytes);
        let mut pack = self.pack.lock().unwrap_or_else(PoisonError::into_inner);
        let pack = match &mut *pack {
            Some(pack) => pack,
            none => none.insert(self.store.new_pack()?),
        };
        pack.file.write_all(&bytes)?;
        pack.length += length;
        Ok(Some(Kept { hash, pack: [pack.number, pack.length - length] }))
    }

    /// Makes an object of a content of this size, which a run changed or removed.
    pub(super) fn keep_changed(&self, kept: &Kept, size: u64) -> io::Result<Hash> {
        if kept.pack[0] == 0 {
            return self.store.length(&kept.hash).map(|_| kept.hash).ok_or(io::ErrorKind::NotFound.into());
        }
        self.keep_bytes(&self.store.load_kept(kept, size)?)
    }

    /// Keeps the content of a regular file as an object. `None` if the store is full.
    pub(crate) fn keep(&self, file: &mut File) -> io::Result<Option<Hash>> {
        let size = file.metadata()?.len();
        if self.size.load(Relaxed) + size > CAPACITY {
            let hash = hash_of(file)?;
            return Ok(self.store.length(&hash).map(|_| hash));
        }
        if size <= SMALL {
            let mut bytes = Vec::new();
            file.take(SMALL + 1).read_to_end(&mut bytes)?;
            return self.keep_bytes(&bytes).map(Some);
        }
        let (temporary, mut made) = self.store.create()?;
        // The kernel copies, and shares the blocks if the file system supports it.
        let length = io::copy(file, &mut made)?;
        let hash = hash_of(File::open(&temporary)?)?;
        if self.store.length(&hash) == Some(length) {
            return fs::remove_file(temporary).map(|()| Some(hash));
        }
        fs::rename(temporary, self.store.object(&hash))?;
        self.size.fetch_add(length, Relaxed);
        Ok(Some(hash))
    }

    /// Keeps a short content. Its file appears empty, so one that a kill left short is replaced.
    fn keep_bytes(&self, bytes: &[u8]) -> io::Result<Hash> {
        let (hash, length) = (Hash::of(bytes), bytes.len() as u64);
        if self.store.length(&hash) != Some(length) {
            // A kill leaves the object whole or absent.
            self.store.write(bytes, &self.store.object(&hash))?;
            self.size.fetch_add(length, Relaxed);
        }
        Ok(hash)
    }

    /// Keeps a content that a tool is about to replace, even if the store is full. It is on disk on return.
    pub(crate) fn keep_durably(&self, hash: &Hash, bytes: &[u8]) -> Result<()> {
        blob::store_as(&self.store.root.join(OBJECTS), hash, bytes)
    }

    /// The place for the manifest of a tree of a run, which no other run replaces.
    pub(super) fn place_of_run(&self) -> PathBuf {
        self.store.root.join(RUNS).join(unique(self.now))
    }

    /// The newest manifest of a tree, which is linked at the place of a run, or an empty one.
    pub(crate) fn last(&self, tree: &Path, of_run: Option<&Path>) -> Last {
        let read = || {
            let trees = paths(&self.store.root.join(TREES)).ok()?;
            let start = self.store.root.join(TREES).join(Hash::of(tree.as_os_str().as_bytes()).hex());
            let is_of_tree = |path: &&PathBuf| path.as_os_str().as_bytes().starts_with(start.as_os_str().as_bytes());
            let last = trees.iter().filter(is_of_tree).max()?;
            of_run.map_or(Ok(()), |of_run| link(last, of_run)).ok()?;
            let mut file = File::open(of_run.unwrap_or(last)).ok()?;
            // A sweep removes the least recently used manifest first, so the time of use is updated.
            touch(&file).ok()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).ok()?;
            let name = last.file_name()?.to_str()?.to_owned();
            Some(Last { name, manifest: Manifest::new(bytes).of_this_boot().unwrap_or_default() })
        };
        read().unwrap_or_else(|| Last { name: self.name(tree), manifest: Manifest::default() })
    }

    /// A name for a new manifest of a tree.
    pub(super) fn name(&self, tree: &Path) -> String {
        format!("{}-{}", Hash::of(tree.as_os_str().as_bytes()).hex(), unique(self.now))
    }

    /// Writes a manifest of a tree, at first at the place of a run.
    pub(super) fn publish(&self, name: &str, of_run: Option<&Path>, tree: Vec<Listed<'_>>) -> io::Result<()> {
        if let Some(pack) = &mut *self.pack.lock().unwrap_or_else(PoisonError::into_inner) {
            pack.file.flush()?;
        }
        let path = self.store.root.join(TREES).join(name);
        self.write(of_run.unwrap_or(&path), tree)?;
        let Some(of_run) = of_run else { return Ok(()) };
        let temporary = self.store.root.join("tmp").join(unique(self.now));
        link(of_run, &temporary)?;
        // Exchanged and removed, because ext4 writes what is renamed over another file to the disk at once.
        match renameat_with(CWD, &temporary, CWD, &path, RenameFlags::EXCHANGE) {
            Ok(()) => {
                // To remove a large file takes a while, and nobody needs to wait for it.
                _ = thread::Builder::new().spawn(|| fs::remove_file(temporary));
                Ok(())
            }
            Err(_) => fs::rename(temporary, path),
        }
    }

    /// Ends the session. The store keeps these contents, such as those that a run overwrote or removed.
    pub(crate) fn finish(self, kept: &[Hash]) -> io::Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        for hash in kept {
            let id = FileId { size: self.store.length(hash).unwrap_or(0), ..FileId::default() };
            let mut entry = Entry::new(id, 0, FileKind::File);
            entry.keep(&Kept { hash: *hash, pack: [0, 0] });
            entry.add_to(&mut rows, OsStr::new(""), OsStr::new(""));
        }
        self.write(&self.place_of_run(), vec![(Path::new(""), &rows)])
    }

    fn write(&self, to: &Path, tree: Vec<Listed<'_>>) -> io::Result<()> {
        let (temporary, file) = self.store.create()?;
        Manifest::write(file, self.now, tree)?;
        fs::rename(temporary, to)
    }
}

/// Gives a file another name, or a copy on a file system without links.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

/// A name that is used once, in order of time.
fn unique(now: i64) -> String {
    format!("{now:020}-{}-{:08}", std::process::id(), NUMBER.fetch_add(1, Relaxed))
}

fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}
