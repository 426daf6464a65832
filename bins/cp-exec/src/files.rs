//! Atomic changes of a file, which fail if the file was changed since it was read, the difference of two texts, and
//! bounded files of the home.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::home::make_directory;
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, Stat};
use similar::{Algorithm, TextDiff};

use crate::exec_result::{FileChange, FileKind, FileState};
use crate::file_id::FileId;
use crate::nofollow::{NewFile, open_parent, remove_abandoned};

/// Maximum length of a file, because its whole content is kept.
const LONGEST: u64 = 16 << 20;

/// The content of a file, with its permission bits.
#[derive(Clone)]
pub(crate) struct Content {
    pub bytes: Vec<u8>,
    pub hash: Hash,
    pub permissions: u32,
}

impl Content {
    fn new(bytes: Vec<u8>, permissions: u32) -> Self {
        Self { hash: Hash::of(&bytes), bytes, permissions }
    }
}

/// A file that is about to change.
pub(crate) struct Pending {
    /// The absolute path without links.
    pub path: PathBuf,
    /// The current file; `None` if it is new.
    pub before: Option<Content>,
    /// The new content; `None` removes the file.
    pub after: Option<Content>,
    /// The state of the current file.
    stat: Option<Stat>,
}

impl Pending {
    /// The file at `path` as it is, which was opened without following links; `None` if nothing is there.
    pub(crate) fn of(path: PathBuf, file: Option<File>) -> Result<Self> {
        let Some(mut file) = file else { return Ok(Self { path, before: None, after: None, stat: None }) };
        let failed = |e: io::Error| Error::io("cannot be read", e).in_file(&path);
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
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
        let before = Content::new(bytes, stat.st_mode & 0o7777);
        let after = Content { permissions: before.permissions & 0o777, ..before.clone() };
        Ok(Self { path, before: Some(before), after: Some(after), stat: Some(stat) })
    }

    /// Gives the file a new content. A new file gets the permissions of the caller's new files.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        let own = self.after.as_ref().or(self.before.as_ref()).map(|file| file.permissions & 0o777);
        self.after = Some(Content::new(bytes, own.unwrap_or_else(|| 0o644 & !umask())));
    }

    /// The hashes of the content before and after.
    pub(crate) fn hashes(&self) -> [Option<Hash>; 2] {
        [&self.before, &self.after].map(|content| content.as_ref().map(|content| content.hash))
    }

    /// True if the content changes.
    pub(crate) fn is_change(&self) -> bool {
        let [before, after] = self.hashes();
        before != after
    }

    /// Applies the change. The path was resolved before, so a link in it now was added in the meantime.
    pub(crate) fn carry_out(&self) -> Result<()> {
        remove_abandoned(self.path.parent().unwrap_or(&self.path));
        let content = self.after.as_ref().map(|after| (&after.bytes[..], after.permissions));
        replace(&self.path, self.stat.as_ref(), content).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::new(Code::Conflict, format!("{} was changed meanwhile", self.path.display()))
                    .with("rule", "changed")
                    .with("path", self.path.display().to_string())
                    .hint("read it again")
            }
            _ => Error::io("cannot be written", e).in_file(&self.path),
        })
    }

    /// The change as it is recorded.
    pub(crate) fn change(&self) -> FileChange {
        let state = |content: &Content| FileState::new(FileKind::File, content.permissions, Some(content.hash), None);
        let [before, after] = [&self.before, &self.after].map(|content| content.as_ref().map(state));
        FileChange::new(&self.path, before, after)
    }

    /// The difference of the change; what does not exist is `/dev/null`.
    pub(crate) fn difference(&self) -> String {
        let path = self.path.display().to_string();
        let [before, after] = [&self.before, &self.after].map(|content| content.as_ref().map(|content| &content.bytes));
        let names = [before, after].map(|bytes| bytes.map_or("/dev/null", |_| &path));
        difference(names, before.map_or(&[], Vec::as_slice), after.map_or(&[], Vec::as_slice))
    }
}

/// Replaces the file with this state, or creates one, and syncs it; without a content removes it. A file that is there
/// with another state already exists.
pub(crate) fn replace(path: &Path, known: Option<&Stat>, content: Option<(&[u8], u32)>) -> io::Result<()> {
    let (directory, name) = open_parent(path)?;
    let check = || {
        let now = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let is_known = now.as_ref().map(FileId::from) == known.map(FileId::from);
        if is_known { Ok(()) } else { Err(io::Error::from(io::ErrorKind::AlreadyExists)) }
    };
    let Some((bytes, permissions)) = content else {
        check()?;
        return Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?);
    };
    let owner = known.map(|stat| (stat.st_uid, stat.st_gid));
    let new = NewFile::filled(directory.as_fd(), bytes, owner, permissions)?;
    new.file.sync_all()?;
    if known.is_none() {
        // This does not replace a file that was created in the meantime.
        return new.place_new(name);
    }
    check().and_then(|()| new.place(name))
}

/// Appends lines to a file of the home that can be made anew. It begins anew after it has this many bytes.
pub(crate) fn append_bounded(file: &Path, most: u64, lines: &str) -> Result<()> {
    let is_full = std::fs::metadata(file).is_ok_and(|meta| meta.len() > most);
    file.parent().map(make_directory).transpose()?;
    let mut options = OpenOptions::new();
    let mut file = options.append(!is_full).write(true).truncate(is_full).create(true).mode(0o600).open(file)?;
    Ok(file.write_all(lines.as_bytes())?)
}

/// The permissions that a new file does not get.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_removes_what_killed_changes_left_in_the_directory() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_mins(2);
        let names = [".cp-exec-0123456789abcdef", ".cp-exec-fedcba9876543210", ".cp-exec-x", ".f.tmp"];
        for name in names {
            let file = File::create(root.join(name)).unwrap();
            // A new file of another process is in use.
            file.set_modified(if name == names[1] { std::time::SystemTime::now() } else { long_ago }).unwrap();
        }
        let mut new = Pending::of(root.join("f"), None).unwrap();
        new.put(Vec::new());
        new.carry_out().unwrap();
        assert_eq!(names.map(|name| root.join(name).exists()), [false, true, true, true]);
    }

    #[test]
    fn change_leaves_only_its_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap().join("f");
        let names =
            || std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let change = |text: &str| {
            let mut change = Pending::of(path.clone(), File::open(&path).ok()).unwrap();
            change.put(text.into());
            change
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
