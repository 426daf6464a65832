//! Reads the files of a control plane tree. Each read is declared with the real path of the file and the hash of the
//! bytes. The class of a path is that after all links are resolved; `modules/shell/capabilities.json` forbids the shell to
//! read some. cp-exec decides about commands.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cp_common::home::resolved_below;
use cp_common::keys::{self, hex};
use cp_common::{Code, Error, Result};
use cp_ledger::blob;
use cp_policy::{PathClass, ROOTS_FILE, Table, classify, default_roots, parse_roots};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::plane::{FAULT, Plane, fault};

/// The largest file that is parsed as a whole.
const LARGEST: u64 = 64 << 20;
const BLOCK: usize = 64 << 10;
/// The longest line of a ledger that is parsed; the rest of a longer line is ignored.
const LONGEST_LINE: usize = 16 << 20;

/// A file that was read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Read {
    /// Its real path.
    pub(crate) path: String,
    /// The hash of the bytes, `sha256:` and 64 hex digits; null if a file was removed or its content is not known.
    pub(crate) hash: Option<String>,
    /// The offset of the bytes, if the file was read in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// The number of bytes, if the file was read in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

impl Read {
    /// A file that was read or written as a whole.
    pub(crate) fn whole(path: String, hash: Option<String>) -> Self {
        Self { path, hash, offset: None, bytes: None }
    }

    /// A file that was written, as it is now.
    pub(crate) fn written(path: &Path) -> Result<Self> {
        let found = blob::digest(path).map_err(|e| Error::io("reading", e).in_file(path))?;
        Ok(Self::whole(path.display().to_string(), found.map(|(hash, _)| hash.to_string())))
    }

    /// The files of an `exec.changes` entry.
    pub(crate) fn of_changes(files: &Value) -> impl Iterator<Item = Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let files = files.as_array().into_iter().flatten();
        files.map(move |file| Self::whole(text(&file["path"]).unwrap_or_default(), text(&file["after"]["sha256"])))
    }
}

/// Receives each entry of a ledger: its value, its line number from 1, and the real path of the file.
pub(crate) type EachEntry<'a> = dyn FnMut(&Value, u64, &Path) + 'a;

impl Plane {
    fn declare(&self, read: Read) {
        let mut reads = self.reads.borrow_mut();
        if !reads.contains(&read) {
            reads.push(read);
        }
    }

    /// Opens a file below the root; returns its real path and its size, or `None` if the file does not exist.
    fn open_file(&self, below: &Path) -> Result<Option<(PathBuf, File, u64)>> {
        let mut path = self.root.join(below);
        // Non-blocking, because a named pipe in place of a file must not make a request hang.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // A path without links and dots is the real path.
        let mut opened = if is_plain(below) {
            openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(Into::into)
        } else {
            Err(Errno::LOOP.into())
        };
        if opened.as_ref().is_err_and(|e| !is_absent(e)) {
            opened = path.canonicalize().and_then(|real| {
                path = real;
                if path.starts_with(&self.root) {
                    Ok(open(&path, flags, Mode::empty())?)
                } else {
                    Err(Errno::XDEV.into())
                }
            });
        }
        let file = match opened {
            Ok(file) => File::from(file),
            Err(e) if is_absent(&e) => return Ok(None),
            Err(e) if e.kind() == ErrorKind::CrossesDevices => return Err(damaged(below, "leads outside of the tree")),
            Err(e) => return Err(failed(below, &e)),
        };
        let kind = file.metadata().map_err(|e| failed(below, &e))?;
        if !kind.is_file() {
            return Err(damaged(below, "not a regular file"));
        }
        Ok(Some((path, file, kind.len())))
    }

    /// Reads at most the last `limit` bytes of a file and declares them with their offset. Also returns true if these are
    /// all the bytes. `None` if the file does not exist.
    pub(crate) fn tail(&self, below: &Path, limit: u64) -> Result<Option<(Vec<u8>, bool)>> {
        let Some((path, mut file, size)) = self.open_file(below)? else { return Ok(None) };
        let offset = size.saturating_sub(limit);
        // One more than its size, so that one read has all and the next is the end.
        let mut bytes = Vec::with_capacity(usize::try_from(size - offset).unwrap_or_default() + 1);
        let mut read_tail = || {
            if offset > 0 {
                file.seek(SeekFrom::Start(offset))?;
            }
            (&file).take(limit).read_to_end(&mut bytes)
        };
        read_tail().map_err(|e| failed(below, &e))?;
        let mut read = Read::whole(path.display().to_string(), Some(keys::hash(&bytes)));
        if offset > 0 {
            (read.offset, read.bytes) = (Some(offset), Some(bytes.len() as u64));
        }
        self.declare(read);
        Ok(Some((bytes, offset == 0)))
    }

    /// Reads and parses a file; `None` if the file does not exist.
    pub(crate) fn parsed<T>(
        &self,
        below: impl AsRef<Path>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let below = below.as_ref();
        let Some((bytes, is_whole)) = self.tail(below, LARGEST)? else { return Ok(None) };
        let parsed = if is_whole { parse(&bytes) } else { Err(format!("larger than {} MiB", LARGEST >> 20)) };
        parsed.map(Some).map_err(|how| damaged(below, &how))
    }

    /// The JSON of a file; `None` if the file does not exist.
    pub(crate) fn json(&self, below: impl AsRef<Path>) -> Result<Option<Value>> {
        self.parsed(below, |bytes| serde_json::from_slice(bytes).map_err(|e| format!("not valid JSON: {e}")))
    }

    /// The rows of a registry; none if the file does not exist.
    pub(crate) fn table(&self, below: impl AsRef<Path>) -> Result<Table> {
        Ok(self
            .parsed(below, |bytes| Table::parse(text(bytes)?).map_err(|e| e.message().to_owned()))?
            .unwrap_or_default())
    }

    /// Reads the entries of a ledger of any length. A last line without a line feed is left out, because it is still
    /// being written.
    pub(crate) fn entries(&self, below: &Path, each: &mut EachEntry<'_>) -> Result<()> {
        let (mut line, mut number) = (Vec::new(), 0);
        let read = self.blocks(below, &mut |block, path| {
            for piece in block.split_inclusive(|byte| *byte == b'\n') {
                let (piece, is_end) = piece.strip_suffix(b"\n").map_or((piece, false), |piece| (piece, true));
                let room = LONGEST_LINE.saturating_sub(line.len()).min(piece.len());
                line.extend_from_slice(&piece[..room]);
                if is_end {
                    number += 1;
                    if !line.trim_ascii().is_empty() {
                        each(&entry(number, &line), number, path);
                    }
                    line.clear();
                }
            }
        });
        read.map(drop)
    }

    /// The hash of a file; `None` if the file does not exist.
    pub(crate) fn hash(&self, below: impl AsRef<Path>) -> Result<Option<String>> {
        self.blocks(below.as_ref(), &mut |_, _| {})
    }

    /// Reads a file block by block, and returns its hash.
    fn blocks(&self, below: &Path, each: &mut dyn FnMut(&[u8], &Path)) -> Result<Option<String>> {
        let Some((path, mut file, size)) = self.open_file(below)? else { return Ok(None) };
        let (mut hasher, mut block) = (Sha256::new(), vec![0; BLOCK.min(usize::try_from(size).unwrap_or(BLOCK) + 1)]);
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
        self.declare(Read::whole(path.display().to_string(), Some(hash.clone())));
        Ok(Some(hash))
    }

    /// The names in a directory, sorted; none if the directory does not exist.
    pub(crate) fn names(&self, below: impl AsRef<Path>) -> Result<Vec<String>> {
        let below = below.as_ref();
        let list = || -> std::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in self.root.join(below).read_dir()? {
                names.extend(entry?.file_name().into_string());
            }
            names.sort();
            Ok(names)
        };
        match list() {
            Err(e) if is_absent(&e) => Ok(Vec::new()),
            found => found.map_err(|e| failed(below, &e)),
        }
    }
}

/// The entry on a line. A line that cannot be parsed becomes an entry with the reason, so that the other lines are
/// still read.
pub(super) fn entry(number: u64, bytes: &[u8]) -> Value {
    match serde_json::from_slice(bytes) {
        Ok(entry @ Value::Object(_)) => entry,
        Ok(_) => json!({"line": number, "unreadable": "no JSON object"}),
        Err(e) => json!({"line": number, "unreadable": format!("not JSON: {e}")}),
    }
}

/// Decodes UTF-8 text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|e| format!("not UTF-8: byte {}", e.valid_up_to()))
}

/// True if no part of a path is empty, `.` or `..`.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().split(|byte| *byte == b'/').any(|part| matches!(part, b"" | b"." | b".."))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn failed(below: &Path, error: &std::io::Error) -> Error {
    let reason = error.to_string().to_lowercase();
    let reason = reason.split_once(" (os error").map_or(reason.as_str(), |(reason, _)| reason);
    fault("HANDLER_ERROR", format!("{}: cannot be read: {reason}", below.display()))
        .with("file", below.display().to_string())
        .hint("make it readable for the user who runs this")
}

/// The failure for a file of the tree whose content is not valid.
pub(crate) fn damaged(below: &Path, how: &str) -> Error {
    fault("HANDLER_ERROR", format!("{}: {how}", below.display()))
        .with("file", below.display().to_string())
        .hint("restore the file, or correct it")
}

/// `governed_roots`
pub(super) fn governed_roots(plane: &Plane) -> Result<Value> {
    let roots = roots(plane)?;
    let count = roots.len();
    Ok(json!({"roots": roots, "count": count}))
}

/// The governed roots of the tree, or the default ones.
fn roots(plane: &Plane) -> Result<Vec<String>> {
    let roots = plane.parsed(ROOTS_FILE, |list| parse_roots(list).map_err(|e| e.to_string()))?;
    Ok(roots.unwrap_or_else(default_roots))
}

/// `explain_path`
pub(super) fn explain(plane: &Plane, path: &str) -> Result<Value> {
    if path.contains('\0') {
        return Err(fault("INVALID_REQUEST", "a path cannot contain NUL").with("field", "path"));
    }
    let roots = roots(plane)?;
    let (class, root) = classify(&plane.root, Path::new(path), &roots);
    let held = root.as_deref().unwrap_or_default();
    let explanation = match class {
        PathClass::AppendOnly => format!("{held} holds ledgers, which are append-only."),
        PathClass::Derived => format!("{held} is derived from other files: generate it again instead of changing it."),
        PathClass::Pristine => format!("{held} is a governed root: only the installation of a package writes there."),
        PathClass::Unknown => "No governed, derived or append-only root contains this path.".to_owned(),
        PathClass::External => {
            let real = resolved_below(&plane.root, Path::new(path));
            format!("{} is outside of the tree, which does not govern it.", real.display())
        }
    };
    Ok(json!({"path": path, "classification": class, "governed_root": root, "explanation": explanation}))
}

const FILE: &str = "modules/shell/capabilities.json";

/// Refuses to read a forbidden file.
pub(super) fn check_read(plane: &Plane, path: &str) -> Result<()> {
    let Some(capabilities) = plane.json(FILE)? else { return Ok(()) };
    let forbidden: Option<Vec<String>> = serde_json::from_value(capabilities["capabilities"]["forbidden"].clone())
        .map_err(|_| damaged(Path::new(FILE), "`capabilities.forbidden` is not a list of strings"))?;
    let forbidden = patterns(&forbidden.unwrap_or_default()).map_err(|e| damaged(Path::new(FILE), &e.to_string()))?;
    let real = resolved_below(&plane.root, Path::new(path));
    let Some(path) = real.strip_prefix(&plane.root).ok().and_then(Path::to_str) else { return Ok(()) };
    if forbidden.is_match(path) {
        return Err(Error::new(Code::Forbidden, format!("Capability denied: read on {path}"))
            .with(FAULT, "CAPABILITY_DENIED")
            .with("capability", "read")
            .with("path", path)
            .hint(format!("it is forbidden in {FILE}")));
    }
    Ok(())
}

/// The patterns of a list. `*` and `?` do not match `/`, `**` does; a directory matches everything below it.
fn patterns(list: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in list {
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let literal = |c: char| if "[]{}\\".contains(c) { format!("\\{c}") } else { c.to_string() };
        let pattern: String = pattern.chars().map(literal).collect();
        for pattern in [format!("{pattern}/**"), pattern] {
            set.add(GlobBuilder::new(&pattern).literal_separator(true).build()?);
        }
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn files() -> (tempfile::TempDir, Plane) {
        let root = tempfile::tempdir().unwrap();
        let files = Plane::open(root.path()).unwrap();
        (root, files)
    }

    #[test]
    fn changed_file_is_declared_with_both_hashes() {
        let (root, files) = files();
        for text in ["one", "two", "two"] {
            std::fs::write(root.path().join("f"), text).unwrap();
            assert_eq!(files.parsed("f", |bytes| Ok(bytes.to_vec())).unwrap().unwrap(), text.as_bytes());
        }
        let hashes: Vec<String> = files.take_reads().into_iter().filter_map(|read| read.hash).collect();
        assert_eq!(hashes, [keys::hash(b"one"), keys::hash(b"two")]);
        assert!(files.take_reads().is_empty());
    }

    #[test]
    fn file_behind_links_and_dots_is_declared_with_its_real_path() {
        let (root, files) = files();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join("d/f"), "1").unwrap();
        symlink("d", root.path().join("to-directory")).unwrap();
        symlink("d/f", root.path().join("to-file")).unwrap();
        for below in ["d/f", "to-directory/f", "to-file", "d/../d/./f"] {
            assert_eq!(files.json(below).unwrap(), Some(json!(1)), "{below}");
        }
        for absent in ["d/g", "to-directory/g", "d/f/g", "d/f/", "x/../d/f"] {
            assert_eq!(files.json(absent).unwrap(), None, "{absent}");
        }
        let paths: Vec<String> = files.take_reads().into_iter().map(|read| read.path).collect();
        assert_eq!(paths, [files.root.join("d/f").display().to_string()]);
    }

    #[test]
    fn entries_are_the_same_for_short_and_long_lines() {
        let (root, files) = files();
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
    fn link_out_of_the_tree_and_pipe_are_refused() {
        let (root, files) = files();
        symlink("/etc/passwd", root.path().join("f")).unwrap();
        assert!(files.json("f").unwrap_err().message().contains("outside"));
        let (pipe, kind) = (root.path().join("p"), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        assert!(files.json("p").unwrap_err().message().contains("not a regular file"));
    }

    /// A tree with a link of each kind, and its real root.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join("root");
        for directory in ["lib/deep", "ledger", "other", "planes/ho1/sessions/SES-1/ledger"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("lib/x.py"), "").unwrap();
        for (target, link) in [
            ("lib", "innocent"),
            ("lib/not-yet.py", "dangling"),
            ("../outside", "way-out"),
            ("/etc", "absolute"),
            ("loop", "loop"),
            ("../lib", "other/up"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        (place, root)
    }

    fn class(root: &Path, path: &str) -> Value {
        json!(classify(root, Path::new(path), &default_roots()).0)
    }

    #[test]
    fn path_class_resolves_links_and_dots() {
        let (_place, root) = tree();
        for (path, expected) in [
            ("lib/x.py", "PRISTINE"),
            ("lib", "PRISTINE"),
            ("./lib//x.py", "PRISTINE"),
            ("lib/", "PRISTINE"),
            ("library/x", "UNKNOWN"),
            ("ledgerish/x", "UNKNOWN"),
            ("ledger/a.jsonl", "APPEND_ONLY"),
            ("lib/../ledger/a.jsonl", "APPEND_ONLY"),
            ("planes/ho2/ledger/workorder.jsonl", "APPEND_ONLY"),
            ("planes/ho1/sessions/SES-1/session.jsonl", "APPEND_ONLY"),
            ("planes/ho1/x/ledger", "UNKNOWN"),
            ("registries/compiled/x.json", "DERIVED"),
            ("registries/compiled.json", "PRISTINE"),
            ("tmp/../lib/x", "PRISTINE"),
            ("tmp/x", "DERIVED"),
            ("../root/lib/x.py", "PRISTINE"),
            ("..", "EXTERNAL"),
            ("lib/../../x", "EXTERNAL"),
            ("../../../../../../../../etc/passwd", "EXTERNAL"),
            ("/etc/passwd", "EXTERNAL"),
            ("innocent/x.py", "PRISTINE"),
            ("innocent/../x", "UNKNOWN"),
            ("innocent/deep/../../ledger/x", "APPEND_ONLY"),
            ("dangling", "PRISTINE"),
            ("way-out", "EXTERNAL"),
            ("way-out/../root/lib/x.py", "PRISTINE"),
            ("absolute/passwd", "EXTERNAL"),
            ("other/up/x.py", "PRISTINE"),
            ("loop/x", "UNKNOWN"),
            ("lib\u{ff0f}x.py", "UNKNOWN"),
            ("li\u{301}b/x.py", "UNKNOWN"),
            ("LIB/x.py", "UNKNOWN"),
            (" lib/x.py", "UNKNOWN"),
            ("none/../lib/x.py", "PRISTINE"),
        ] {
            assert_eq!(class(&root, path), expected, "{path}");
        }
        assert_eq!(class(&root, root.join("lib/x.py").to_str().unwrap()), "PRISTINE");
        assert_eq!(class(&root, &format!("//{}/./ledger", root.display())), "APPEND_ONLY");
    }

    #[test]
    fn patterns_match_files_parts_and_directories() {
        let matches = |pattern: &str, path: &str| patterns(&[pattern.to_owned()]).unwrap().is_match(path);
        for (pattern, path) in [
            ("lib/secret.py", "lib/secret.py"),
            ("lib/*.py", "lib/a.py"),
            ("lib", "lib/a/b.py"),
            ("lib/", "lib/a.py"),
            ("**/secret*", "a/b/secret.txt"),
            ("**/secret*", "secret.txt"),
            ("lib/**", "lib/a/b"),
            ("l?b/a", "lib/a"),
            ("./lib/[a]{b}\\c", "lib/[a]{b}\\c"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("lib/*.py", "lib/a/b.py"), ("lib", "library"), ("l?b", "l/b"), ("secret", "a/secret")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        // In no time.
        assert!(!matches(&format!("{}x", "**/*a".repeat(40)), &"a/".repeat(200)));
    }
}
