//! Before a line can follow: the lock is held, and the file is made, untorn, ours and not closed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use cp_common::home::lock;
use cp_common::keys::{hex, random};
use cp_common::{Code, Error, Result, clock, signals};
use rustix::fs::{FlockOperation, flock};

use super::durable::sync_directory;
use super::{FORMAT, Known, Ledger, segment, torn};
use crate::format::Entry;
use crate::format::line::{self, Hash, Line};
use crate::proof::checkpoint::{checkpoint_path, read_checkpoint};
use crate::read::read_at;
use crate::read::segments::is_closed;
use crate::read::tail::{Last, Tail};

impl Ledger {
    /// Takes the lock on the file that has the name now. Returns its inode and size.
    pub(super) fn lock(&mut self) -> Result<(u64, u64)> {
        loop {
            lock(&self.file).map_err(|e| e.in_file(&self.path).fatal())?;
            self.effect = Some(signals::effect());
            let ours = self.metadata()?;
            match std::fs::metadata(&self.path) {
                Ok(named) if (named.ino(), named.dev()) == (ours.ino(), ours.dev()) => {
                    return Ok((ours.ino(), ours.len()));
                }
                _ => {
                    // Rotated or replaced while we waited: the lock we have is on a file that is over.
                    self.file = open_file(&self.path)?;
                    self.known = None;
                }
            }
        }
    }

    pub(super) fn unlock(&mut self) {
        self.effect = None;
        // Closing would release it too; there is nothing to do about a failure.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    pub(super) fn metadata(&self) -> Result<std::fs::Metadata> {
        self.file.metadata().map_err(|e| Error::io("cannot read its metadata", e).in_file(&self.path).fatal())
    }

    pub(super) fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Takes the lock, and brings the file into the state that a line can follow: created, untorn, not sealed. Returns its end.
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
        let tail = Tail::read(&self.file, size).map_err(|e| Error::io("cannot read", e).in_file(&self.path).fatal())?;
        let (next, hash) = match tail.last {
            Last::Intact { seq, hash, seals: true } => {
                if is_closed(&self.path) {
                    return Err(Error::new(Code::Conflict, "this segment is closed").in_file(&self.path).fatal());
                }
                // A rotation that did not get to its end.
                segment::finish(&self.file, &self.path, tail.end, seq, &hash)?;
                return Ok(None);
            }
            Last::Intact { seq, hash, .. } => (seq + 1, hash),
            Last::Damaged => return Err(damaged(&self.path, tail.start)),
            Last::None if size > 0 && !self.is_torn_creation(size)? => return Err(foreign(&self.path)),
            Last::None => (0, Hash::of(b"")),
        };
        self.refuse_rolled_back(next)?;
        let known = Known { inode, size: tail.end, next, hash };
        let recovered = match size - tail.end {
            0 => None,
            _ => Some(torn::seal(&self.file, &self.path, tail.end, size, next)?),
        };
        let known = if tail.last == Last::None { self.create_line(known)? } else { known };
        if let Some(sealed) = recovered {
            return self.write_own(known, &Entry::new("ledger.recovered").data(&sealed)).map(Some);
        }
        self.known = Some(known);
        Ok(Some(known))
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
                    .hint("cp-log repair --rollback accepts it, on the record")
                    .fatal())
            }
            _ => Ok(()),
        }
    }

    /// Writes line 0.
    pub(super) fn create_line(&mut self, known: Known) -> Result<Known> {
        let origin = match &self.birth.origin {
            Some(origin) => origin.clone(),
            None => drawn_origin()?,
        };
        let mut entry = Entry::new("ledger.open")
            .with("format", FORMAT)
            .with("origin", &origin)
            .with("nonce", &hex(&random::<16>()?));
        if let Some(verifier) = &self.birth.verifier {
            entry = entry.with("verifier", verifier);
        }
        let known = self.write_own(Known { hash: Hash::of_origin(&origin), ..known }, &entry)?;
        self.file.sync_all().map_err(|e| Error::io("cannot sync", e).in_file(&self.path).fatal())?;
        sync_directory(&self.path)?;
        Ok(known)
    }

    /// Writes one entry of the ledger's own, under the lock that is held.
    pub(super) fn write_own(&mut self, known: Known, entry: &Entry) -> Result<Known> {
        let mut body = Vec::new();
        entry.compose(&mut body);
        self.lines.clear();
        let hash = line::compose(known.next, &clock::now(), &body, &known.hash, &mut self.lines)?;
        self.write_lines(known, known.next + 1, hash)?;
        self.known.ok_or_else(|| Error::new(Code::Unknown, "the end of the ledger is unknown"))
    }

    /// Refuses a file whose first line is not the beginning of a ledger, unless its last line proves that it is one.
    pub(super) fn refuse_foreign(&self) -> Result<()> {
        let mut head = vec![0; 4096];
        let read = read_at(&self.file, &mut head, 0).map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
        let first = head[..read].split(|byte| *byte == b'\n').next().and_then(Line::parse);
        if first.is_some_and(|line| line.is_event("ledger.open") || line.is_event("segment.open")) {
            return Ok(());
        }
        let size = self.size()?;
        let tail = Tail::read(&self.file, size).map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
        match tail.last {
            Last::Intact { .. } => Ok(()),
            Last::None if self.is_torn_creation(size)? => Ok(()),
            Last::None | Last::Damaged => Err(foreign(&self.path)),
        }
    }

    /// Whether a file without a whole line is what a crash left of a new ledger.
    pub(super) fn is_torn_creation(&self, size: u64) -> Result<bool> {
        const START: &[u8] = b"{\"seq\":0,\"ts\":\"";
        let mut head = [0; START.len()];
        let read = read_at(&self.file, &mut head, 0).map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
        let head = &head[..read];
        Ok(size == 0 || START.starts_with(head) || head.iter().all(|byte| *byte == 0))
    }
}

pub(super) fn open_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let opened = match options.open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let made = path.parent().map(|parent| DirBuilder::new().recursive(true).mode(0o700).create(parent));
            made.transpose().and_then(|_| options.open(path))
        }
        opened => opened,
    };
    let file = opened.map_err(|e| cannot_open(path, e))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(Error::validation("not a regular file, so it cannot be a ledger").in_file(path).fatal()),
        Err(e) => Err(cannot_open(path, e)),
    }
}

fn cannot_open(path: &Path, e: io::Error) -> Error {
    let code = if e.kind() == ErrorKind::PermissionDenied { Code::Forbidden } else { Code::Io };
    let failed = Error::io("cannot open for appending", e);
    Error::new(code, failed.message()).in_file(path).hint("give --home or --ledger a place that can be written").fatal()
}

pub(super) fn foreign(path: &Path) -> Error {
    Error::validation("an existing file that is not a ledger; nothing is appended")
        .in_file(path)
        .hint("name a new file, or use --plain to append bare lines without a chain")
        .fatal()
}

fn damaged(path: &Path, offset: u64) -> Error {
    Error::new(Code::Integrity, format!("the last line is damaged, at byte {offset}; nothing is appended"))
        .with("offset", offset)
        .in_file(path)
        .hint("cp-log verify shows it; cp-log repair --tail moves it aside")
        .fatal()
}

pub(super) fn drawn_origin() -> Result<String> {
    Ok(format!("cp-ledger/{}", hex(&random::<16>()?)))
}
