//! `--cache`: a file of answers that processes share. No process keeps the file locked: each lookup locks it and reads it anew, so it finds the
//! answers of other processes and notices a file that was merged or replaced.
//!
//! An index beside the file has the offset of each answer by its key, so memory does not grow with the cache. The index has no information of its
//! own: one that is missing, damaged or of another file is rebuilt. It is used only while the cache is locked.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cp_common::home::locked;
use cp_common::wire::Message;
use cp_common::{Error, Result};

use super::{ReadAt, Recording, beside, for_each_line, open_for_append};

/// A file of answers, with an index beside it.
pub(crate) struct Cache {
    path: PathBuf,
}

/// The exclusive right to ask for an answer. Other threads and processes that need the same answer wait. The lock file is removed with the claim;
/// the lock of a killed process is released by the kernel.
pub(in crate::engine) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Cache {
    pub(crate) fn open(path: &Path, warn: &dyn Fn(&str)) -> Result<Self> {
        let cache = Self { path: path.to_owned() };
        let file = cache.file()?;
        let (entries, skipped) = Index::of(path, &file)?.counts();
        if skipped > 0 && entries == 0 {
            return Err(Error::config("not a cache: no line of it is a recording").in_file(path).fatal());
        }
        if skipped > 0 {
            warn(&format!("{}: skipped lines that are not complete recordings: {skipped}", path.display()));
        }
        Ok(cache)
    }

    /// Finds the answer under the first key that has one. The last of several answers counts.
    pub(super) fn find(&self, keys: &[String]) -> Result<Option<Message>> {
        let file = self.file()?;
        let mut index = Index::of(&self.path, &file)?;
        for key in keys {
            if let Some(message) = index.find(key)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    pub(super) fn claim(&self, key: &str) -> Result<Claim> {
        let name: String = key.chars().skip_while(|c| *c != ':').skip(1).take(16).collect();
        let path = beside(&self.path, &name);
        let file = locked(&path, || {
            let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            opened.map_err(|e| Error::io("the claim of an answer", e).in_file(&path).fatal())
        })?;
        Ok(Claim { path, _file: file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<File> {
        locked(&self.path, || open_for_append(&self.path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

const MAGIC: &[u8; 8] = b"cpcache1";
/// The last indexed bytes of the cache identify the file.
const TAIL_LENGTH: usize = 64;
/// The length of the header: the magic number, three counts and the tail.
const HEADER_LENGTH: usize = 32 + TAIL_LENGTH;
/// The length of a slot: the first half of a key, and the offset of its line plus 1.
const SLOT: usize = 24;
/// The smallest number of slots, which is a power of two.
const MIN_SLOTS: u64 = 1024;

/// An up-to-date index of a cache, as a hash table in a file.
pub(super) struct Index<'a> {
    cache: &'a File,
    path: PathBuf,
    table: File,
    slots: u64,
    header: Header,
}

/// The header of an index.
#[derive(Clone, Copy, PartialEq)]
struct Header {
    /// The number of indexed bytes of the cache.
    covered: u64,
    /// The number of keys, and of lines that are not recordings.
    entries: u64,
    skipped: u64,
    tail: [u8; TAIL_LENGTH],
}

impl<'a> Index<'a> {
    /// Opens the index of a locked cache and brings it up to date.
    pub(super) fn of(path: &Path, cache: &'a File) -> Result<Self> {
        let path = beside(path, "index");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let table = opened.map_err(|e| index_error(&path, e))?;
        let length = table.metadata().map_err(|e| index_error(&path, e))?.len();
        let slots = length.saturating_sub(HEADER_LENGTH as u64) / SLOT as u64;
        let is_sound =
            slots >= MIN_SLOTS && slots.is_power_of_two() && length == HEADER_LENGTH as u64 + slots * SLOT as u64;
        let header = Header::read(&table)
            .filter(|header| is_sound && header.entries < slots && header.tail == tail(cache, header.covered));
        let mut index = Self { cache, path, table, slots, header: header.unwrap_or(Header::EMPTY) };
        let is_done = if header.is_some() { index.index_new_lines()? } else { false };
        if !is_done {
            index.rebuild()?;
        }
        Ok(index)
    }

    /// The number of keys, and of lines that are not recordings.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.header.entries, self.header.skipped)
    }

    /// Finds the last answer under a key.
    pub(super) fn find(&mut self, key: &str) -> Result<Option<Message>> {
        let Some(short) = key_prefix(key) else { return Ok(None) };
        let mut line = Vec::new();
        let mut is_new = false;
        loop {
            if let Some((_, found)) = self.slot_of(&short)? {
                let Some(offset) = found else { return Ok(None) };
                line.clear();
                BufReader::new(ReadAt { file: self.cache, offset }).read_until(b'\n', &mut line)?;
                let recording = serde_json::from_slice::<Recording<'_>>(&line).ok();
                if let Some(recording) = recording.filter(|recording| recording.key == key) {
                    // A recording without a valid message is a miss.
                    return Ok(serde_json::from_str(recording.message.get()).ok());
                }
            }
            // The index does not match the cache.
            if std::mem::replace(&mut is_new, true) {
                return Ok(None);
            }
            self.rebuild()?;
        }
    }

    /// Rebuilds the table with twice the slots that are needed. The header is written last, so an incomplete table is not valid.
    fn rebuild(&mut self) -> Result<()> {
        loop {
            let mut lines = 0;
            let mut reader = BufReader::with_capacity(1 << 16, ReadAt { file: self.cache, offset: 0 });
            loop {
                let piece = reader.fill_buf()?;
                if piece.is_empty() {
                    break;
                }
                lines += memchr::memchr_iter(b'\n', piece).count() as u64;
                let length = piece.len();
                reader.consume(length);
            }
            self.slots = (lines * 2).next_power_of_two().max(MIN_SLOTS);
            self.header = Header::EMPTY;
            let length = HEADER_LENGTH as u64 + self.slots * SLOT as u64;
            self.table.set_len(0).and_then(|()| self.table.set_len(length)).map_err(|e| index_error(&self.path, e))?;
            if self.index_new_lines()? {
                return Ok(());
            }
        }
    }

    /// Indexes the lines that were added to the cache. Returns false if the table is full.
    fn index_new_lines(&mut self) -> Result<bool> {
        let (cache, before) = (self.cache, self.header);
        if cache.metadata()?.len() == before.covered && before != Header::EMPTY {
            return Ok(true);
        }
        let mut has_room = true;
        for_each_line(cache, before.covered, |span, line| {
            // The writer of an incomplete line may still complete it.
            has_room &= self.header.entries < self.slots / 4 * 3;
            if !has_room || !line.ends_with(b"\n") {
                return Ok(false);
            }
            let key =
                serde_json::from_slice::<Recording<'_>>(line).ok().and_then(|recording| key_prefix(recording.key));
            match key {
                Some(key) => has_room = self.insert(&key, span.offset)?,
                None => self.header.skipped += 1,
            }
            self.header.covered = span.offset + span.length as u64;
            Ok(has_room)
        })?;
        self.header.tail = tail(cache, self.header.covered);
        if has_room {
            self.table.write_all_at(&self.header.bytes(), 0).map_err(|e| index_error(&self.path, e))?;
        }
        Ok(has_room)
    }

    /// Stores the offset of the line of a key. Returns false if no slot is left.
    fn insert(&mut self, key: &[u8; 16], offset: u64) -> Result<bool> {
        let Some((at, found)) = self.slot_of(key)? else { return Ok(false) };
        let mut slot = [0; SLOT];
        slot[..16].copy_from_slice(key);
        slot[16..].copy_from_slice(&(offset + 1).to_le_bytes());
        self.table.write_all_at(&slot, at).map_err(|e| index_error(&self.path, e))?;
        self.header.entries += u64::from(found.is_none());
        Ok(true)
    }

    /// Finds the slot of a key and the offset in it, or the free slot for it.
    fn slot_of(&self, key: &[u8; 16]) -> Result<Option<(u64, Option<u64>)>> {
        let first = read_u64(key, 0);
        for n in 0..self.slots {
            let at = HEADER_LENGTH as u64 + (first.wrapping_add(n) & (self.slots - 1)) * SLOT as u64;
            let mut slot = [0; SLOT];
            self.table.read_exact_at(&mut slot, at).map_err(|e| index_error(&self.path, e))?;
            match read_u64(&slot, 16).checked_sub(1) {
                None => return Ok(Some((at, None))),
                Some(offset) if slot[..16] == key[..] => return Ok(Some((at, Some(offset)))),
                Some(_) => {}
            }
        }
        Ok(None)
    }
}

impl Header {
    const EMPTY: Self = Self { covered: 0, entries: 0, skipped: 0, tail: [0; TAIL_LENGTH] };

    fn read(table: &File) -> Option<Self> {
        let mut bytes = [0; HEADER_LENGTH];
        table.read_exact_at(&mut bytes, 0).ok()?;
        let (rest, tail) = bytes.split_last_chunk()?;
        let header =
            Self { covered: read_u64(rest, 8), entries: read_u64(rest, 16), skipped: read_u64(rest, 24), tail: *tail };
        rest.starts_with(MAGIC).then_some(header)
    }

    fn bytes(self) -> [u8; HEADER_LENGTH] {
        let numbers = [self.covered, self.entries, self.skipped].map(u64::to_le_bytes);
        let mut bytes = [0; HEADER_LENGTH];
        let all = MAGIC.iter().chain(numbers.as_flattened()).chain(&self.tail);
        bytes.iter_mut().zip(all).for_each(|(byte, value)| *byte = *value);
        bytes
    }
}

/// The first half of the hash in a key; `None` if the key is not a hash.
fn key_prefix(key: &str) -> Option<[u8; 16]> {
    let digits = key.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    u128::from_str_radix(digits.get(..32)?, 16).ok().map(u128::to_le_bytes)
}

/// The last indexed bytes of a cache; bytes that never match if the cache is shorter.
fn tail(cache: &File, covered: u64) -> [u8; TAIL_LENGTH] {
    let mut tail = [0; TAIL_LENGTH];
    let length = usize::try_from(covered).unwrap_or(TAIL_LENGTH).min(TAIL_LENGTH);
    if cache.read_exact_at(&mut tail[..length], covered - length as u64).is_err() {
        tail = [0xff; TAIL_LENGTH];
    }
    tail
}

/// Reads eight bytes as a little-endian number.
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn index_error(path: &Path, e: std::io::Error) -> Error {
    Error::io("the index of the cache", e).in_file(path).fatal()
}
