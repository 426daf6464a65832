//! Prepares a ledger for the next line: takes the lock, creates the file, and repairs what a crash left.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cp_common::home::lock;
use cp_common::keys::{hex, random};
use cp_common::{Code, Error, Result, clock, signals};

use rustix::fs::{FlockOperation, flock};

use super::durable::sync_directory;
use super::{FORMAT, Known, Ledger, register, segment};
use crate::format::line::{Hash, Line};
use crate::format::{Entry, line};
use crate::proof::note::{checkpoint_path, read_checkpoint};
use crate::read::read_at;
use crate::read::segments::is_closed;
use crate::read::tail::{Asks, Last, Tail, for_blocks, hash_of};

impl Ledger {
    /// Takes the lock on the file that has the name now. Returns its inode and size.
    fn lock(&mut self) -> Result<(u64, u64)> {
        loop {
            lock(&self.file).map_err(|e| e.in_file(&self.path).fatal())?;
            let failed = |e| Error::io("cannot read its metadata", e).in_file(&self.path).fatal();
            let ours = self.file.metadata().map_err(failed)?;
            match std::fs::metadata(&self.path) {
                Ok(named) if (named.ino(), named.dev()) == (ours.ino(), ours.dev()) => {
                    self.effect = Some(signals::effect());
                    return Ok((ours.ino(), ours.len()));
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(failed(e)),
            }
            // Replaced while we waited: the lock we have is on a file that is over. Its directory is not made again: a
            // session that was deleted stays deleted.
            self.file = match open_once(&self.path, self.creates) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    return Err(Error::not_found("it was deleted while it was open").in_file(&self.path).fatal());
                }
                opened => regular(&self.path, opened, self.creates)?,
            };
            self.known = None;
        }
    }

    /// Gives the lock back.
    fn unlock(&mut self) {
        self.effect = None;
        // A file system on a network can fail. A lock that stayed would block other writers until this process ends.
        if flock(&self.file, FlockOperation::Unlock).is_err() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }

    /// Acts under the lock, with the inode and the size of the file.
    pub(super) fn locked<T>(&mut self, act: impl FnOnce(&mut Self, (u64, u64)) -> Result<T>) -> Result<T> {
        let done = self.lock().and_then(|locked| act(self, locked));
        self.unlock();
        done
    }

    /// Acts under the lock, with the file ready for the next line.
    pub(super) fn prepared<T>(&mut self, act: impl FnOnce(&mut Self, Known) -> Result<T>) -> Result<T> {
        let done = self.ready().and_then(|known| act(self, known));
        self.unlock();
        done
    }

    pub(super) fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|e| Error::io("cannot read its metadata", e).in_file(&self.path).fatal())?.len())
    }

    /// Takes the lock and prepares the file for the next line: creates it, recovers its tail, and completes a rotation.
    /// Returns its end.
    fn ready(&mut self) -> Result<Known> {
        loop {
            let locked = self.lock()?;
            if let Some(known) = self.settle(locked)? {
                return Ok(known);
            }
        }
    }

    /// One step of [`Ledger::ready`]; `None` if another file has the name now.
    fn settle(&mut self, (inode, size): (u64, u64)) -> Result<Option<Known>> {
        if let Some(known) = self.known.filter(|known| (known.inode, known.size) == (inode, size)) {
            return Ok(Some(known));
        }
        let tail = self.tail(size)?;
        let (next, hash) = match tail.last {
            Last::Intact { asks: Asks::Rotation, .. } => {
                if is_closed(&self.path) {
                    return Err(Error::new(Code::Conflict, "this segment is closed").in_file(&self.path).fatal());
                }
                // A rotation that a crash interrupted.
                segment::finish(&self.file, &self.path, &tail)?;
                return Ok(None);
            }
            Last::Intact { seq, hash, .. } => (seq + 1, hash),
            Last::Damaged => return Err(damaged(&self.path, tail.start)),
            Last::None if size > 0 && !Line::is_torn_creation(&self.head()?) => return Err(not_a_ledger(&self.path)),
            Last::None => (0, Hash::of(b"")),
        };
        if let Some(signed) = self.signed_beyond(tail.last)? {
            let message = format!("rolled back: {next} lines, but {signed} were signed; nothing is appended");
            return Err(Error::new(Code::Integrity, message)
                .in_file(&self.path)
                .hint("cp-log repair --accept-shorter accepts it, on the record")
                .fatal());
        }
        let known = self.begin(Known { inode, size: tail.end, next, hash }, size)?;
        self.known = Some(known);
        Ok(Some(known))
    }

    /// Writes what comes before the next line of a file of that size: line 0, and the record of torn bytes.
    pub(super) fn begin(&mut self, mut known: Known, size: u64) -> Result<Known> {
        let mut own = Vec::new();
        let is_new = known.next == 0;
        if is_new {
            let (first, prev) = self.first_entry()?;
            own.push(first);
            known.hash = prev;
        }
        own.extend(self.torn(known, size)?);
        if own.is_empty() {
            return Ok(known);
        }
        let known = self.write_own(known, size, &own)?;
        self.sync_now()?;
        if is_new {
            sync_directory(&self.path)?;
            register::name(&self.path)?;
        }
        Ok(known)
    }

    /// Copies the bytes behind the known end to `<file>.torn.<seq>.<sha8>`, and makes sure of the copy. Returns the entry
    /// that says so, which is written over them.
    pub(super) fn torn(&self, known: Known, size: u64) -> Result<Option<Entry>> {
        if size == known.size {
            return Ok(None);
        }
        let (file, doing) = (&self.file, |e| Error::io("cannot move torn bytes aside", e).in_file(&self.path).fatal());
        // Hash first: the name holds it, and a name that is final from the start leaves no litter.
        let hash = hash_of(file, known.size, size).map_err(doing)?;
        let mut target = self.path.as_os_str().to_owned();
        // In a new ledger line 0 comes first.
        target.push(format!(".torn.{}.{}", known.next.max(1), &hash.hex()[..8]));
        let target = PathBuf::from(target);
        let mut options = OpenOptions::new();
        let mut copy = options.write(true).create(true).truncate(true).mode(0o600).open(&target).map_err(doing)?;
        for_blocks(file, known.size, size, |block| copy.write_all(block)).map_err(doing)?;
        copy.sync_all().map_err(doing)?;
        sync_directory(&self.path)?;
        let entry = Entry::new("ledger.recovered").with("offset", &known.size).with("len", &(size - known.size));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        Ok(Some(entry.with("sha256", hash.hex()).with("file", &*name)))
    }

    /// The end of a file of that size.
    pub(super) fn tail(&self, size: u64) -> Result<Tail> {
        Tail::read(&self.file, &self.path, size).map_err(Error::fatal)
    }

    /// How many lines the newest checkpoint covers, if there are fewer, or if a person began to accept that.
    pub(super) fn signed_beyond(&self, last: Last) -> Result<Option<u64>> {
        let Some((_, checkpoint)) = read_checkpoint(&checkpoint_path(&self.path))? else { return Ok(None) };
        let signed = checkpoint.size;
        let is_begun = matches!(last, Last::Intact { asks, .. } if asks == (Asks::Rollback { signed }));
        Ok((last.lines() < signed || is_begun).then_some(signed))
    }

    /// Line 0, and the hash that it names as the one before it.
    fn first_entry(&self) -> Result<(Entry, Hash)> {
        let origin = match &self.birth.origin {
            Some(origin) => origin.clone(),
            None => format!("cp-ledger/{}", hex(&random::<16>()?)),
        };
        let mut entry = Entry::new("ledger.open")
            .with("format", FORMAT)
            .with("origin", &origin)
            .with("nonce", &hex(&random::<16>()?));
        if let Some(verifier) = &self.birth.verifier {
            entry = entry.with("verifier", verifier);
        }
        Ok((entry, Hash::of_origin(&origin)))
    }

    /// Writes entries of the ledger's own in one write, under the lock that is held, to a file of that size.
    pub(super) fn write_own(&mut self, known: Known, size: u64, entries: &[Entry]) -> Result<Known> {
        let (mut body, now) = (Vec::new(), clock::now());
        let (mut next, mut hash) = (known.next, known.hash);
        self.lines.clear();
        for entry in entries {
            body.clear();
            entry.compose(&mut body);
            hash = line::compose(next, &now, &body, &hash, &mut self.lines)?;
            next += 1;
        }
        self.write_lines(known, size, next, hash)?;
        self.known.ok_or_else(|| Error::new(Code::Unknown, "the end of the ledger is unknown"))
    }

    /// Refuses a file that does not begin as a ledger, unless its last line proves that it is one.
    pub(super) fn refuse_other_format(&self) -> Result<()> {
        let head = self.head()?;
        let first = head.split(|byte| *byte == b'\n').next().and_then(Line::parse);
        match &first {
            Some(first) if first.is_event("segment.open") => segment::close_named_segment(&self.path, first),
            Some(first) if first.is_event("ledger.open") => {}
            _ => match self.tail(self.size()?)?.last {
                Last::Intact { .. } => {}
                Last::None if Line::is_torn_creation(&self.head()?) => {}
                Last::None | Last::Damaged => return Err(not_a_ledger(&self.path)),
            },
        }
        Ok(())
    }

    fn head(&self) -> Result<Vec<u8>> {
        let mut head = vec![0; 4096];
        let read = read_at(&self.file, &mut head, 0);
        head.truncate(read.map_err(|e| Error::io("cannot read", e).in_file(&self.path))?);
        Ok(head)
    }
}

/// Opens a regular file for reading and appending. If `creates`, a missing one is created with mode 0600, and so are the
/// directories above it; else it was deleted on purpose.
pub(super) fn open(path: &Path, creates: bool) -> Result<File> {
    let opened = match open_once(path, creates) {
        Err(e) if e.kind() == ErrorKind::NotFound && creates => {
            let made = path.parent().map(|parent| DirBuilder::new().recursive(true).mode(0o700).create(parent));
            made.transpose().and_then(|_| open_once(path, creates))
        }
        opened => opened,
    };
    regular(path, opened, creates)
}

fn open_once(path: &Path, creates: bool) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(creates).mode(0o600).open(path)
}

fn regular(path: &Path, opened: io::Result<File>, creates: bool) -> Result<File> {
    let (file, metadata) = opened
        .and_then(|file| file.metadata().map(|metadata| (file, metadata)))
        .map_err(|e| cannot_open(path, e, creates))?;
    if metadata.is_file() {
        return Ok(file);
    }
    Err(Error::validation("not a regular file, so nothing can be appended to it").in_file(path).fatal())
}

fn cannot_open(path: &Path, e: io::Error, creates: bool) -> Error {
    // A file that cannot be created is an I/O error, not a missing file.
    if e.kind() == ErrorKind::NotFound && !creates {
        return Error::not_found("no such file").in_file(path).fatal();
    }
    let failed = Error::io("cannot open for appending", e).in_file(path);
    failed.hint("name a file that can be written, or another --home").fatal()
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
