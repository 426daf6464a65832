//! Reading the files of a tree: each read is declared with the real path and the hash of the bytes that were read.

use std::cell::RefCell;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cp_common::keys::hex;
use cp_policy::Table;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::plane::Failure;
use crate::plane::kept::{Kept, Name, Part, Stamp};
use crate::plane::lines::Lines;
use crate::plane::read::Read;

/// The largest file that is read whole.
const WHOLE: u64 = 64 << 20;
/// The largest file that is kept for its lines or its hash.
const SMALL: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;

/// The files below a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    reads: RefCell<Vec<Read>>,
    kept: Kept,
}

/// Given each entry: itself, its line from 1, and the real path of its file.
pub(crate) type EachEntry<'a> = dyn FnMut(&Value, u64, &Path) + 'a;

impl Files {
    /// Those below `root`, a real path.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, reads: RefCell::default(), kept: Kept::default() }
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

    /// The last bytes of a file, all of them where there are no more than `most`; none if there is no such file. What is declared is
    /// these bytes, and where they begin. A file that has not changed is not read twice.
    fn end(&self, name: &Name, now: std::io::Result<Metadata>) -> Result<Option<Part>, Failure> {
        let (below, most) = (name.0.as_path(), name.1);
        if let Some(kept) = now.ok().and_then(|now| self.kept.part(name, Stamp::of(&now))) {
            self.declare(kept.read.clone());
            return Ok(Some(kept));
        }
        let Some((path, mut file)) = self.open(below)? else { return Ok(None) };
        let stamp = Stamp::of(&file.metadata().map_err(|e| failed(below, &e))?);
        let is_settled = stamp.is_settled();
        let (offset, mut bytes) = (stamp.size.saturating_sub(most), Vec::new());
        let sought = file.seek(SeekFrom::Start(offset));
        sought.and_then(|_| file.take(most).read_to_end(&mut bytes)).map_err(|e| failed(below, &e))?;
        let mut read = Read::whole(path.display().to_string(), hash_of(&bytes));
        if offset > 0 {
            (read.offset, read.bytes) = (Some(offset), Some(bytes.len() as u64));
        }
        self.declare(read.clone());
        let part = Part { bytes: bytes.into(), read };
        if is_settled {
            self.kept.keep(name.clone(), stamp, &part);
        }
        Ok(Some(part))
    }

    /// What a file says; none if there is no such file.
    pub(crate) fn said<T: 'static>(
        &self,
        below: impl AsRef<Path>,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<Rc<T>>, Failure> {
        let below = below.as_ref();
        self.said_at_end(below, WHOLE, |bytes, is_whole| {
            let whole = if is_whole { read(bytes) } else { Err(format!("larger than {} MiB", WHOLE >> 20)) };
            whole.map_err(|how| damaged(below, &how))
        })
    }

    /// What the last bytes of a file say, and whether they are all of it. None if there is no such file.
    pub(crate) fn said_at_end<T: 'static>(
        &self,
        below: &Path,
        most: u64,
        read: impl FnOnce(&[u8], bool) -> Result<T, Failure>,
    ) -> Result<Option<Rc<T>>, Failure> {
        let name = (below.to_owned(), most);
        let Some(part) = self.end(&name, self.root.join(below).metadata())? else { return Ok(None) };
        self.kept.said(&name, &part, |part| read(&part.bytes, part.read.offset.is_none())).map(Some)
    }

    /// The JSON of a file; none if there is no such file.
    pub(crate) fn json(&self, below: impl AsRef<Path>) -> Result<Option<Rc<Value>>, Failure> {
        self.said(below, |bytes| serde_json::from_slice(bytes).map_err(|e| format!("not valid JSON: {e}")))
    }

    /// The rows of a registry; none at all if there is no such file.
    pub(crate) fn table(&self, below: impl AsRef<Path>) -> Result<Rc<Table>, Failure> {
        let table = self.said(below, |bytes| text(bytes).map(Table::parse))?;
        Ok(table.unwrap_or_default())
    }

    /// Goes through the entries of a ledger, however long it is.
    pub(crate) fn entries(&self, below: &Path, each: &mut EachEntry<'_>) -> Result<(), Failure> {
        let Some((name, part)) = self.small(below)? else {
            let mut lines = Lines::default();
            let all = self.blocks(below, &mut |block, path| {
                lines.feed(block, &mut |number, entry| each(&entry, number, path));
            });
            return all.map(|_| ());
        };
        let entries = self.kept.said(&name, &part, |part| {
            let mut entries = Vec::new();
            Lines::default().feed(&part.bytes, &mut |number, entry| entries.push((number, entry)));
            Ok::<_, Failure>(entries)
        })?;
        entries.iter().for_each(|(number, entry)| each(entry, *number, Path::new(&part.read.path)));
        Ok(())
    }

    /// The hash of a file; none if there is no such file.
    pub(crate) fn hash(&self, below: impl AsRef<Path>) -> Result<Option<String>, Failure> {
        match self.small(below.as_ref())? {
            Some((_, part)) => Ok(Some(part.read.hash)),
            None => self.blocks(below.as_ref(), &mut |_, _| {}),
        }
    }

    /// All of a file that is small enough to be kept.
    fn small(&self, below: &Path) -> Result<Option<(Name, Part)>, Failure> {
        let now = self.root.join(below).metadata();
        if !now.as_ref().is_ok_and(|now| now.len() <= SMALL) {
            return Ok(None);
        }
        let name = (below.to_owned(), WHOLE);
        let part = self.end(&name, now)?;
        Ok(part.filter(|part| part.read.offset.is_none()).map(|part| (name, part)))
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

    /// The names in a directory, sorted; none if there is no such directory.
    pub(crate) fn names(&self, below: impl AsRef<Path>) -> Result<Vec<String>, Failure> {
        let below = below.as_ref();
        let directory = self.root.join(below);
        let found = directory.metadata().and_then(|now| {
            self.kept.names(below, Stamp::of(&now), || {
                let mut names = Vec::new();
                for entry in directory.read_dir()? {
                    names.extend(entry?.file_name().into_string());
                }
                names.sort();
                Ok(names)
            })
        });
        match found {
            Err(e) if is_absent(&e) => Ok(Vec::new()),
            found => found.map_err(|e| failed(below, &e)),
        }
    }
}

/// Bytes as text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|e| format!("not UTF-8: byte {}", e.valid_up_to()))
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
            assert_eq!(*files.said("f", |bytes| Ok(bytes.to_vec())).unwrap().unwrap(), text.as_bytes());
        }
        let hashes: Vec<String> = files.take_reads().into_iter().map(|read| read.hash).collect();
        assert_eq!(hashes, [hash_of(b"one"), hash_of(b"two")]);
    }

    #[test]
    fn a_kept_file_is_declared_each_time_and_read_again_when_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        let text = |files: &Files| files.said("f", |bytes| Ok(bytes.to_vec())).unwrap().unwrap();
        std::fs::write(root.path().join("f"), "one").unwrap();
        let stamp = Stamp::of(&root.path().join("f").metadata().unwrap());
        let read = Read::whole("kept".into(), hash_of(b"one"));
        files.kept.keep(("f".into(), WHOLE), stamp, &Part { bytes: Rc::from(&b"one"[..]), read });
        let first = text(&files);
        assert_eq!((first.as_slice(), files.take_reads()[0].path.as_str()), (&b"one"[..], "kept"));
        // The same bytes say the same: it is not asked again what they say.
        assert!(Rc::ptr_eq(&first, &text(&files)) && files.take_reads().len() == 1);
        std::fs::write(root.path().join("f"), "two longer").unwrap();
        assert_eq!(*text(&files), b"two longer");
        assert_ne!(files.take_reads()[0].path, "kept");
    }

    #[test]
    fn entries_are_the_same_whether_they_are_read_at_once_or_in_blocks() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        for (length, count) in [(10, 3), (3 * BLOCK, 3), (1 << 20, 3)] {
            let long = "x".repeat(length);
            std::fs::write(root.path().join("f"), format!("{{\"a\":1}}\n\n{{\"b\":\"{long}\"}}\nno\n{{}}")).unwrap();
            let mut seen = Vec::new();
            files
                .entries(Path::new("f"), &mut |entry, number, _| seen.push((number, entry.to_string().len())))
                .unwrap();
            assert_eq!(seen.len(), count);
            assert_eq!((seen[0], seen[1], seen[2].0), ((1, 7), (3, length + 8), 4));
        }
    }

    #[test]
    fn a_link_out_of_the_tree_and_a_pipe_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().canonicalize().unwrap());
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("f")).unwrap();
        assert!(files.json("f").unwrap_err().message.contains("outside"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("p"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(files.json("p").unwrap_err().message.contains("not a regular file"));
    }
}
