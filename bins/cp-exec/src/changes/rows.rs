//! How the entries of directories are listed, in memory and in a manifest: a row for each, by name in byte order. Rows
//! and not values, because most of the time for many files would go into the memory for each.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::{fs, iter};

use cp_ledger::format::line::Hash;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::exec_result::FileKind;
use crate::file_id::FileId;

/// A content that is kept.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub hash: Hash,
    /// The number of its pack, and its offset there; 0 for an object.
    pub pack: [u64; 2],
}

/// An entry of a directory, as a row begins. The name and the target of a link follow.
#[derive(Clone, Copy, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Entry {
    pub id: FileId,
    pack: [u64; 2],
    /// The hash of the content, if it is kept, otherwise zeros.
    hash: [u8; 32],
    pub mode: u16,
    pub kind: FileKind,
    /// True if git ignores the entry.
    pub is_ignored: bool,
    /// The lengths of the name and of the target.
    name: u16,
    target: u16,
}

impl Entry {
    pub(super) fn new(id: FileId, mode: u16, kind: FileKind) -> Self {
        Self { id, mode, kind, pack: [0; 2], hash: [0; 32], is_ignored: false, name: 0, target: 0 }
    }

    /// Adds the row of the entry with this name and target.
    pub(super) fn add_to(mut self, rows: &mut Vec<u8>, name: &OsStr, target: &OsStr) {
        [self.name, self.target] = [name, target].map(|text| u16::try_from(text.len()).unwrap_or(0));
        rows.extend_from_slice(self.as_bytes());
        rows.extend_from_slice(name.as_bytes());
        rows.extend_from_slice(target.as_bytes());
    }

    pub(super) fn kept(&self) -> Option<Kept> {
        (self.hash != [0; 32]).then(|| Kept { hash: Hash::from_raw(&self.hash), pack: self.pack })
    }

    pub(super) fn keep(&mut self, kept: &Kept) {
        (self.hash, self.pack) = (kept.hash.raw(), kept.pack);
    }
}

/// Notes the content of a file in its row.
pub(super) fn note_kept(row: &mut [u8], kept: &Kept) {
    if let Ok((mut entry, _)) = Entry::try_read_from_prefix(row) {
        entry.keep(kept);
        row[..size_of::<Entry>()].copy_from_slice(entry.as_bytes());
    }
}

/// A row.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    /// Its place among the rows of the directory.
    pub place: usize,
    pub bytes: &'r [u8],
    pub entry: Entry,
    pub name: &'r OsStr,
    /// The target of a link.
    pub target: &'r OsStr,
}

/// The rows of a directory, up to damage.
#[derive(Clone)]
pub(super) struct Rows<'r> {
    rows: &'r [u8],
    place: usize,
}

impl<'r> Rows<'r> {
    pub(super) fn new(rows: &'r [u8]) -> Self {
        Self { rows, place: 0 }
    }

    /// The next row if its name is not after this one.
    pub(super) fn next_until(&mut self, name: &OsStr) -> Option<Row<'r>> {
        let row = self.clone().next().filter(|row| row.name <= name)?;
        self.place += row.bytes.len();
        Some(row)
    }
}

impl<'r> Iterator for Rows<'r> {
    type Item = Row<'r>;

    fn next(&mut self) -> Option<Row<'r>> {
        let bytes = self.rows.get(self.place..)?;
        let (entry, rest) = Entry::try_read_from_prefix(bytes).ok()?;
        let (name, rest) = rest.split_at_checked(entry.name.into())?;
        let (target, rest) = rest.split_at_checked(entry.target.into())?;
        let [name, target] = [name, target].map(OsStr::from_bytes);
        let row = Row { place: self.place, bytes: &bytes[..bytes.len() - rest.len()], entry, name, target };
        self.place += row.bytes.len();
        Some(row)
    }
}

/// A directory with its rows.
pub(super) type Listed<'m> = (&'m Path, &'m [u8]);

/// The list of a tree: the id of the boot with padding, the time of the kernel when it was made, and each directory with
/// its rows.
#[derive(Default)]
pub(super) struct Manifest(Vec<u8>);

const BOOT: usize = 40;

impl Manifest {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The manifest, unless it is of an earlier boot, of which the identities may mean other files.
    pub(super) fn of_this_boot(self) -> Option<Self> {
        Some(self).filter(|manifest| manifest.0.starts_with(&boot_id()))
    }

    /// The time, in nanoseconds. A file of which the times are older is certain to get another identity with a change.
    pub(super) fn time(&self) -> i64 {
        self.0.get(BOOT..).and_then(<[u8]>::first_chunk).map_or(0, |time| i64::from_le_bytes(*time))
    }

    /// The directories with their rows, up to damage.
    pub(super) fn directories(&self) -> impl Iterator<Item = Listed<'_>> {
        let mut rest = self.0.get(BOOT + 8..).unwrap_or_default();
        iter::from_fn(move || {
            let (path, after) = split(rest)?;
            let (rows, after) = split(after)?;
            rest = after;
            Some((Path::new(OsStr::from_bytes(path)), rows))
        })
    }

    /// Writes a manifest with this time.
    pub(super) fn write(to: File, time: i64, directories: Vec<Listed<'_>>) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        to.write_all(&boot_id())?;
        to.write_all(&time.to_le_bytes())?;
        for (path, rows) in directories {
            for bytes in [path.as_os_str().as_bytes(), rows] {
                to.write_all(&u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes())?;
                to.write_all(bytes)?;
            }
        }
        to.flush()
    }
}

/// The id of this boot, or zeros if the kernel does not provide one.
fn boot_id() -> [u8; BOOT] {
    let mut header = [0; BOOT];
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    header.iter_mut().zip(id).for_each(|(byte, of_id)| *byte = of_id);
    header
}

/// Splits bytes off that have their length before them.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}
