//! Appending: many processes, one order. Every line is on the chain, whole, and acknowledged only if it stays.

mod body;
mod durable;
mod ready;
mod segment;
mod torn;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, clock, signals};

use self::durable::Durable;
pub use self::durable::Sync;
use cp_redact::Redactor;

use self::ready::{drawn_origin, foreign, open_file};
use crate::format::Entry;
use crate::format::line::{self, Hash, PREV_LEN, TAIL_LEN, TS_LEN};
use crate::read::segments::name_of;
use crate::read::tail;
use crate::store::vault;

/// The name of the format, as line 0 has it.
pub const FORMAT: &str = "cp-ledger/1";
/// What a line adds to its body at most.
const FRAME: usize = 32 + TS_LEN + PREV_LEN + TAIL_LEN;

/// The lines that one [`Ledger::commit`] wrote.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The place of the first.
    pub first: u64,
    /// The hash of each, in order.
    pub hashes: Vec<Hash>,
}

/// A ledger that is open for appending.
#[derive(Debug)]
pub struct Ledger {
    /// What the caller calls it.
    named: PathBuf,
    path: PathBuf,
    file: File,
    durable: Durable,
    redactor: Redactor,
    /// Members whose values go to the vault.
    sealed: Vec<String>,
    known: Option<Known>,
    /// There while the lock is held.
    effect: Option<signals::Effect>,
    /// Bodies that wait for [`Ledger::commit`], one after the other, and where each ends.
    staged: Vec<u8>,
    ends: Vec<usize>,
    /// The lines being written; kept for its memory.
    lines: Vec<u8>,
    /// What line 0 says, if the file is made here.
    birth: Birth,
}

/// What the first line of a new ledger says of it.
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
    /// Opens a ledger, and creates it if there is none. An existing file that is not a ledger is refused.
    pub fn open(path: &Path, sync: Sync) -> Result<Self> {
        let mut ledger = Self::opened(path, sync)?;
        if ledger.size()? == 0 {
            let ready = ledger.ready();
            ledger.unlock();
            ready?;
        } else {
            ledger.refuse_foreign()?;
        }
        Ok(ledger)
    }

    /// Begins a new ledger, and gives its origin. None, and nothing done, when the file holds something already.
    pub fn create(path: &Path, birth: &Birth) -> Result<Option<String>> {
        let mut ledger = Self::opened(path, Sync::Line)?;
        let origin = match &birth.origin {
            Some(origin) => origin.clone(),
            None => drawn_origin()?,
        };
        ledger.birth = Birth { origin: Some(origin.clone()), ..birth.clone() };
        let created = ledger.lock().and_then(|(inode, size)| match size {
            0 => ledger.create_line(Known { inode, size: 0, next: 0, hash: Hash::of(b"") }).map(|_| Some(origin)),
            _ => Ok(None),
        });
        ledger.unlock();
        created
    }

    /// Whether there is a file that holds something.
    pub fn is_there(path: &Path) -> Result<bool> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(!found.is_file() || found.len() > 0),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io("cannot read its metadata", e).in_file(path)),
        }
    }

    /// The file, which may be empty or foreign.
    fn opened(path: &Path, sync: Sync) -> Result<Self> {
        // A receipt must still point at the ledger when it is read in another directory.
        let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Side files lie beside the file itself, not beside a link to it.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| named.clone());
        let file = open_file(&path)?;
        Ok(Self {
            named,
            path,
            file,
            durable: Durable::new(sync),
            redactor: Redactor::from_environment(),
            sealed: Vec::new(),
            known: None,
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

    /// What takes secrets out.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Keeps the values of these fields (`message`, `content`, `data.NAME`) of all entries to come in the vault: the lines have their
    /// salted hashes only.
    pub fn seal(&mut self, fields: &[String]) -> Result<()> {
        if let Some(field) = fields.iter().find(|field| !vault::is_field(field)) {
            return Err(Error::usage(format!("`{field}` cannot be sealed")).hint("message, content and data.NAME can"));
        }
        self.sealed = fields.to_vec();
        Ok(())
    }

    /// Appends one entry. When this returns it is as durable as [`Sync`] says.
    #[expect(clippy::needless_pass_by_value, reason = "an entry is appended once")]
    pub fn append(&mut self, entry: Entry) -> Result<Receipt> {
        self.stage(&entry)?;
        let committed = self.commit()?;
        let hash = committed.hashes.last().ok_or_else(|| Error::new(Code::Unknown, "nothing was appended"))?;
        Ok(self.receipt(committed.first, hash))
    }

    /// Appends entries that stand together: all of them in one write, or none.
    #[expect(clippy::needless_pass_by_value, reason = "an entry is appended once")]
    pub fn append_all(&mut self, entries: Vec<Entry>) -> Result<Vec<Receipt>> {
        for entry in &entries {
            if let Err(e) = self.stage(entry) {
                self.discard();
                return Err(e);
            }
        }
        let committed = self.commit()?;
        Ok((committed.first..).zip(&committed.hashes).map(|(seq, hash)| self.receipt(seq, hash)).collect())
    }

    /// Appends entries that name each other's places: `entries` gets, under the lock, the place that the first of them will have.
    /// All of them in one write, or none.
    pub fn append_placed(&mut self, entries: impl FnOnce(u64) -> Result<Vec<Entry>>) -> Result<Vec<Receipt>> {
        self.durable.certain(&self.path)?;
        self.discard();
        let written = self.ready().and_then(|known| {
            for entry in entries(known.next)? {
                self.stage(&entry)?;
            }
            if self.ends.is_empty() {
                return Ok(Committed { first: known.next, hashes: Vec::new() });
            }
            self.write_staged(known)
        });
        self.unlock();
        self.discard();
        let committed = self.acknowledged(written)?;
        Ok((committed.first..).zip(&committed.hashes).map(|(seq, hash)| self.receipt(seq, hash)).collect())
    }

    /// The proof of a line that this ledger wrote.
    pub fn receipt(&self, seq: u64, hash: &Hash) -> Receipt {
        Receipt::new(&self.named, seq, hash.to_string())
    }

    /// Gets an entry ready without writing it: in normal form, without secrets, short enough for a line.
    pub fn stage(&mut self, entry: &Entry) -> Result<()> {
        entry.check()?;
        let start = self.staged.len();
        entry.compose(&mut self.staged);
        for field in &self.sealed {
            if let Err(e) = vault::seal(&self.path, &mut self.staged, start, field) {
                self.staged.truncate(start);
                return Err(e);
            }
        }
        let redactions = self.redactor.redact(&mut self.staged, start);
        let done = body::finish(&self.path, &mut self.staged, start, entry, redactions);
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

    /// Writes everything that was staged, in one write.
    pub fn commit(&mut self) -> Result<Committed> {
        if self.ends.is_empty() {
            return Ok(Committed { first: 0, hashes: Vec::new() });
        }
        self.durable.certain(&self.path)?;
        let written = self.ready().and_then(|known| self.write_staged(known));
        self.unlock();
        self.discard();
        self.acknowledged(written)
    }

    /// What was written, once the disk has it if it must.
    fn acknowledged(&mut self, written: Result<Committed>) -> Result<Committed> {
        let committed = written?;
        if !committed.hashes.is_empty() {
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

    fn write_staged(&mut self, known: Known) -> Result<Committed> {
        let now = clock::now();
        self.lines.clear();
        let (mut start, mut prev) = (0, known.hash);
        let mut hashes = Vec::with_capacity(self.ends.len());
        for (seq, &end) in (known.next..).zip(&self.ends) {
            prev = line::compose(seq, &now, &self.staged[start..end], &prev, &mut self.lines)?;
            hashes.push(prev);
            start = end;
        }
        self.write_lines(known, known.next + hashes.len() as u64, prev)?;
        Ok(Committed { first: known.next, hashes })
    }

    /// Writes `lines` behind the known end, whole or not at all, and moves the known end.
    fn write_lines(&mut self, known: Known, next: u64, hash: Hash) -> Result<()> {
        let written = loop {
            match self.file.write(&self.lines) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        if !matches!(written, Ok(count) if count == self.lines.len()) {
            // Cut back under the lock, so that no line ever follows a partial one.
            let cut = self.file.set_len(known.size);
            self.known = None;
            let reason = match written {
                Ok(_) => "the disk or the file size limit is full".to_owned(),
                Err(e) => e.to_string(),
            };
            let after = if cut.is_ok() { "nothing was appended" } else { "and the torn bytes could not be removed" };
            return Err(Error::new(Code::Io, format!("cannot append: {reason}; {after}")).in_file(&self.path).fatal());
        }
        self.known = Some(Known { size: known.size + self.lines.len() as u64, next, hash, ..known });
        Ok(())
    }

    /// The name that the file gets when it is closed.
    pub fn segment_path(&self) -> Result<PathBuf> {
        name_of(&self.path)
    }

    /// Closes the file as a segment and goes on in a new one. Returns the segment's file.
    pub fn rotate(&mut self) -> Result<PathBuf> {
        let done = self.ready().and_then(|known| {
            let name = name_of(&self.path)?;
            let sealed = self.write_own(known, &segment::seal(&self.path)?)?;
            self.file.sync_data().map_err(|e| Error::io("cannot sync", e).in_file(&self.path).fatal())?;
            self.known = None;
            segment::finish(&self.file, &self.path, sealed.size, sealed.next - 1, &sealed.hash)?;
            Ok(name)
        });
        self.unlock();
        done
    }

    /// What repair would move aside: where it starts, how much it is, and its hash. `None` if the last line is intact and whole.
    pub fn damaged_tail(&self) -> Result<Option<(u64, u64, Hash)>> {
        let size = self.size()?;
        let good = tail::intact_end(&self.file, &self.path, size)?;
        match good {
            None => Err(foreign(&self.path)),
            Some((end, _)) if end == size => Ok(None),
            Some((end, _)) => {
                let hash = tail::hash_of(&self.file, end, size)
                    .map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
                Ok(Some((end, size - end, hash)))
            }
        }
    }

    /// Moves everything after the last intact line aside, and says so. Returns the entry's receipt.
    pub fn repair_tail(&mut self) -> Result<Receipt> {
        let (inode, size) = self.lock()?;
        let done = tail::intact_end(&self.file, &self.path, size).and_then(|good| {
            let (end, last) = good.ok_or_else(|| foreign(&self.path))?;
            let known = Known { inode, size: end, next: last.0 + 1, hash: last.1 };
            let sealed = torn::seal(&self.file, &self.path, end, size, known.next)?;
            let known = self.write_own(known, &Entry::new("ledger.recovered").data(&sealed))?;
            Ok(self.receipt(known.next - 1, &known.hash))
        });
        self.unlock();
        self.durable.written(self.lines.len(), &self.file, &self.path)?;
        self.sync()?;
        done
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Who needs to know calls `sync`; for the others this is better than nothing.
        let _ = self.sync();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::format::line::Line;
    use crate::read::lines;
    use crate::store::blob;
    use cp_common::json;

    fn ledger() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/l.jsonl");
        (dir, path)
    }

    /// The events of a file, after proving every line of it.
    fn proven(path: &Path) -> Vec<String> {
        let (mut events, mut reader) = (Vec::new(), lines(path).unwrap());
        let mut prev = None;
        while let Some(raw) = reader.next().unwrap() {
            let line = raw.stored().expect("a line of ours");
            assert!(line.is_intact() && json::is_normal(line.bytes()));
            assert_eq!(line.seq(), events.len() as u64);
            assert!(prev.is_none_or(|prev| prev == line.prev()));
            prev = Some(line.hash());
            events.push(
                line.member("event").map(|event| String::from_utf8_lossy(event).replace('"', "")).unwrap_or_default(),
            );
        }
        events
    }

    fn append(path: &Path, event: &str) -> Result<Receipt> {
        Ledger::open(path, Sync::None)?.append(Entry::new(event))
    }

    #[test]
    fn a_new_ledger_opens_with_its_origin_and_chains_from_it() {
        let (_dir, path) = ledger();
        let receipt = append(&path, "a").unwrap();
        assert_eq!(receipt.seq, 1);
        assert_eq!(proven(&path), ["ledger.open", "a"]);
        let text = std::fs::read_to_string(&path).unwrap();
        let first = Line::parse(text.lines().next().unwrap().as_bytes()).unwrap();
        let data: serde_json::Value = serde_json::from_slice(first.member("data").unwrap()).unwrap();
        assert_eq!(data["format"], FORMAT);
        assert_eq!(first.prev(), Hash::of_origin(data["origin"].as_str().unwrap()));
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn two_that_are_open_at_once_take_turns() {
        let (_dir, path) = ledger();
        let mut one = Ledger::open(&path, Sync::Line).unwrap();
        let mut two = Ledger::open(&path, Sync::Batch).unwrap();
        for turn in 1..=5 {
            assert_eq!(one.append(Entry::new("one")).unwrap().seq, 2 * turn - 1);
            assert_eq!(two.append(Entry::new("two")).unwrap().seq, 2 * turn);
        }
        let receipts = one.append_all(vec![Entry::new("x"), Entry::new("y")]).unwrap();
        assert_eq!((receipts[0].seq, receipts[1].seq), (11, 12));
        assert_eq!(proven(&path).len(), 13);
    }

    #[test]
    fn all_or_nothing_when_one_of_many_is_wrong() {
        let (_dir, path) = ledger();
        let mut ledger = Ledger::open(&path, Sync::None).unwrap();
        assert!(ledger.append_all(vec![Entry::new("x"), Entry::new("y").data(&1)]).is_err());
        ledger.append(Entry::new("z")).unwrap();
        assert_eq!(proven(&path), ["ledger.open", "z"]);
    }

    #[test]
    fn torn_bytes_are_moved_aside_and_told() {
        for torn in [&b"{\"seq\":2,\"ts\":\"20"[..], &[0; 5000], b"x"] {
            let (_dir, path) = ledger();
            append(&path, "a").unwrap();
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(torn).unwrap();
            append(&path, "b").unwrap();
            assert_eq!(proven(&path), ["ledger.open", "a", "ledger.recovered", "b"]);
            let text = std::fs::read_to_string(&path).unwrap();
            let told = Line::parse(text.lines().nth(2).unwrap().as_bytes()).unwrap();
            let data: serde_json::Value = serde_json::from_slice(told.member("data").unwrap()).unwrap();
            assert_eq!(data["len"], torn.len());
            let kept = std::fs::read(path.with_file_name(data["file"].as_str().unwrap())).unwrap();
            assert_eq!(kept, torn);
        }
    }

    #[test]
    fn every_truncation_can_be_appended_to() {
        let (_dir, path) = ledger();
        append(&path, "a").unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            append(&path, "b").unwrap();
            assert_eq!(proven(&path).last().map(String::as_str), Some("b"), "{length}");
        }
    }

    #[test]
    fn foreign_files_stay_as_they_are() {
        for foreign in ["{\"a\":1}\n", "hello", "\n", "{\"seq\":0,\"ts\":\"2026\"}\n", "{}"] {
            let (_dir, path) = ledger();
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, foreign).unwrap();
            assert_eq!(append(&path, "a").unwrap_err().code(), Code::Validation, "{foreign}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(append(dir.path(), "a").is_err());
    }

    #[test]
    fn a_damaged_last_line_stops_appending_and_a_damaged_middle_does_not() {
        let (_dir, path) = ledger();
        append(&path, "a").unwrap();
        append(&path, "b").unwrap();
        let good = std::fs::read(&path).unwrap();
        let last = memchr::memmem::rfind(&good, b"\"event\":\"b\"").unwrap();
        let mut bad = good.clone();
        bad[last + 9] = b'X';
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(append(&path, "c").unwrap_err().code(), Code::Integrity);
        assert_eq!(std::fs::read(&path).unwrap(), bad);
        let mut bad = good.clone();
        bad[30] = b'X';
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(append(&path, "c").unwrap().seq, 3);
    }

    #[test]
    fn a_replaced_file_is_noticed_under_the_lock() {
        let (dir, path) = ledger();
        let mut ledger = Ledger::open(&path, Sync::None).unwrap();
        ledger.append(Entry::new("a")).unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert_eq!(ledger.append(Entry::new("b")).unwrap().seq, 1);
        assert_eq!(proven(&path), ["ledger.open", "b"]);
    }

    #[test]
    fn secrets_and_bad_bytes_are_counted_and_large_values_moved() {
        let (_dir, path) = ledger();
        let mut ledger = Ledger::open(&path, Sync::None).unwrap();
        ledger.append(Entry::new("e").message("password=hunter22").with("redactions", &1)).unwrap();
        let mut bad = Entry::new("e");
        bad.set_message_bytes(b"a\xff");
        ledger.append(bad).unwrap();
        ledger.append(Entry::new("e").content(&"x".repeat(3 << 20))).unwrap();
        proven(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().skip(1).map(|line| Line::parse(line.as_bytes()).unwrap()).collect();
        assert_eq!(
            lines[0].body(),
            br#","event":"e","message":"password=[REDACTED:assignment]","data":{"redactions":2}"#
        );
        let data: serde_json::Value = serde_json::from_slice(lines[1].member("data").unwrap()).unwrap();
        assert_eq!(data["replaced"], 1);
        let hash = Hash::parse(data["original"]["blob"].as_str().unwrap()).unwrap();
        assert_eq!(blob::load(&path, &hash).unwrap(), b"a\xff");
        let content = blob::resolve(&path, lines[2].member("content").unwrap()).unwrap().unwrap();
        assert_eq!(content.len(), (3 << 20) + 2);
    }
}
