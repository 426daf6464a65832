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

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use cp_common::home::{Home, make_directory};
use cp_common::{Result, keys};
use cp_ledger::blob;
use cp_ledger::format::line::Hash;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

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

/// The length of a boot id with padding, and of a row without its name and the target of a link: the identity, the place
/// in a pack, the hash, and the permissions with these flags.
const HEADER: usize = 40;
const ROW: usize = 92;
const IS_IGNORED: u32 = 1 << 12;
const IS_KEPT: u32 = 1 << 13;
/// A change is certain to give the file another identity.
const IS_SETTLED: u32 = 1 << 14;
/// The place of the kind in the flags.
const KIND: u32 = 16;
const KINDS: [FileKind; 4] = [FileKind::File, FileKind::Directory, FileKind::Link, FileKind::Other];

/// A file up to this size is read into memory, and goes into a pack.
const SMALL: u64 = 64 << 10;
/// Numbers the manifests and temporary files of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The content store of a home.
pub(crate) struct Store {
    root: PathBuf,
}

/// A content that is kept.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub hash: Hash,
    /// The number of its pack, and its offset there; 0 for an object.
    pack: (u64, u64),
}

/// A file of the store.
#[derive(PartialEq, Eq, Hash)]
enum Part {
    Object(Hash),
    Pack(u64),
}

/// An entry of a directory.
pub(super) struct Entry {
    pub kind: FileKind,
    pub id: FileId,
    pub mode: u32,
    /// The target of a link.
    pub target: Option<OsString>,
    /// True if git ignores the entry.
    pub is_ignored: bool,
    /// The content, if it is kept.
    pub kept: Option<Kept>,
}

impl Kept {
    fn part(&self) -> Part {
        if self.pack.0 == 0 { Part::Object(self.hash) } else { Part::Pack(self.pack.0) }
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
        if pack.0 == 0 {
            return self.load(hash).map_err(|e| io::Error::other(e.message().to_owned()));
        }
        let mut bytes = vec![0; usize::try_from(size.min(SMALL)).unwrap_or(0)];
        File::open(self.pack(pack.0))?.read_exact_at(&mut bytes, pack.1)?;
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
        let manifest = fs::read(self.root.join(TREES).join(manifest)).unwrap_or_default();
        let files = |(path, rows)| {
            entries(rows).filter_map(move |(name, Entry { id, kept, .. }, is_settled)| {
                // An identity that another content could have is omitted.
                let id = if is_settled { id } else { FileId { size: id.size, ..FileId::default() } };
                Some((id, kept?, Path::join(path, name)))
            })
        };
        directories(&manifest).flat_map(files).collect()
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
            let manifest = if is_needed { fs::read(path).or_else(ended)? } else { Vec::new() };
            let listed = directories(&manifest).flat_map(|(_, rows)| entries(rows));
            let listed = listed.filter_map(|(_, entry, _)| Some((entry.kept?.part(), entry.id.size)));
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
            return Ok(self.keep(file)?.map(|hash| Kept { hash, pack: (0, 0) }));
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
        Ok(Some(Kept { hash, pack: (pack.number, pack.length - length) }))
    }

    /// Makes an object of a content of this size, which a run changed or removed.
    pub(super) fn keep_changed(&self, kept: &Kept, size: u64) -> io::Result<Hash> {
        if kept.pack.0 == 0 {
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

    /// The newest manifest of a tree with its name, or the name for the first one. It is linked at the place of a run.
    pub(super) fn last(&self, tree: &Path, of_run: Option<&Path>) -> io::Result<(String, Vec<u8>)> {
        let tree_hash = Hash::of(tree.as_os_str().as_bytes());
        let is_of_tree = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.as_bytes().starts_with(tree_hash.hex().as_bytes())
        };
        let last = paths(&self.store.root.join(TREES))?.into_iter().filter(is_of_tree);
        let Some(last) = last.max() else { return Ok((self.name(tree), Vec::new())) };
        of_run.map_or(Ok(()), |of_run| link(&last, of_run))?;
        let mut file = File::open(of_run.unwrap_or(&last))?;
        // A sweep removes the least recently used manifest first, so the time of use is updated.
        touch(&file)?;
        let mut manifest = Vec::new();
        file.read_to_end(&mut manifest)?;
        let name = last.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, of_this_boot(manifest).unwrap_or_default()))
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
            Ok(()) => fs::remove_file(temporary),
            Err(_) => fs::rename(temporary, path),
        }
    }

    /// Ends the session. The store keeps these contents, such as those that a run overwrote or removed.
    pub(crate) fn finish(self, kept: &[Hash]) -> io::Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let file = |hash: &Hash| {
            let id = FileId { size: self.store.length(hash).unwrap_or(0), ..FileId::default() };
            let kept = Some(Kept { hash: *hash, pack: (0, 0) });
            let entry = Entry { kind: FileKind::File, id, mode: 0, target: None, is_ignored: false, kept };
            (OsString::new(), entry)
        };
        let kept: Vec<_> = kept.iter().map(file).collect();
        self.write(&self.place_of_run(), vec![(Path::new(""), self.rows(&kept).into())])
    }

    fn write(&self, to: &Path, directories: Vec<Listed<'_>>) -> io::Result<()> {
        let (temporary, file) = self.store.create()?;
        let mut manifest = BufWriter::new(file);
        manifest.write_all(&boot_id())?;
        for (path, rows) in directories {
            for bytes in [path.as_os_str().as_bytes(), &rows] {
                manifest.write_all(&length(bytes))?;
                manifest.write_all(bytes)?;
            }
        }
        manifest.flush()?;
        fs::rename(temporary, to)
    }

    /// The rows of the entries of a directory.
    pub(super) fn rows(&self, entries: &[(OsString, Entry)]) -> Vec<u8> {
        let mut rows = Vec::with_capacity(entries.len() * (ROW + 32));
        for (name, entry) in entries {
            self.add_row(&mut rows, name, entry);
        }
        rows
    }

    fn add_row(&self, rows: &mut Vec<u8>, name: &OsStr, entry: &Entry) {
        let FileId { dev, ino, size, mtime, ctime } = entry.id;
        let (hash, pack) = entry.kept.map_or(([0; 32], (0, 0)), |kept| (kept.hash.raw(), kept.pack));
        let mut flags = entry.mode | (entry.kind as u32) << KIND;
        for (flag, is_set) in [
            (IS_IGNORED, entry.is_ignored),
            (IS_KEPT, entry.kept.is_some()),
            (IS_SETTLED, entry.id.is_settled(self.now)),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let times = [mtime.cast_unsigned(), ctime.cast_unsigned()];
        let numbers = [dev, ino, size, times[0], times[1], pack.0, pack.1].map(u64::to_le_bytes);
        rows.extend_from_slice(numbers.as_flattened());
        rows.extend_from_slice(&hash);
        rows.extend_from_slice(&flags.to_le_bytes());
        add(rows, name.as_bytes());
        if entry.kind == FileKind::Link {
            add(rows, entry.target.as_deref().unwrap_or_default().as_bytes());
        }
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

/// The id of this boot, or zeros if the kernel does not provide one.
fn boot_id() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    header.iter_mut().zip(id).for_each(|(byte, of_id)| *byte = of_id);
    header
}

/// Adds bytes with their length before them.
fn add(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&length(bytes));
    to.extend_from_slice(bytes);
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes()
}

/// Splits bytes off that have their length before them.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// A directory with the rows of its entries, which are in the order of their names.
pub(super) type Listed<'m> = (&'m Path, Cow<'m, [u8]>);

/// The bytes of a manifest of this boot. The identities of an earlier boot may mean other files.
pub(super) fn of_this_boot(manifest: Vec<u8>) -> Option<Vec<u8>> {
    Some(manifest).filter(|manifest| manifest.starts_with(&boot_id()))
}

/// The directories of a manifest with their rows, up to damage.
pub(super) fn directories(manifest: &[u8]) -> impl Iterator<Item = (&Path, &[u8])> {
    let mut rest = manifest.get(HEADER..).unwrap_or_default();
    iter::from_fn(move || {
        let (path, after) = split(rest)?;
        let (rows, after) = split(after)?;
        rest = after;
        Some((Path::new(OsStr::from_bytes(path)), rows))
    })
}

/// The entries of a directory with their names, up to damage, and true if a change gives an entry another identity.
pub(super) fn entries(mut rows: &[u8]) -> impl Iterator<Item = (&OsStr, Entry, bool)> {
    iter::from_fn(move || {
        let (row, after) = rows.split_first_chunk::<ROW>()?;
        let number = |at: usize| row[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (mtime, ctime) = (number(3).cast_signed(), number(4).cast_signed());
        let id = FileId { dev: number(0), ino: number(1), size: number(2), mtime, ctime };
        let kept = Kept { hash: Hash::from_raw(row[56..88].try_into().ok()?), pack: (number(5), number(6)) };
        let flags = u32::from_le_bytes(row[88..].try_into().ok()?);
        let (name, after) = split(after)?;
        let kind = *KINDS.get((flags >> KIND) as usize)?;
        let (target, after) = if kind == FileKind::Link { split(after)? } else { (&[][..], after) };
        rows = after;
        let entry = Entry {
            kind,
            id,
            mode: flags & 0o7777,
            target: (kind == FileKind::Link).then(|| OsStr::from_bytes(target).to_owned()),
            is_ignored: flags & IS_IGNORED != 0,
            kept: (flags & IS_KEPT != 0).then_some(kept),
        };
        Some((OsStr::from_bytes(name), entry, flags & IS_SETTLED != 0))
    })
}
