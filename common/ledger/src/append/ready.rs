//! Prepares a ledger for the next line: takes the lock, creates the file, and repairs what a crash left.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cp_common::keys::{hex, random};
use cp_common::{Code, Error, Result, clock, signals};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Known, Ledger, segment};
use crate::file::sync_directory;
use crate::format::line::{Hash, Line};
use crate::format::{Entry, line};
use crate::proof::checkpoint::{checkpoint_path, read_checkpoint};
use crate::read::read_at;
use crate::read::segments::is_closed;
use crate::read::tail::{Asks, Last, Tail, for_blocks, hash_of};

impl Ledger {
    /// Takes the lock on the file that has the name now. Returns its inode and size.
    pub(super) fn lock(&mut self) -> Result<(u64, u64)> {
        let held = self.file.lock()?;
        self.effect = Some(signals::effect());
        if held.replaced {
            self.known = None;
        }
        Ok((held.inode, held.size))
    }

    pub(super) fn unlock(&mut self) {
        self.effect = None;
        self.file.unlock();
    }

    pub(super) fn metadata(&self) -> Result<std::fs::Metadata> {
        self.file.file().metadata().map_err(|e| Error::io("cannot read its metadata", e).in_file(&self.path).fatal())
    }

    pub(super) fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Takes the lock and prepares the file for the next line: creates it, recovers its tail, and completes a rotation.
    /// Returns its end.
    pub(super) fn ready(&mut self) -> Result<Known> {
        loop {
            let locked = self.lock()?;
            if let Some(known) = self.settle(locked)? {
                return Ok(known);
            }
        }
    }

    /// One step of [`Ledger::ready`]; `None` if another file has the name now.
    pub(super) fn settle(&mut self, (inode, size): (u64, u64)) -> Result<Option<Known>> {
        if let Some(known) = self.known.filter(|known| (known.inode, known.size) == (inode, size)) {
            return Ok(Some(known));
        }
        let tail = self.tail(size)?;
        let (next, hash, asks) = match tail.last {
            Last::Intact { asks: Asks::Rotation, .. } => {
                if is_closed(&self.path) {
                    return Err(Error::new(Code::Conflict, "this segment is closed").in_file(&self.path).fatal());
                }
                // A rotation that a crash interrupted.
                segment::finish(self.file.file(), &self.path, &tail)?;
                return Ok(None);
            }
            Last::Intact { seq, hash, asks } => (seq + 1, hash, asks),
            Last::Damaged => return Err(damaged(&self.path, tail.start)),
            Last::None if size > 0 && !self.is_torn_creation(size)? => return Err(not_a_ledger(&self.path)),
            Last::None => (0, Hash::of(b""), Asks::Nothing),
        };
        let rolled_back = match asks {
            Asks::Rollback => self.move_checkpoint_aside(&tail)?,
            Asks::Rotation | Asks::Nothing => None,
        };
        if rolled_back.is_none() {
            self.refuse_rolled_back(next)?;
        }
        let known = self.recover_tail(Known { inode, size: tail.end, next, hash }, size, rolled_back)?;
        self.known = Some(known);
        Ok(Some(known))
    }

    /// Seals the tail of a file whose last whole line ends at `known`: what follows is moved aside and recorded, with
    /// an entry that a crash left owed, and with `more`.
    pub(super) fn recover_tail(&mut self, mut known: Known, size: u64, more: Option<Entry>) -> Result<Known> {
        let recovered = match size - known.size {
            0 => pending_entry(&self.path, known.next)?,
            // In a new ledger line 0 comes first.
            _ => Some(seal(self.file.file(), &self.path, known.size, size, known.next.max(1))?),
        };
        if known.next == 0 {
            known = self.create_line(known)?;
        }
        let has_recovered = recovered.is_some();
        let owed: Vec<Entry> = recovered.into_iter().chain(more).collect();
        if owed.is_empty() {
            return Ok(known);
        }
        let known = self.write_own(known, &owed)?;
        if has_recovered {
            self.sync_now()?;
            clear_pending(&self.path);
        }
        Ok(known)
    }

    /// The end of a file of that size.
    pub(super) fn tail(&self, size: u64) -> Result<Tail> {
        let read = Tail::read(self.file.file(), size);
        read.map_err(|e| Error::io("cannot read", e).in_file(&self.path).fatal())
    }

    /// Refuses a ledger that has fewer lines than its newest checkpoint says.
    pub(super) fn refuse_rolled_back(&self, lines: u64) -> Result<()> {
        let path = checkpoint_path(&self.path);
        match read_checkpoint(&path)? {
            Some((_, checkpoint)) if lines < checkpoint.size => {
                let message =
                    format!("rolled back: {lines} lines, but {} were signed; nothing is appended", checkpoint.size);
                Err(Error::new(Code::Integrity, message)
                    .in_file(&self.path)
                    .hint("cp-log repair --accept-shorter accepts it, on the record")
                    .fatal())
            }
            _ => Ok(()),
        }
    }

    /// Writes line 0.
    pub(super) fn create_line(&mut self, known: Known) -> Result<Known> {
        let origin = match &self.birth.origin {
            Some(origin) => origin.clone(),
            None => random_origin()?,
        };
        let mut entry = Entry::new("ledger.open")
            .with("format", FORMAT)
            .with("origin", &origin)
            .with("nonce", &hex(&random::<16>()?));
        if let Some(verifier) = &self.birth.verifier {
            entry = entry.with("verifier", verifier);
        }
        let known = self.write_own(Known { hash: Hash::of_origin(&origin), ..known }, &[entry])?;
        self.file.file().sync_all().map_err(|e| Error::io("cannot sync", e).in_file(&self.path).fatal())?;
        sync_directory(&self.path)?;
        Ok(known)
    }

    /// Writes entries of the ledger's own in one write, under the lock that is held.
    pub(super) fn write_own(&mut self, known: Known, entries: &[Entry]) -> Result<Known> {
        let (mut body, now) = (Vec::new(), clock::now());
        let (mut next, mut hash) = (known.next, known.hash);
        self.lines.clear();
        for entry in entries {
            body.clear();
            entry.compose(&mut body);
            hash = line::compose(next, &now, &body, &hash, &mut self.lines)?;
            next += 1;
        }
        self.write_lines(known, next, hash)?;
        self.known.ok_or_else(|| Error::new(Code::Unknown, "the end of the ledger is unknown"))
    }

    /// Refuses a file whose first line is not the beginning of a ledger, unless its last line proves that it is one.
    pub(super) fn refuse_other_format(&self) -> Result<()> {
        let mut head = vec![0; 4096];
        let read =
            read_at(self.file.file(), &mut head, 0).map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
        let first = head[..read].split(|byte| *byte == b'\n').next().and_then(Line::parse);
        if let Some(first) = &first {
            if first.is_event("segment.open") {
                segment::close_named_segment(&self.path, first);
                return Ok(());
            }
            if first.is_event("ledger.open") {
                return Ok(());
            }
        }
        let size = self.size()?;
        match self.tail(size)?.last {
            Last::Intact { .. } => Ok(()),
            Last::None if self.is_torn_creation(size)? => Ok(()),
            Last::None | Last::Damaged => Err(not_a_ledger(&self.path)),
        }
    }

    /// True if a file without a whole line is what a crash left of a new ledger.
    pub(super) fn is_torn_creation(&self, size: u64) -> Result<bool> {
        const START: &[u8] = b"{\"seq\":0,\"ts\":\"";
        let mut head = [0; START.len()];
        let read =
            read_at(self.file.file(), &mut head, 0).map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
        let head = &head[..read];
        Ok(size == 0 || START.starts_with(head) || head.iter().all(|byte| *byte == 0))
    }
}

pub(super) fn not_a_ledger(path: &Path) -> Error {
    Error::validation("an existing file that is not a ledger; nothing is appended")
        .in_file(path)
        .hint("name a new file; cp-log appends only to ledgers")
        .fatal()
}

fn damaged(path: &Path, offset: u64) -> Error {
    Error::new(Code::Integrity, format!("the last line is damaged, at byte {offset}; nothing is appended"))
        .with("offset", offset)
        .in_file(path)
        .hint("cp-log verify shows it; cp-log repair --tail moves it aside")
        .fatal()
}

pub(super) fn random_origin() -> Result<String> {
    Ok(format!("cp-ledger/{}", hex(&random::<16>()?)))
}

/// Bytes that were moved out of a ledger, as the `ledger.recovered` entry lists them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sealed {
    offset: u64,
    len: u64,
    sha256: String,
    file: String,
}

/// An entry that is still to be appended to the ledger.
#[derive(Serialize, Deserialize)]
struct PendingEntry {
    /// The place that it gets.
    seq: u64,
    recovered: Sealed,
}

fn pending_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".recovering");
    name.into()
}

/// Copies the bytes from `offset` on to `<file>.torn.<seq>.<sha8>`, makes sure of the copy, then cuts them off. Returns
/// the entry that says so, which is to be written as line `seq`; after that [`clear_pending`] is called. The caller
/// holds the lock.
pub(super) fn seal(file: &File, path: &Path, offset: u64, size: u64, seq: u64) -> Result<Entry> {
    let doing = |e: io::Error| Error::io("cannot move torn bytes aside", e).in_file(path).fatal();
    // Hash first: the name holds it, and a name that is final from the start leaves no litter.
    let hash = hash_of(file, offset, size).map_err(doing)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn.{seq}.{}", &hash.hex()[..8]));
    let target = PathBuf::from(name);
    let mut copy = fresh(&target).map_err(doing)?;
    for_blocks(file, offset, size, |block| copy.write_all(block)).map_err(doing)?;
    copy.sync_all().map_err(doing)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let recovered = Sealed { offset, len: size - offset, sha256: hash.hex().to_owned(), file: name };
    let owed = serde_json::to_vec(&PendingEntry { seq, recovered: recovered.clone() }).map_err(|e| doing(e.into()))?;
    let mut note = fresh(&pending_path(path)).map_err(doing)?;
    note.write_all(&owed).and_then(|()| note.sync_all()).map_err(doing)?;
    sync_directory(path)?;
    file.set_len(offset).map_err(doing)?;
    Ok(Entry::new("ledger.recovered").data(&recovered))
}

/// The entry that a crash kept from a ledger whose next line is `next`: its bytes were cut off, and it was not written.
pub(super) fn pending_entry(path: &Path, next: u64) -> Result<Option<Entry>> {
    let file = pending_path(path);
    let text = match fs::read(&file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read the pending entry", e).in_file(&file).fatal())?,
    };
    // A partial file means that the bytes were not cut off yet, so they are moved aside again.
    match serde_json::from_slice::<PendingEntry>(&text) {
        Ok(owed) if owed.seq >= next => Ok(Some(Entry::new("ledger.recovered").data(&owed.recovered))),
        Ok(_) | Err(_) => {
            clear_pending(path);
            Ok(None)
        }
    }
}

/// Removes the pending entry, after it is on the ledger and on disk.
pub(super) fn clear_pending(path: &Path) {
    // If the file stays, the next writer sees by the number that the entry was written.
    let _ = fs::remove_file(pending_path(path));
}

fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
