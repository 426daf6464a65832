//! Prepares a ledger for the next line: takes the lock, creates the file, and repairs what a crash left.

use std::path::Path;

use cp_common::keys::{hex, random};
use cp_common::{Code, Error, Result, clock, signals};

use super::{FORMAT, Known, Ledger, segment, torn};
use crate::file::sync_directory;
use crate::format::Entry;
use crate::format::line::{self, Hash, Line};
use crate::proof::checkpoint::{checkpoint_path, read_checkpoint};
use crate::read::read_at;
use crate::read::segments::is_closed;
use crate::read::tail::{Asks, Last, Tail};

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

    /// Takes the lock and prepares the file for the next line: creates it, recovers its tail, and completes a rotation. Returns its end.
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

    /// Seals the tail of a file whose last whole line ends at `known`: what follows is moved aside and recorded, with an entry that a
    /// crash left owed, and with `more`.
    pub(super) fn recover_tail(&mut self, mut known: Known, size: u64, more: Option<Entry>) -> Result<Known> {
        let recovered = match size - known.size {
            0 => torn::pending_entry(&self.path, known.next)?,
            // In a new ledger line 0 comes first.
            _ => Some(torn::seal(self.file.file(), &self.path, known.size, size, known.next.max(1))?),
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
            torn::clear_pending(&self.path);
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
