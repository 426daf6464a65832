//! Restores the history of a repository from its kept copies: missing or damaged objects, and the references
//! to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cp_common::keys::hex;
use cp_common::{Error, Result};
use flate2::read::ZlibDecoder;
use rustix::fs::OFlags;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::keep::{DIRECTORY, GONE, OBJECTS, SNAPSHOTS, numbers, snapshots};
use super::{binds, give_to_owner_of, make_directories};
use crate::nofollow;

/// The files that are restored in a repository.
pub(crate) struct Recovery {
    pub repository: PathBuf,
    pub objects: Vec<Restored>,
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
const DAMAGED: &str = "damaged";

impl Recovery {
    /// Finds missing files. `all`: references whose value has changed are restored too.
    pub(crate) fn find(directory: &Path, snapshot: Option<&str>, all: bool) -> Result<Self> {
        let repository = repository_of(directory)
            .filter(|repository| repository.join(DIRECTORY).is_dir())
            .ok_or_else(|| Error::not_found("nothing is kept for a repository here").in_file(directory))?;
        let keep = repository.join(DIRECTORY);
        let known = snapshots(&keep);
        if let Some(id) = snapshot.filter(|id| !known.iter().any(|known| known == id)) {
            return Err(Error::not_found(format!("no snapshot `{id}`")).hint(format!("there are {}", known.join(", "))));
        }
        let of_one = |id: &&String| snapshot.is_none_or(|wanted| wanted == *id);
        let snapshots: Vec<PathBuf> = known.iter().filter(of_one).map(|id| keep.join(SNAPSHOTS).join(id)).collect();
        let mut finder =
            Finder { repository: &repository, loose: BTreeSet::new(), indexes: Vec::new(), found: Vec::new() };
        finder.find_objects(&keep);
        let files = finder.find_files(&snapshots, all);
        let objects = finder.found;
        Ok(Self { repository, objects, files })
    }

    /// Restores the files, objects first.
    pub(crate) fn apply(&self) -> Result<()> {
        for directory in ["objects", "refs"] {
            fs::create_dir_all(self.repository.join(directory)).map_err(|e| Error::io("the repository", e))?;
            self.own(&self.repository.join(directory)).map_err(|e| Error::io("the repository", e))?;
        }
        for (restored, mode) in
            self.objects.iter().map(|one| (one, 0o444)).chain(self.files.iter().map(|one| (one, 0o644)))
        {
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

    fn own(&self, path: &Path) -> io::Result<()> {
        give_to_owner_of(&self.repository, path)
    }
}

/// The repository of a working tree, or the directory itself.
fn repository_of(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let inner = directory.join(".git");
    if inner.is_dir() {
        return Some(inner);
    }
    binds::common_directory(&inner)
        .map(|(repository, _)| repository)
        .or_else(|| directory.join(DIRECTORY).is_dir().then_some(directory))
}

/// The references in a `packed-refs` file.
fn packed(directory: &Path) -> Vec<(String, String)> {
    let text = super::read_bounded(&directory.join("packed-refs"), u64::MAX).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(id, _)| is_id(id));
    lines.map(|(id, name)| (name.to_owned(), id.to_owned())).collect()
}

fn is_id(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct Finder<'a> {
    repository: &'a Path,
    /// Loose objects, and the indexes of packs.
    loose: BTreeSet<String>,
    indexes: Vec<Vec<u8>>,
    found: Vec<Restored>,
}

impl Finder<'_> {
    fn find_objects(&mut self, keep: &Path) {
        for relative in files_below(&keep.join(OBJECTS)) {
            self.find_object(&keep.join(OBJECTS), &relative);
        }
        for relative in
            files_below(self.repository).into_iter().filter(|path| path.extension().is_some_and(|end| end == "idx"))
        {
            if is_whole(&self.repository.join(&relative)) {
                self.indexes.extend(fs::read(self.repository.join(relative)));
            }
        }
        // Most objects that were removed have been packed since.
        let mut days = numbers(&keep.join(GONE));
        days.sort_unstable();
        for day in days.into_iter().rev().map(|day| keep.join(GONE).join(day.to_string())) {
            let mut packs: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
            for relative in files_below(&day) {
                match loose_id(&relative) {
                    Some(id) if self.has(&id) => {}
                    Some(_) => self.find_object(&day, &relative),
                    None => packs.entry(relative.with_extension("")).or_default().push(relative),
                }
            }
            for (stem, files) in packs {
                let index = fs::read(day.join(stem.with_extension("idx"))).unwrap_or_default();
                if ids(&index).any(|id| !self.has(&hex(id))) {
                    for relative in &files {
                        self.find_object(&day, relative);
                    }
                }
            }
        }
    }

    /// Restores an object or a file of a pack from its copy, if the repository's own file is not intact.
    fn find_object(&mut self, kept: &Path, relative: &Path) {
        let (from, to) = (kept.join(relative), self.repository.join(relative));
        let is_there = is_whole(&to);
        if !is_there && !is_whole(&from) {
            return;
        }
        self.loose.extend(loose_id(relative));
        if relative.extension().is_some_and(|end| end == "idx") {
            self.indexes.extend(fs::read(&from));
        }
        if !is_there {
            let reason = if to.symlink_metadata().is_ok() { DAMAGED } else { MISSING };
            self.found.push(Restored { path: relative.to_owned(), reason, from });
        }
    }

    fn has(&self, id: &str) -> bool {
        let file = self.repository.join("objects").join(&id[..2]).join(&id[2..]);
        let bytes: Vec<u8> =
            (0..id.len() / 2).filter_map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()).collect();
        self.loose.contains(id) || self.indexes.iter().any(|index| holds(index, &bytes)) || is_whole(&file)
    }

    /// References, logs and indexes that are missing or refer to missing objects, each from the newest snapshot in
    /// which it is intact.
    fn find_files(&self, snapshots: &[PathBuf], all: bool) -> Vec<Restored> {
        let paths: BTreeSet<PathBuf> = snapshots.iter().flat_map(|snapshot| files_below(snapshot)).collect();
        let restored = |path: PathBuf| {
            let snapshot = snapshots.iter().find(|snapshot| self.is_whole_file(&path, &snapshot.join(&path)))?;
            let reason = self.fault_of(&path, snapshot, all)?;
            Some(Restored { from: snapshot.join(&path), path, reason })
        };
        paths.into_iter().filter_map(restored).collect()
    }

    fn fault_of(&self, path: &Path, snapshot: &Path, all: bool) -> Option<&'static str> {
        let now = self.repository.join(path);
        if now.symlink_metadata().is_err() {
            return (!self.is_packed_since(path, snapshot)).then_some(MISSING);
        }
        if !self.is_whole_file(path, &now) {
            return Some("leads to nothing");
        }
        let is_state = ["index", "logs"].iter().any(|name| path.iter().any(|part| part == *name));
        let is_same = || fs::read(&now).ok() == fs::read(snapshot.join(path)).ok();
        (all && !is_state && !is_same()).then_some("has another value now")
    }

    /// True if a reference without a file has another value in `packed-refs` than it had.
    fn is_packed_since(&self, path: &Path, snapshot: &Path) -> bool {
        let above: PathBuf = path.iter().take_while(|part| *part != "refs").collect();
        let reference = path.strip_prefix(&above).unwrap_or(path).to_string_lossy().into_owned();
        let packed =
            |directory: &Path| packed(&directory.join(&above)).into_iter().find(|(name, _)| *name == reference);
        let now = packed(self.repository).filter(|(_, id)| self.has(id));
        now.is_some() && now != packed(snapshot)
    }

    /// True if a reference, a log or an index exists and all objects that it names exist.
    fn is_whole_file(&self, path: &Path, file: &Path) -> bool {
        let Ok(held) = fs::read(file) else { return false };
        let (name, text) = (path.file_name().and_then(OsStr::to_str), String::from_utf8_lossy(&held));
        let leads = |id: &str| is_id(id) && self.has(id);
        match name {
            _ if path.iter().any(|part| part == "logs") => !held.is_empty(),
            Some("index") => is_index(&held),
            Some("packed-refs") => {
                text.lines().filter_map(|line| line.split_once(' ')).all(|(id, _)| id == "#" || leads(id))
            }
            Some("shallow") => text.lines().all(is_id),
            _ => text.trim().strip_prefix("ref: ").map_or_else(|| leads(text.trim()), |name| name.starts_with("refs/")),
        }
    }
}

/// The files below a directory, except for the kept history.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != DIRECTORY => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => found.extend(entry.path().strip_prefix(root).map(Path::to_owned)),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The id of a loose object.
fn loose_id(path: &Path) -> Option<String> {
    let id = format!("{}{}", path.parent()?.file_name()?.to_str()?, path.file_name()?.to_str()?);
    is_id(&id).then_some(id)
}

/// True if the hash of an object, pack or index matches its name or its last bytes.
fn is_whole(path: &Path) -> bool {
    let Ok(file) = nofollow::open_with(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from) else { return false };
    let Ok(meta) = file.metadata() else { return false };
    if !meta.is_file() {
        return false;
    }
    if let Some(id) = loose_id(path) {
        return digest(ZlibDecoder::new(file), id.len()).is_ok_and(|found| found == id);
    }
    let (name, end) = (path.file_stem().unwrap_or_default().to_string_lossy(), path.extension().unwrap_or_default());
    let digits = name.rsplit('-').next().map_or(40, str::len);
    if !["pack", "idx", "rev"].iter().any(|known| end == *known) || ![40, 64].contains(&digits) {
        return true;
    }
    let bytes = digits as u64 / 2;
    let Some(length) = meta.len().checked_sub(bytes) else { return false };
    let mut last = Vec::new();
    let found = digest((&file).take(length), digits);
    (&file).read_to_end(&mut last).is_ok() && found.is_ok_and(|found| found == hex(&last))
}

/// True if the last bytes of an index are its hash. Git can be configured to omit the hash.
fn is_index(held: &[u8]) -> bool {
    held.starts_with(b"DIRC")
        && [40, 64].iter().any(|digits| {
            held.len().checked_sub(digits / 2).is_some_and(|end| {
                let (text, last) = held.split_at(end);
                last.iter().all(|byte| *byte == 0) || digest(text, *digits).is_ok_and(|found| found == hex(last))
            })
        })
}

/// The digest with this number of hex digits: SHA-1 or SHA-256.
fn digest(mut source: impl Read, digits: usize) -> io::Result<String> {
    let (mut sha1, mut sha256, mut buffer) = (Sha1::new(), Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(if digits == 40 { hex(&sha1.finalize()) } else { hex(&sha256.finalize()) }),
            length if digits == 40 => sha1.update(&buffer[..length]),
            length => sha256.update(&buffer[..length]),
        }
    }
}

/// The ids in the index of a pack, sorted.
fn ids(index: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (table, width) = table(index).unwrap_or((&[], 20));
    table.chunks_exact(width)
}

fn table(index: &[u8]) -> Option<(&[u8], usize)> {
    const TABLE: usize = 8 + 256 * 4;
    index.strip_prefix(b"\xfftOc\0\0\0\x02")?;
    let count = usize::try_from(u32::from_be_bytes(index.get(TABLE - 4..TABLE)?.try_into().ok()?)).ok()?;
    // After the ids, each object has a checksum and an offset of four bytes. Two hashes end the file.
    let width = if index.len() >= TABLE + count * (32 + 8) + 64 { 32 } else { 20 };
    Some((index.get(TABLE..TABLE + count * width)?, width))
}

fn holds(index: &[u8], id: &[u8]) -> bool {
    let Some((table, width)) = table(index).filter(|(_, width)| *width == id.len()) else { return false };
    let (mut low, mut high) = (0, table.len() / width);
    while low < high {
        let middle = low.midpoint(high);
        match table[middle * width..(middle + 1) * width].cmp(id) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    false
}
