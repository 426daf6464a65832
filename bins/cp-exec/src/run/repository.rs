//! What a run changed in a repository, taken over from its layer into the real `.git`: objects, references and the state of work in
//! progress, and nothing that names programs or leads elsewhere. By descriptor, and through no link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::settings::wrong_in_change;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};

/// What is taken over, in this order: what is referred to comes before what refers to it.
pub(super) const TAKEN: [&str; 22] = [
    "objects",
    "shallow",
    "logs",
    "rr-cache",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "SQUASH_MSG",
    "AUTO_MERGE",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "refs",
    "packed-refs",
    "HEAD",
];

/// The last, since it must agree with everything else.
pub(super) const INDEX: &str = "index";

/// How deep directories are taken over: references with more parts are nobody's.
pub(super) const DEEPEST: usize = 64;

/// What names programs, and is taken over where it names none.
pub(super) const SETTINGS: &str = "config";

/// Programs that git starts.
pub(super) const HOOKS: &str = "hooks";

/// Leads to objects elsewhere, which a repository may not be made to trust.
pub(super) const NEVER: [&str; 2] = ["objects/info/alternates", "objects/info/http-alternates"];

/// A rebase in progress, and why it may have to stay.
pub(super) const REBASE: &str = "rebase-merge";
pub(super) const COMMANDS: &str = "names commands to execute";

/// The longest list of a rebase that is read.
const LONGEST_LIST: u64 = 16 << 20;

/// Repositories of submodules and of linked working trees.
const INNER: [&str; 2] = ["modules", "worktrees"];

/// What all linked working trees share, and none has for itself.
const SHARED: [&str; 3] = ["objects", "shallow", "packed-refs"];

/// What is not taken over, or must not stay, and why where its name does not say so.
pub(super) struct Left {
    pub path: PathBuf,
    pub reason: Option<String>,
}

impl Left {
    pub(super) fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: Some(reason.into()) }
    }

    /// Something that a run has no business with.
    pub(super) fn unknown(path: &Path) -> Self {
        let reason = match path.iter().next() {
            Some(first) if first == "worktrees" => {
                Some("a linked working tree is made by the repository's owner, outside a run: `git worktree add`")
            }
            Some(first) if first == "modules" => {
                Some("the repository of a submodule is made by its owner, outside a run: `git submodule update --init`")
            }
            _ => None,
        };
        Self { path: path.to_owned(), reason: reason.map(str::to_owned) }
    }
}

/// Takes over what a layer holds, and names what was left in it.
pub(super) fn take_over(layer: &OwnedFd, real: &OwnedFd) -> io::Result<Vec<Left>> {
    // A description of its own: runs that end at once take turns, also those of one program.
    let real = &open_directory(real.as_fd(), Path::new("."))?;
    rustix::fs::flock(real, FlockOperation::LockExclusive)?;
    let mut taking = Taking { inside: PathBuf::new(), left: Vec::new() };
    taking.repository(layer, real)?;
    Ok(taking.left)
}

/// Whether a file is there only while git works.
pub(super) fn is_passing(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".lock") || name.as_bytes().starts_with(b"gc.")
}

/// Takes over the settings of a repository, if all that changed in them is harmless; else why it did not.
fn settings(layer: &OwnedFd, real: &OwnedFd) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let text = |at: &OwnedFd| {
        let file = rustix::fs::openat(at, SETTINGS, flags, Mode::empty()).ok().map(File::from)?;
        let plain = file.metadata().is_ok_and(|meta| meta.is_file());
        plain.then(|| io::read_to_string(file).ok()).flatten()
    };
    let (Some(before), Some(after)) = (text(real), text(layer)) else {
        return Ok(Some("is not the plain file that it was".to_owned()));
    };
    if let Some(wrong) = wrong_in_change(&before, &after) {
        return Ok(Some(wrong));
    }
    if before != after {
        let mode = rustix::fs::statat(real, SETTINGS, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
        copy(layer.as_fd(), real.as_fd(), OsStr::new(SETTINGS), mode)?;
    }
    Ok(None)
}

/// Whether a directory is in the layer only because something was looked at or cleaned up in it.
fn is_same_directory(layer: &OwnedFd, real: &OwnedFd, name: &OsStr) -> bool {
    let is_directory = |at: &OwnedFd| {
        rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    let empty = || Some(names(&open_directory(layer.as_fd(), Path::new(name)).ok()?).ok()?.is_empty());
    is_directory(layer) && is_directory(real) && empty() == Some(true)
}

/// Whether git makes it of itself, and nobody misses it: a list of references for servers, samples, an empty directory.
fn says_nothing(layer: &OwnedFd, name: &OsStr) -> bool {
    let held = || {
        let directory = open_directory(layer.as_fd(), Path::new(name)).ok()?;
        if is_opaque(&directory) { None } else { names(&directory).ok() }
    };
    match name.to_str() {
        Some("info") => held().is_some_and(|held| held == ["refs"]),
        Some(HOOKS) => hooks(layer).is_none(),
        Some("branches") => held().is_some_and(|held| held.is_empty()),
        _ => false,
    }
}

struct Taking {
    /// The repository within that of the layer: of a submodule or a linked working tree, else nothing.
    inside: PathBuf,
    left: Vec<Left>,
}

impl Taking {
    fn repository(&mut self, layer: &OwnedFd, real: &OwnedFd) -> io::Result<()> {
        let linked = self.inside.parent().is_some_and(|above| above.ends_with("worktrees"));
        let taken = |name: &&str| !(linked && SHARED.contains(name));
        for name in TAKEN.into_iter().chain([INDEX]).filter(taken) {
            self.entry(layer.as_fd(), real.as_fd(), Path::new(name))?;
        }
        for name in names(layer)? {
            let known = TAKEN.iter().chain([&INDEX]).filter(|name| taken(name)).any(|known| name == *known);
            if known || is_passing(&name) || is_same_directory(layer, real, &name) || says_nothing(layer, &name) {
                continue;
            }
            if name == SETTINGS && !linked {
                if let Some(wrong) = settings(layer, real)? {
                    self.leave(Path::new(SETTINGS), wrong);
                }
            } else if INNER.iter().any(|inner| name == *inner) && !linked {
                self.inner(layer, real, &name)?;
            } else {
                self.left.push(Left::unknown(&self.inside.join(name)));
            }
        }
        Ok(())
    }

    /// Takes over what was done in submodules and linked working trees that are there.
    fn inner(&mut self, layer: &OwnedFd, real: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let path = Path::new(name);
        let (Ok(from), Ok(to)) = (open_directory(layer.as_fd(), path), open_directory(real.as_fd(), path)) else {
            self.left.push(Left::unknown(&self.inside.join(path)));
            return Ok(());
        };
        if is_opaque(&from) {
            self.left.push(Left::unknown(&self.inside.join(path)));
            return Ok(());
        }
        for below in names(&from)? {
            let inside = self.inside.join(path).join(&below);
            let at = Path::new(&below);
            let both = (open_directory(from.as_fd(), at), open_directory(to.as_fd(), at));
            match both {
                (Ok(layer), Ok(real)) if !is_opaque(&layer) && has_head(&real) => {
                    let outer = std::mem::replace(&mut self.inside, inside);
                    let taken = self.repository(&layer, &real);
                    self.inside = outer;
                    taken?;
                }
                _ => self.left.push(Left::unknown(&inside)),
            }
        }
        Ok(())
    }

    /// Takes over one entry of a directory: `path` is relative to the repository, the directories are where its last part lies.
    fn entry(&mut self, layer: BorrowedFd<'_>, real: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let stat = match rustix::fs::statat(layer, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if name.as_bytes().ends_with(b".lock") && !path.starts_with("refs") {
            return Ok(());
        }
        let never = NEVER.iter().any(|never| path == Path::new(never));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => remove(real, name),
            FileType::Directory if name == REBASE && runs_commands(layer, name) => {
                self.leave(path, COMMANDS);
                Ok(())
            }
            FileType::Directory => self.directory(layer, real, path),
            FileType::RegularFile if !never => copy(layer, real, name, stat.st_mode),
            _ => {
                self.leave(path, "leads elsewhere");
                Ok(())
            }
        }
    }

    fn leave(&mut self, path: &Path, reason: impl Into<String>) {
        self.left.push(Left::new(&self.inside.join(path), reason));
    }

    fn directory(&mut self, layer: BorrowedFd<'_>, real: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        if path.components().count() > DEEPEST {
            self.leave(path, "is nested too deeply");
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default();
        let from = open_directory(layer, Path::new(name))?;
        if is_opaque(&from) {
            remove(real, name)?;
        }
        match rustix::fs::mkdirat(real, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let Ok(to) = open_directory(real, Path::new(name)) else {
            self.leave(path, "is not a directory in the repository");
            return Ok(());
        };
        for below in names(&from)? {
            self.entry(from.as_fd(), to.as_fd(), &path.join(below))?;
        }
        Ok(())
    }
}

/// Whether a repository is there, and not only a directory on the way to one.
fn has_head(real: &OwnedFd) -> bool {
    rustix::fs::statat(real, "HEAD", AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Whether going on with a rebase would run commands that its list names. A list that cannot be read may name any.
pub(super) fn runs_commands(layer: BorrowedFd<'_>, name: &OsStr) -> bool {
    let list = Path::new(name).join("git-rebase-todo");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(layer, &list, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return false,
        Err(_) => return true,
    };
    let mut text = Vec::new();
    let read = file.take(LONGEST_LIST).read_to_end(&mut text);
    let first = |line: &[u8]| line.trim_ascii_start().split(u8::is_ascii_whitespace).next().map(<[u8]>::to_vec);
    let commands = text.split(|byte| *byte == b'\n').filter_map(first);
    read.is_err()
        || text.len() as u64 == LONGEST_LIST
        || commands.into_iter().any(|command| [&b"exec"[..], b"x"].contains(&command.as_slice()))
}

pub(super) fn kind_of(directory: &OwnedFd, name: &OsStr) -> io::Result<FileType> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// What is wrong with the hooks. Git runs none whose name ends so.
pub(super) fn hooks(directory: &OwnedFd) -> Option<String> {
    let sample = |hooks: &OwnedFd, name: &OsStr| {
        name.as_bytes().ends_with(b".sample") && kind_of(hooks, name).is_ok_and(|kind| kind == FileType::RegularFile)
    };
    let found = open_directory(directory.as_fd(), Path::new(HOOKS)).and_then(|hooks| Ok((names(&hooks)?, hooks)));
    match found {
        Ok((_, hooks)) if is_opaque(&hooks) => Some("replaces the hooks that were there".to_owned()),
        Ok((names, hooks)) => {
            let other = names.iter().find(|name| !sample(&hooks, name))?;
            Some(format!("{} is not a sample", other.to_string_lossy()))
        }
        Err(e) => Some(e.to_string()),
    }
}

pub(super) fn open_directory(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

pub(super) fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Whether a directory of the layer hides all that the real one holds.
fn is_opaque(directory: &OwnedFd) -> bool {
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        let mut value = [0_u8; 4];
        rustix::fs::fgetxattr(directory, *name, &mut value[..]).is_ok_and(|length| &value[..length] == b"y")
    })
}

/// Copies a file, which then appears whole or not at all.
pub(super) fn copy(layer: BorrowedFd<'_>, real: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut from = File::from(rustix::fs::openat(layer, name, flags, Mode::empty())?);
    let temporary = format!(".cp-exec-{}-{:?}", std::process::id(), std::thread::current().id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut to = File::from(rustix::fs::openat(real, &temporary, flags, Mode::from_raw_mode(0o600))?);
    let copied = io::copy(&mut from, &mut to)
        .and_then(|_| Ok(rustix::fs::fchmod(&to, Mode::from_raw_mode(mode & 0o666))?))
        .and_then(|()| match rustix::fs::renameat(real, &temporary, real, name) {
            // A reference where there was a directory of references.
            Err(rustix::io::Errno::ISDIR) => {
                remove(real, name)?;
                Ok(rustix::fs::renameat(real, &temporary, real, name)?)
            }
            other => Ok(other?),
        });
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(real, &temporary, AtFlags::empty());
    }
    copied
}

/// Removes an entry with all below it.
pub(super) fn remove(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let directory = open_directory(at, Path::new(name))?;
    for below in names(&directory)? {
        remove(directory.as_fd(), &below)?;
    }
    Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
}
