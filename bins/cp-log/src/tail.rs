//! The end of a ledger file: what the next line follows, and what a crash left behind it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result};
use sha2::{Digest, Sha256};

use crate::line::{HARD_LIMIT, Hash, Line};
use crate::read::read_at;

const BLOCK: usize = 64 << 10;

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Where the last whole line ends; what follows is torn.
    pub(crate) end: u64,
    /// Where the last whole line starts.
    pub(crate) start: u64,
    /// The last whole line.
    pub(crate) last: Last,
}

/// The last whole line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// There is none.
    None,
    /// A line whose hash is right.
    Intact {
        /// Its place in the order.
        seq: u64,
        /// Its hash.
        hash: Hash,
        /// Whether it closes its segment.
        seals: bool,
    },
    /// Bytes that are no intact line.
    Damaged,
}

impl Tail {
    /// Looks at the end of a file that has `size` bytes.
    pub(crate) fn read(file: &File, size: u64) -> io::Result<Self> {
        let Some(feed) = last_feed(file, size)? else { return Ok(Self { end: 0, start: 0, last: Last::None }) };
        let start = last_feed(file, feed)?.map_or(0, |before| before + 1);
        let mut tail = Self { end: feed + 1, start, last: Last::Damaged };
        let length = usize::try_from(feed - start).unwrap_or(usize::MAX);
        if length <= HARD_LIMIT {
            let mut bytes = vec![0; length];
            read_all(file, &mut bytes, start)?;
            if let Some(line) = Line::parse(&bytes).filter(Line::is_intact) {
                tail.last = Last::Intact { seq: line.seq(), hash: line.hash(), seals: line.is_event("segment.seal") };
            }
        }
        Ok(tail)
    }
}

/// Where the last intact line ends, with its number and hash. `None` if no line is intact.
pub(crate) fn intact_end(file: &File, path: &Path, size: u64) -> Result<Option<(u64, (u64, Hash))>> {
    let failed = |e: io::Error| Error::io("cannot read", e).in_file(path);
    let mut end = size;
    loop {
        let tail = Tail::read(file, end).map_err(failed)?;
        match tail.last {
            Last::None => return Ok(None),
            Last::Intact { seq, hash, .. } => return Ok(Some((tail.end, (seq, hash)))),
            // Without the damaged line's line feed, the one before it is the last whole one.
            Last::Damaged => end = tail.start,
        }
    }
}

/// The hash of a part of a file.
pub(crate) fn hash_of(file: &File, from: u64, to: u64) -> io::Result<Hash> {
    let mut hasher = Sha256::new();
    for_blocks(file, from, to, |block| {
        hasher.update(block);
        Ok(())
    })?;
    Ok(Hash::from_raw(&hasher.finalize().into()))
}

/// The offset of the last line feed before `end`.
fn last_feed(file: &File, end: u64) -> io::Result<Option<u64>> {
    let mut block = vec![0; 4096];
    let mut end = end;
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = usize::try_from(end - start).unwrap_or(block.len());
        read_all(file, &mut block[..part], start)?;
        if let Some(found) = memchr::memrchr(b'\n', &block[..part]) {
            return Ok(Some(start + found as u64));
        }
        end = start;
        block.resize(BLOCK, 0);
    }
    Ok(None)
}

pub(crate) fn read_all(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match read_at(file, &mut into[filled..], at + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// Bytes that were moved out of a ledger, as the `ledger.recovered` entry tells of them.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Sealed {
    offset: u64,
    len: u64,
    sha256: String,
    file: String,
}

/// Copies the bytes from `offset` on to `<file>.torn.<seq>.<sha8>`, makes sure of the copy, then cuts them off. The caller holds the lock.
pub(crate) fn seal(file: &File, path: &Path, offset: u64, size: u64, seq: u64) -> Result<Sealed> {
    let doing = |e: io::Error| Error::io("cannot move torn bytes aside", e).in_file(path).fatal();
    // Hash first: the name holds it, and a name that is final from the start leaves no litter.
    let hash = hash_of(file, offset, size).map_err(doing)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn.{seq}.{}", &hash.hex()[..8]));
    let target = PathBuf::from(name);
    let mut copy =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&target).map_err(doing)?;
    for_blocks(file, offset, size, |block| copy.write_all(block)).map_err(doing)?;
    copy.sync_all().map_err(doing)?;
    sync_directory(path)?;
    file.set_len(offset).map_err(doing)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Sealed { offset, len: size - offset, sha256: hash.hex().to_owned(), file: name })
}

/// Reads a part of a file block by block.
pub(crate) fn for_blocks(
    file: &File,
    from: u64,
    to: u64,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(BLOCK).min(BLOCK);
        read_all(file, &mut block[..want], at)?;
        each(&block[..want])?;
        at += want as u64;
    }
    Ok(())
}

/// Makes the names in a file's directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::new(Code::Io, format!("cannot sync the directory: {e}")).in_file(directory).fatal())
}
