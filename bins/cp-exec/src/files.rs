//! Atomic changes of a file, which fail if the file was changed since it was read, and the difference of two texts.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use similar::{Algorithm, TextDiff};

use crate::nofollow::open_with;

/// Maximum length of a file, because its whole content is kept.
const LONGEST: u64 = 16 << 20;

/// A regular file and its state.
pub(crate) struct Present {
    /// The content.
    pub bytes: Vec<u8>,
    /// The hash of the content.
    pub hash: Hash,
    /// The permission bits.
    pub permissions: u32,
    owner: (u32, u32),
    stamp: Stamp,
}

/// Identifies an unchanged file: device, inode, size, modification time.
type Stamp = (u64, u64, i64, i64, i64);

/// The new content of a file.
pub(crate) struct After {
    /// The content.
    pub bytes: Vec<u8>,
    /// The hash of the content.
    pub hash: Hash,
    /// The new permission bits; `None` keeps those of the file.
    pub permissions: Option<u32>,
}

impl Present {
    /// Reads a file that was opened at `path` without following links.
    pub(crate) fn read(mut file: File, path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io("cannot be read", e).in_file(path);
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(Error::validation(format!("{} exists and is not a regular file", path.display())));
        }
        if meta.len() > LONGEST {
            return Err(Error::validation(format!("{} has {} bytes", path.display(), meta.len()))
                .hint(format!("what it holds is kept before a change, up to {LONGEST} bytes")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        file.read_to_end(&mut bytes).map_err(failed)?;
        let stamp = stamp(&rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?);
        let hash = Hash::of(&bytes);
        Ok(Self { bytes, hash, permissions: meta.mode() & 0o7777, owner: (meta.uid(), meta.gid()), stamp })
    }
}

impl After {
    /// Makes new content.
    pub(crate) fn new(bytes: Vec<u8>, permissions: Option<u32>) -> Self {
        Self { hash: Hash::of(&bytes), bytes, permissions }
    }
}

/// A file that is about to change.
pub(crate) struct Pending {
    /// The absolute path without links.
    pub path: PathBuf,
    /// The current file; `None` if it is new.
    pub before: Option<Present>,
    /// The new content; `None` removes the file.
    pub after: Option<After>,
}

fn stamp(stat: &Stat) -> Stamp {
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds of a second")]
    let nanoseconds = stat.st_mtime_nsec as i64;
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, nanoseconds)
}

impl Pending {
    /// Applies the change. The path was resolved before, so a link in it now was added in the meantime.
    pub(crate) fn carry_out(&self) -> Result<()> {
        let (Some(name), Some(parent)) = (self.path.file_name(), self.path.parent()) else {
            return Err(Error::validation("not a file name").with("rule", "path"));
        };
        let directory = open_with(parent, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| match e {
            rustix::io::Errno::NOENT => Error::not_found(format!("directory not found: {}", parent.display()))
                .with("rule", "parent")
                .hint("make the directory first, for example with `mkdir -p`, where that command is allowed"),
            e => Error::io("cannot be opened", e).in_file(parent),
        })?;
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::AlreadyExists => self.changed_in_the_meantime(),
            _ => Error::io("cannot be written", e).in_file(&self.path),
        };
        let Some(after) = &self.after else {
            self.is_unchanged(&directory, name)?;
            return rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(|e| failed(e.into()));
        };
        let temporary = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        let (file, is_named) = self.write(&directory, &temporary, after).map_err(failed)?;
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |name: &std::ffi::OsStr| {
            rustix::fs::linkat(CWD, &open, &directory, name, AtFlags::SYMLINK_FOLLOW).map_err(|e| failed(e.into()))
        };
        let replaces = self.before.is_some();
        // A hard link does not replace a file that was created in the meantime.
        let mut placed =
            if replaces && is_named { Ok(()) } else { link(if replaces { temporary.as_ref() } else { name }) };
        if replaces && placed.is_ok() {
            placed = self.is_unchanged(&directory, name).and_then(|()| {
                rustix::fs::renameat(&directory, &temporary, &directory, name).map_err(|e| failed(e.into()))
            });
        }
        if is_named && !replaces || replaces && placed.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        }
        placed
    }

    /// Writes the new content to a locked file with the final owner and permissions. It has no name, so that killing
    /// this process leaves no file, where the file system supports that; else it has the temporary name, and the
    /// result is true.
    fn write(
        &self,
        directory: impl std::os::fd::AsFd,
        temporary: &str,
        after: &After,
    ) -> std::io::Result<(File, bool)> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let (file, is_named) = match rustix::fs::openat(&directory, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => (file, false),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let named = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (rustix::fs::openat(&directory, temporary, named, mode)?, true)
            }
            Err(e) => return Err(e.into()),
        };
        let mut file = File::from(file);
        // See `remove_abandoned`. A file system without locks cannot have the lock of another process either.
        let _ = file.try_lock();
        let set = |file: &File| {
            if let Some(before) = &self.before {
                let stat = rustix::fs::fstat(file)?;
                let (uid, gid) = before.owner;
                if (stat.st_uid, stat.st_gid) != before.owner {
                    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
                }
            }
            let kept = self.before.as_ref().map(|before| before.permissions & 0o777);
            after.permissions.or(kept).map_or(Ok(()), |bits| rustix::fs::fchmod(file, Mode::from_raw_mode(bits)))
        };
        let written = set(&file).map_err(Into::into).and_then(|()| file.write_all(&after.bytes));
        match written.and_then(|()| file.sync_all()) {
            Ok(()) => Ok((file, is_named)),
            Err(e) => {
                if is_named {
                    let _ = rustix::fs::unlinkat(&directory, temporary, AtFlags::empty());
                }
                Err(e)
            }
        }
    }

    fn is_unchanged(&self, directory: impl std::os::fd::AsFd, name: &std::ffi::OsStr) -> Result<()> {
        let now = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stamp(&stat));
        if now == self.before.as_ref().map(|before| before.stamp) {
            Ok(())
        } else {
            Err(self.changed_in_the_meantime())
        }
    }

    fn changed_in_the_meantime(&self) -> Error {
        Error::new(Code::Conflict, format!("{} was changed meanwhile", self.path.display()))
            .with("rule", "changed")
            .with("path", self.path.display().to_string())
            .hint("read it again")
    }
}

/// Maximum length of the output, in bytes.
const LONGEST_DIFFERENCE: usize = 256 << 10;
/// Time after which the difference consists of larger pieces.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the unified diff of a file's content, with the names of the file before and after.
pub(crate) fn difference([old, new]: [&str; 2], before: &[u8], after: &[u8]) -> String {
    let text = |bytes| std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let (Some(before), Some(after)) = (text(before), text(after)) else {
        return format!("{} bytes become {} bytes, which are not text\n", before.len(), after.len());
    };
    if before == after {
        let is_renamed = old != new;
        return if is_renamed { format!("--- {old}\n+++ {new}\n") } else { "nothing changes\n".to_owned() };
    }
    let mut differ = TextDiff::configure();
    let lines = differ.algorithm(Algorithm::Myers).timeout(PATIENCE).diff_lines(before, after);
    let mut text = lines.unified_diff().header(old, new).to_string();
    if text.len() > LONGEST_DIFFERENCE {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(LONGEST_DIFFERENCE));
        let _ = write!(text, "\n[… {} bytes are not shown …]\n", whole - text.len());
    }
    text
}

/// Removes the temporary files that killed changes of a file left beside it. A process that still writes such a file
/// has locked it; the number in its name does not show that, because another process may have the number now.
pub(crate) fn remove_abandoned(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let number = found.to_str().and_then(|found| found.strip_prefix(&prefix)?.strip_suffix(".tmp"));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        let file = open_with(&entry.path(), OFlags::RDONLY | OFlags::NONBLOCK).map(File::from);
        if file.is_ok_and(|file| file.try_lock().is_ok()) {
            // A file that cannot be removed now is removed the next time.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_abandoned_removes_what_no_process_writes() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let process = std::process::id();
        let path = root.join("f");
        let [left, writing, other, own] =
            [format!(".f.{process}.tmp"), ".f.1.tmp".to_owned(), ".g.1.tmp".to_owned(), ".f.x.tmp".to_owned()];
        for name in [&left, &writing, &other, &own] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let file = File::open(root.join(&writing)).unwrap();
        file.lock().unwrap();
        remove_abandoned(&path);
        let is_there = |name: &String| root.join(name).exists();
        assert_eq!([&left, &writing, &other, &own].map(is_there), [false, true, true, true]);
        drop(file);
        remove_abandoned(&path);
        assert!(!is_there(&writing));
    }

    #[test]
    fn change_leaves_only_its_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap().join("f");
        let names =
            || std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let change = |text: &str| {
            let before = File::open(&path).ok().map(|file| Present::read(file, &path).unwrap());
            Pending { path: path.clone(), before, after: Some(After::new(text.into(), None)) }
        };
        let late = change("late");
        change("one").carry_out().unwrap();
        assert_eq!(late.carry_out().unwrap_err().code(), Code::Conflict);
        let late = change("late");
        change("two").carry_out().unwrap();
        assert_eq!(late.carry_out().unwrap_err().code(), Code::Conflict);
        assert_eq!((names(), std::fs::read_to_string(&path).unwrap()), (vec!["f".into()], "two".to_owned()));
    }

    #[test]
    fn difference_has_changed_lines_and_context() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let shown = difference(["f"; 2], before.as_bytes(), before.replace("5\n", "five\n").as_bytes());
        assert_eq!(shown, "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
        assert_eq!(difference(["f"; 2], b"", b"a"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n");
        assert_eq!(difference(["f"; 2], b"a\na\n", b"a\n"), "--- f\n+++ f\n@@ -1,2 +1 @@\n a\n-a\n");
        assert_eq!(difference(["f"; 2], b"a\n", b"a\n"), "nothing changes\n");
        assert!(difference(["f"; 2], b"\xff", b"abc").contains("1 bytes become 3 bytes"));
        let long = "x\n".repeat(200_000);
        assert!(difference(["f"; 2], b"", long.as_bytes()).ends_with("bytes are not shown …]\n"));
    }
}
