//! Appending: many processes, one order. Every line is on the chain, whole, and acknowledged only if it stays.

mod durable;
mod ready;
pub mod register;
mod segment;

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, clock, signals};
use cp_redact::Redactor;
use rustix::io::retry_on_intr;

pub use self::durable::Sync;
use self::durable::{Durable, sync_directory};
use self::ready::{not_a_ledger, open};
use crate::blob;
use crate::format::Entry;
use crate::format::line::{self, FRAME, Hash};
use crate::proof::leaves::origin_of;
use crate::proof::note::{Note, checkpoint_path};
use crate::read::segments::{followed, name_of};
use crate::read::tail::{self, Asks, Last};

/// The name of the format, as line 0 has it.
pub const FORMAT: &str = "cp-ledger/1";

/// A ledger that is open for appending.
#[derive(Debug)]
pub struct Ledger {
    /// The path as the caller named it.
    named: PathBuf,
    path: PathBuf,
    file: File,
    /// True if the file is created when it is missing.
    creates: bool,
    durable: Durable,
    known: Option<Known>,
    /// The ledger's name in its first line, after it was read.
    origin: OnceCell<Option<String>>,
    /// There while the lock is held.
    effect: Option<signals::Effect>,
    /// Bodies that wait for [`Ledger::commit`], one after the other, and where each ends.
    staged: Vec<u8>,
    ends: Vec<usize>,
    /// The lines being written; kept for its memory.
    lines: Vec<u8>,
    /// The contents of line 0, if this creates the file.
    birth: Birth,
}

/// The contents of the first line of a new ledger.
#[derive(Clone, Debug, Default)]
pub struct Birth {
    /// Its name in checkpoints; drawn when none is given.
    pub origin: Option<String>,
    /// The public key that its checkpoints are signed with.
    pub verifier: Option<String>,
}

/// The end of the file after our last look.
#[derive(Clone, Copy, Debug)]
struct Known {
    inode: u64,
    size: u64,
    next: u64,
    hash: Hash,
}

impl Ledger {
    /// Opens a ledger, and creates it if it is missing. An existing file that is not a ledger is refused.
    pub fn open(path: &Path, sync: Sync) -> Result<Self> {
        Self::initialized(Self::opened(path, sync, true)?)
    }

    /// The ledger at this path, opened at its first use, so that no file is created if nothing is appended.
    pub fn once<'a>(opened: &'a mut Option<Self>, path: &Path, sync: Sync) -> Result<&'a mut Self> {
        match opened {
            Some(ledger) => Ok(ledger),
            empty => Ok(empty.insert(Self::open(path, sync).map_err(Error::fatal)?)),
        }
    }

    /// Opens an existing ledger. It is never created, so appending fails if the file is deleted while it is open.
    pub fn open_existing(path: &Path, sync: Sync) -> Result<Self> {
        Self::initialized(Self::opened(path, sync, false)?)
    }

    /// Writes the first line of a new ledger. An existing file must be a ledger.
    fn initialized(mut ledger: Self) -> Result<Self> {
        if ledger.size()? == 0 {
            ledger.prepared(|_, _| Ok(()))?;
        } else {
            ledger.refuse_other_format()?;
        }
        Ok(ledger)
    }

    /// Creates a ledger and returns its origin. `None`, without an effect, if the file exists and is not empty.
    pub fn create(path: &Path, birth: &Birth) -> Result<Option<String>> {
        let mut ledger = Self::opened(path, Sync::Line, true)?;
        ledger.birth = birth.clone();
        ledger.locked(|ledger, (inode, size)| {
            if size > 0 {
                return Ok(None);
            }
            ledger.begin(Known { inode, size: 0, next: 0, hash: Hash::of(b"") }, 0)?;
            origin_of(&ledger.path)
        })
    }

    /// The file, which may be empty or foreign.
    fn opened(path: &Path, sync: Sync, creates: bool) -> Result<Self> {
        // A receipt must still point at the ledger when it is read in another directory.
        let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Side files lie beside the file itself, not beside a link to it.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| followed(&named));
        let file = open(&path, creates)?;
        Ok(Self {
            named,
            path,
            file,
            creates,
            durable: Durable::new(sync),
            known: None,
            origin: OnceCell::new(),
            effect: None,
            staged: Vec::new(),
            ends: Vec::new(),
            lines: Vec::new(),
            birth: Birth::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one entry. When this returns it is as durable as [`Sync`] says.
    #[expect(clippy::needless_pass_by_value, reason = "an entry is appended once")]
    pub fn append(&mut self, entry: Entry) -> Result<Receipt> {
        self.stage(&entry)?;
        let (seq, hash) = self.commit()?.pop().ok_or_else(|| Error::new(Code::Unknown, "nothing was appended"))?;
        Ok(self.receipt(seq, &hash))
    }

    /// Appends entries in one write: all of them or none.
    pub fn append_all(&mut self, entries: Vec<Entry>) -> Result<Vec<Receipt>> {
        self.append_placed(|_| Ok(entries))
    }

    /// Appends entries that name each other's places: `entries` gets, under the lock, the place that the first of them
    /// will have. All of them in one write, or none.
    pub fn append_placed(&mut self, entries: impl FnOnce(u64) -> Result<Vec<Entry>>) -> Result<Vec<Receipt>> {
        self.discard();
        let lines = self.write(|ledger, next| entries(next)?.iter().try_for_each(|entry| ledger.stage(entry)))?;
        Ok(lines.iter().map(|(seq, hash)| self.receipt(*seq, hash)).collect())
    }

    /// Appends the entry of a checkpoint, and then replaces the one beside the ledger by its note, so that every signature
    /// that was handed out is on the ledger. `sign` is called under the lock: the entry follows the lines that are signed,
    /// and of two that sign at once, the one with fewer lines does not come last. Also returns what else `sign` did.
    pub fn append_checkpoint<T>(
        &mut self,
        sign: impl FnOnce() -> Result<(Entry, Note, T)>,
    ) -> Result<(Note, Receipt, T)> {
        self.prepared(|ledger, known| {
            let (entry, note, other) = sign()?;
            let known = ledger.write_own(known, known.size, &[entry])?;
            ledger.sync_now()?;
            write_whole(&checkpoint_path(&ledger.path), note.to_string().as_bytes())?;
            Ok((note, ledger.receipt(known.next - 1, &known.hash), other))
        })
    }

    /// The proof of a line that this ledger wrote.
    pub fn receipt(&self, seq: u64, hash: &Hash) -> Receipt {
        // A line that was written is not taken back because a name cannot be read.
        let origin = self.origin.get_or_init(|| origin_of(&self.path).ok().flatten());
        Receipt::new(&self.named, origin.clone(), seq, hash.to_string())
    }

    /// Gets an entry ready without writing it: in normal form, without secrets, short enough for a line.
    pub fn stage(&mut self, entry: &Entry) -> Result<()> {
        entry.check()?;
        let start = self.staged.len();
        entry.compose(&mut self.staged);
        let redactions = Redactor::from_environment().redact(&mut self.staged, start);
        let done = blob::finish(&self.path, &mut self.staged, start, entry, redactions);
        match done {
            Ok(()) => self.ends.push(self.staged.len()),
            Err(_) => self.staged.truncate(start),
        }
        done
    }

    /// How many bytes [`Ledger::commit`] would write, about.
    pub fn staged(&self) -> usize {
        self.staged.len() + self.ends.len() * FRAME
    }

    /// Forgets what was staged.
    pub fn discard(&mut self) {
        self.staged.clear();
        self.ends.clear();
    }

    /// Writes everything that was staged, in one write. Returns the places and the hashes of the lines.
    pub fn commit(&mut self) -> Result<Vec<(u64, Hash)>> {
        if self.ends.is_empty() { Ok(Vec::new()) } else { self.write(|_, _| Ok(())) }
    }

    /// Writes what is staged after `stage` was called, under the lock, with the place of the next line. The disk then has
    /// it as [`Sync`] requires.
    fn write(&mut self, stage: impl FnOnce(&mut Self, u64) -> Result<()>) -> Result<Vec<(u64, Hash)>> {
        self.durable.certain(&self.path)?;
        let written = self.prepared(|ledger, known| {
            stage(ledger, known.next)?;
            ledger.write_staged(known)
        });
        self.discard();
        let committed = written?;
        if !committed.is_empty() {
            self.durable.written(self.lines.len(), &self.file, &self.path)?;
        }
        Ok(committed)
    }

    /// Waits until the disk has everything that was appended.
    ///
    /// The lock is not held, so others append meanwhile; one sync covers all bytes before it.
    pub fn sync(&mut self) -> Result<()> {
        self.durable.sync(&self.file, &self.path)
    }

    /// True if no sync is known to have failed. Does not wait.
    pub fn is_certain(&mut self) -> bool {
        self.durable.noticed(&self.path).is_ok()
    }

    fn write_staged(&mut self, known: Known) -> Result<Vec<(u64, Hash)>> {
        if self.ends.is_empty() {
            return Ok(Vec::new());
        }
        let now = clock::now();
        self.lines.clear();
        let (mut start, mut prev) = (0, known.hash);
        let mut written = Vec::with_capacity(self.ends.len());
        for (seq, &end) in (known.next..).zip(&self.ends) {
            prev = line::compose(seq, &now, &self.staged[start..end], &prev, &mut self.lines)?;
            written.push((seq, prev));
            start = end;
        }
        self.write_lines(known, known.size, known.next + written.len() as u64, prev)?;
        Ok(written)
    }

    /// Writes `lines` behind the known end, whole or not at all, and moves the known end. Where the file has more bytes
    /// than that, they were moved aside, and the lines take their place.
    fn write_lines(&mut self, known: Known, size: u64, next: u64, hash: Hash) -> Result<()> {
        self.known = None;
        let written = if size > known.size { self.replace_end(known.size) } else { self.append_lines(size) };
        written?;
        self.known = Some(Known { size: known.size + self.lines.len() as u64, next, hash, ..known });
        Ok(())
    }

    /// Appends the lines to a file of that size, in one write.
    fn append_lines(&self, size: u64) -> Result<()> {
        let written = retry_on_intr(|| rustix::io::write(&self.file, &self.lines));
        if written == Ok(self.lines.len()) {
            return Ok(());
        }
        // Cut back under the lock, so that no line ever follows a partial one.
        let cut = self.file.set_len(size);
        // A write that is cut short has met a limit, and only the next one would report it.
        let reason = written.map_or_else(io::Error::from, |_| ErrorKind::StorageFull.into());
        let after = if cut.is_ok() { "this write added nothing" } else { "the torn bytes could not be removed" };
        Err(Error::io(format!("cannot append, {after}"), reason).in_file(&self.path).fatal())
    }

    /// Puts the lines in the place of the bytes from `end` on. A crash leaves these bytes whole, or torn ones.
    fn replace_end(&self, end: u64) -> Result<()> {
        // A file that is open for appending ignores offsets.
        let written = OpenOptions::new().write(true).open(&self.path).and_then(|file| {
            file.write_all_at(&self.lines, end)?;
            file.sync_data()
        });
        let cut = written.and_then(|()| self.file.set_len(end + self.lines.len() as u64));
        cut.map_err(|e| Error::io("cannot replace the torn bytes", e).in_file(&self.path).fatal())
    }

    /// Closes the file as a segment and goes on in a new one. Returns the segment's file.
    pub fn rotate(&mut self) -> Result<PathBuf> {
        self.discard();
        self.prepared(|ledger, known| {
            name_of(&ledger.path)?;
            let sealed = ledger.write_own(known, known.size, &[segment::seal(&ledger.path)?])?;
            ledger.sync_now()?;
            ledger.known = None;
            segment::finish(&ledger.file, &ledger.path, &ledger.tail(sealed.size)?)
        })
    }

    /// Waits until the disk has the file, however the ledger was opened: what follows depends on it.
    fn sync_now(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("cannot sync", e).in_file(&self.path).fatal())
    }

    /// The bytes that repair would move aside: their offset, length and hash. `None` if the last line is intact and
    /// whole.
    pub fn damaged_tail(&self) -> Result<Option<(u64, u64, Hash)>> {
        let size = self.size()?;
        let good = tail::intact_end(&self.file, &self.path, size)?;
        match good {
            None => Err(not_a_ledger(&self.path)),
            Some((end, _)) if end == size => Ok(None),
            Some((end, _)) => {
                let hash = tail::hash_of(&self.file, end, size)
                    .map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
                Ok(Some((end, size - end, hash)))
            }
        }
    }

    /// Moves everything after the last intact line aside, and records that. Returns the receipt of the entry.
    pub fn repair_tail(&mut self) -> Result<Receipt> {
        self.locked(|ledger, (inode, size)| {
            let good = tail::intact_end(&ledger.file, &ledger.path, size)?;
            let (end, (seq, hash)) = good.ok_or_else(|| not_a_ledger(&ledger.path))?;
            let known = ledger.begin(Known { inode, size: end, next: seq + 1, hash }, size)?;
            Ok(ledger.receipt(known.next - 1, &known.hash))
        })
    }

    /// How many lines the checkpoint covers, and how many there are, if those are fewer.
    pub fn rolled_back(&self) -> Result<Option<(u64, u64)>> {
        let last = self.tail(self.size()?)?.last;
        Ok(self.signed_beyond(last)?.map(|signed| (signed, last.lines())))
    }

    /// Accepts that there are fewer lines than the checkpoint says: records that, and then moves the checkpoint aside.
    /// `None` if there are not fewer. After a crash in between nothing is appended until this is called again.
    pub fn accept_rollback(&mut self) -> Result<Option<Receipt>> {
        self.locked(Self::roll_back)
    }

    fn roll_back(&mut self, (inode, size): (u64, u64)) -> Result<Option<Receipt>> {
        let tail = self.tail(size)?;
        let Last::Intact { seq, hash, asks } = tail.last else { return Err(not_a_ledger(&self.path)) };
        let Some(signed) = self.signed_beyond(tail.last)? else { return Ok(None) };
        let checkpoint = checkpoint_path(&self.path);
        let aside = checkpoint.with_extension(format!("checkpoint.{signed}"));
        let mut known = Known { inode, size: tail.end, next: seq + 1, hash };
        if asks != (Asks::Rollback { signed }) {
            let torn = self.torn(known, size)?;
            let lines = known.next + u64::from(torn.is_some());
            let name = aside.file_name().unwrap_or_default().to_string_lossy();
            let entry = Entry::new("ledger.rollback").with("signed", &signed).with("lines", &lines);
            let own: Vec<Entry> = torn.into_iter().chain([entry.with("checkpoint", &*name)]).collect();
            known = self.write_own(known, size, &own)?;
            self.sync_now()?;
        }
        let failed = |e| Error::io("cannot move the checkpoint aside", e).in_file(&checkpoint).fatal();
        std::fs::rename(&checkpoint, &aside).map_err(failed)?;
        sync_directory(&self.path)?;
        Ok(Some(self.receipt(known.next - 1, &known.hash)))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A caller that must know calls `sync`; for others this is a best effort.
        let _ = self.sync();
    }
}

#[cfg(test)]
mod tests;
