//! Reading the files of a tree: each read is declared with the real path and the hash of the bytes that were read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cp_common::clock::unix_seconds;
use cp_common::keys::hex;
use cp_policy::Table;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::plane::Failure;

/// The largest file that is read whole.
const WHOLE: u64 = 64 << 20;
/// The longest line of a ledger that is looked at; the rest of a longer one is hashed and not shown.
const LINE: usize = 16 << 20;
/// The most bytes of files that are kept.
const KEPT: usize = 16 << 20;
const BLOCK: usize = 64 << 10;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Read {
    /// Its real path.
    pub(crate) path: String,
    /// The hash of the bytes that were read, `sha256:` and 64 hex digits.
    pub(crate) hash: String,
    /// Where the bytes that were read begin, if not all of the file was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// How many were read, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

impl Read {
    /// A file that was read whole.
    pub(crate) fn whole(path: String, hash: String) -> Self {
        Self { path, hash, offset: None, bytes: None }
    }
}

/// Shows whether a file is still the same: nothing that a writer does leaves all of it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(kind: &Metadata) -> Self {
        Self {
            device: kind.dev(),
            inode: kind.ino(),
            size: kind.size(),
            modified: (kind.mtime(), kind.mtime_nsec()),
            changed: (kind.ctime(), kind.ctime_nsec()),
        }
    }

    /// Whether a change from now on would show. Clocks of file systems tick slowly: of two writes in one tick the second does not.
    fn is_settled(&self) -> bool {
        u64::try_from(self.changed.0).is_ok_and(|changed| changed + 1 < unix_seconds())
    }
}

#[derive(Debug)]
struct Kept {
    stamp: Stamp,
    bytes: Rc<[u8]>,
    read: Read,
}

/// The files below a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    reads: RefCell<Vec<Read>>,
    kept: RefCell<HashMap<PathBuf, Kept>>,
}

/// Given each line that is not blank: its number from 1, its bytes, and the real path of its file.
pub(crate) type EachLine<'a> = dyn FnMut(u64, &[u8], &Path) + 'a;

impl Files {
    /// Those below `root`, a real path.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, reads: RefCell::default(), kept: RefCell::default() }
    }

    /// The root, a real path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What was read since this was asked last.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        self.reads.take()
    }

    fn declare(&self, read: Read) {
        let mut reads = self.reads.borrow_mut();
        if !reads.contains(&read) {
            reads.push(read);
        }
    }

    /// The real path of a file below the root and the open file; none if there is no such file.
    fn open(&self, below: &Path) -> Result<Option<(PathBuf, File)>, Failure> {
        let path = match self.root.join(below).canonicalize() {
            Ok(path) => path,
            Err(e) if is_absent(&e) => return Ok(None),
            Err(e) => return Err(failed(below, &e)),
        };
        if !path.starts_with(&self.root) {
            return Err(damaged(below, "leads outside of the tree"));
        }
        // Not blocking: a pipe in the place of a file must not make a request hang.
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let file = opened.map_err(|e| failed(below, &e))?;
        let kind = file.metadata().map_err(|e| failed(below, &e))?;
        if !kind.is_file() {
            return Err(damaged(below, "not a regular file"));
        }
        Ok(Some((path, file)))
    }

    /// The bytes of a file; none if there is no such file. A file that has not changed is not read twice.
    pub(crate) fn bytes(&self, below: impl AsRef<Path>) -> Result<Option<Rc<[u8]>>, Failure> {
        let below = below.as_ref();
        if let Some(kept) = self.kept.borrow().get(below)
            && self.root.join(below).metadata().is_ok_and(|kind| Stamp::of(&kind) == kept.stamp)
        {
            self.declare(kept.read.clone());
            return Ok(Some(Rc::clone(&kept.bytes)));
        }
        let Some((path, mut file)) = self.open(below)? else { return Ok(None) };
        let stamp = Stamp::of(&file.metadata().map_err(|e| failed(below, &e))?);
        let mut bytes = Vec::new();
        file.by_ref().take(WHOLE + 1).read_to_end(&mut bytes).map_err(|e| failed(below, &e))?;
        if bytes.len() as u64 > WHOLE {
            return Err(damaged(below, &format!("larger than {} MiB", WHOLE >> 20)));
        }
        let read = Read::whole(path.display().to_string(), hash_of(&bytes));
        self.declare(read.clone());
        let bytes: Rc<[u8]> = bytes.into();
        if stamp.is_settled() && stamp.size == bytes.len() as u64 {
            self.keep(below, Kept { stamp, bytes: Rc::clone(&bytes), read });
        }
        Ok(Some(bytes))
    }

    fn keep(&self, below: &Path, file: Kept) {
        let mut kept = self.kept.borrow_mut();
        let total: usize = kept.values().map(|kept| kept.bytes.len()).sum();
        if total + file.bytes.len() > KEPT {
            kept.clear();
        }
        if file.bytes.len() <= KEPT {
            kept.insert(below.to_owned(), file);
        }
    }

    /// The text of a file; none if there is no such file.
    pub(crate) fn text(&self, below: impl AsRef<Path>) -> Result<Option<String>, Failure> {
        let below = below.as_ref();
        let Some(bytes) = self.bytes(below)? else { return Ok(None) };
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(e) => Err(damaged(below, &format!("not UTF-8: byte {}", e.valid_up_to()))),
        }
    }

    /// The JSON of a file; none if there is no such file.
    pub(crate) fn json(&self, below: impl AsRef<Path>) -> Result<Option<Value>, Failure> {
        let below = below.as_ref();
        let Some(bytes) = self.bytes(below)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| damaged(below, &format!("not valid JSON: {e}")))
    }

    /// The rows of a registry; none at all if there is no such file.
    pub(crate) fn table(&self, below: impl AsRef<Path>) -> Result<Table, Failure> {
        let text = self.text(below)?;
        Ok(text.map_or_else(Table::default, |text| Table::parse(&text)))
    }

    /// Goes through the lines of a file, however long it is. A last line without its line feed is still being written: it is
    /// left out.
    pub(crate) fn lines(&self, below: &Path, each: &mut EachLine<'_>) -> Result<(), Failure> {
        let (mut line, mut number) = (Vec::new(), 0);
        self.blocks(below, &mut |block, path| {
            for piece in block.split_inclusive(|byte| *byte == b'\n') {
                let (piece, is_whole) = piece.strip_suffix(b"\n").map_or((piece, false), |piece| (piece, true));
                let room = LINE.saturating_sub(line.len()).min(piece.len());
                line.extend_from_slice(&piece[..room]);
                if is_whole {
                    number += 1;
                    if !line.trim_ascii().is_empty() {
                        each(number, &line, path);
                    }
                    line.clear();
                }
            }
        })
        .map(|_| ())
    }

    /// The hash of a file; none if there is no such file.
    pub(crate) fn hash(&self, below: impl AsRef<Path>) -> Result<Option<String>, Failure> {
        self.blocks(below.as_ref(), &mut |_, _| {})
    }

    /// Reads a file to its end, block by block, and gives its hash.
    fn blocks(&self, below: &Path, each: &mut dyn FnMut(&[u8], &Path)) -> Result<Option<String>, Failure> {
        let Some((path, mut file)) = self.open(below)? else { return Ok(None) };
        let (mut hasher, mut block) = (Sha256::new(), vec![0; BLOCK]);
        loop {
            match file.read(&mut block) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&block[..read]);
                    each(&block[..read], &path);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(below, &e)),
            }
        }
        let hash = format!("sha256:{}", hex(&hasher.finalize()));
        self.declare(Read::whole(path.display().to_string(), hash.clone()));
        Ok(Some(hash))
    }

    /// The last bytes of a file, and whether they are all of it; none if there is no such file. What is declared is these bytes, and
    /// where they begin.
    pub(crate) fn tail(&self, below: &Path, most: u64) -> Result<Option<(Vec<u8>, bool)>, Failure> {
        let Some((path, mut file)) = self.open(below)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let size = file.metadata().map_err(|e| failed(below, &e))?.len();
        let read = file.seek(SeekFrom::Start(size.saturating_sub(most)));
        read.and_then(|_| file.take(most).read_to_end(&mut bytes)).map_err(|e| failed(below, &e))?;
        let read = Read::whole(path.display().to_string(), hash_of(&bytes));
        self.declare(if size > most {
            Read { offset: Some(size - most), bytes: Some(bytes.len() as u64), ..read }
        } else {
            read
        });
        Ok(Some((bytes, size <= most)))
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub(crate) fn names(&self, below: impl AsRef<Path>) -> Result<Vec<String>, Failure> {
        let below = below.as_ref();
        let listing = match self.root.join(below).read_dir() {
            Ok(listing) => listing,
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            Err(e) => return Err(failed(below, &e)),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|e| failed(below, &e))?;
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }
}

/// The hash of bytes.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn failed(below: &Path, error: &std::io::Error) -> Failure {
    let reason = error.to_string().to_lowercase();
    let reason = reason.split_once(" (os error").map_or(reason.as_str(), |(reason, _)| reason);
    Failure::handler(format!("{}: cannot be read: {reason}", below.display()))
        .with("file", below.display().to_string())
        .hint("make it readable for the user who runs this")
}

/// A file of the tree that is not as it should be.
pub(crate) fn damaged(below: &Path, how: &str) -> Failure {
    Failure::handler(format!("{}: {how}", below.display()))
        .with("file", below.display().to_string())
        .hint("restore the file, or correct it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_is_read_again_and_its_reads_have_both_hashes() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        for text in ["one", "two"] {
            std::fs::write(root.path().join("f"), text).unwrap();
            assert_eq!(files.bytes("f").unwrap().unwrap().as_ref(), text.as_bytes());
        }
        let hashes: Vec<String> = files.take_reads().into_iter().map(|read| read.hash).collect();
        assert_eq!(hashes, [hash_of(b"one"), hash_of(b"two")]);
    }

    #[test]
    fn a_kept_file_is_declared_each_time_and_noticed_when_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        std::fs::write(root.path().join("f"), "one").unwrap();
        let stamp = Stamp::of(&root.path().join("f").metadata().unwrap());
        let read = Read::whole("f".into(), hash_of(b"one"));
        files.keep(Path::new("f"), Kept { stamp, bytes: Rc::from(&b"one"[..]), read });
        assert_eq!(files.bytes("f").unwrap().unwrap().as_ref(), b"one");
        assert_eq!(files.take_reads().len(), 1);
        std::fs::write(root.path().join("f"), "longer").unwrap();
        assert_eq!(files.bytes("f").unwrap().unwrap().as_ref(), b"longer");
    }

    #[test]
    fn lines_come_with_their_numbers_and_a_torn_one_does_not() {
        let root = tempfile::tempdir().unwrap();
        let long = "x".repeat(3 * BLOCK);
        std::fs::write(root.path().join("f"), format!("a\n\n{long}\nb\ntorn")).unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        let mut seen = Vec::new();
        files.lines(Path::new("f"), &mut |number, bytes, _| seen.push((number, bytes.len()))).unwrap();
        assert_eq!(seen, [(1, 1), (3, 3 * BLOCK), (4, 1)]);
    }

    #[test]
    fn a_link_out_of_the_tree_and_a_pipe_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("f")).unwrap();
        assert!(files.bytes("f").unwrap_err().message.contains("outside"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("p"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(files.bytes("p").unwrap_err().message.contains("not a regular file"));
    }
}
