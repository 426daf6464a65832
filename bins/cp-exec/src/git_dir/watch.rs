//! Watches the files of a repository that are mounts in a run. A mount ends when another process replaces its file, as
//! `git config` does, and the run could write the new file. So the run is stopped, the new text is judged and written
//! to a file that the run has never seen, and that file becomes the mount.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::settings::fault_in_changed_settings;
use super::{LONGEST, Repository, Violation};
use crate::file_id::FileId;
use crate::nofollow::{self, NewFile};

/// The time without events after which another process counts as done. `git push -u` replaces its file twice.
const QUIET: Duration = Duration::from_millis(10);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_millis(200);
/// The most attempts to cover the files anew, if other processes replace them meanwhile.
const ATTEMPTS: usize = 20;

const REPLACING: ReadFlags =
    ReadFlags::MOVED_TO.union(ReadFlags::MOVED_FROM).union(ReadFlags::DELETE).union(ReadFlags::CREATE);

/// The files and directories of repositories that are mounts in a run.
pub(crate) struct Watch {
    /// `None` if the kernel gives none. Then the files are only compared after the run.
    inotify: Option<OwnedFd>,
    bound: Vec<Bound>,
}

/// A file or directory that is a mount in the run. Its directory may have been moved.
struct Bound {
    path: PathBuf,
    directory: OwnedFd,
    /// The watch descriptor of the directory.
    watch: i32,
    /// It is held open, so that no new file gets its inode. `None` if only the run can give a file this name.
    held: Option<OwnedFd>,
    text: Option<String>,
    replaced: bool,
    /// True if the replacement was changed afterwards.
    written: bool,
}

impl Watch {
    /// `unused`: paths without a placeholder of this run. Another run may have one there, and removes it.
    pub(super) fn begin(repositories: &[Repository], unused: &[&PathBuf], missing: &mut Vec<String>) -> Self {
        let mut bound: Vec<Bound> =
            repositories.iter().flat_map(Repository::protected).filter_map(|path| Bound::of(path)).collect();
        let inotify = observe(&mut bound, repositories);
        let inotify = inotify.map_err(|e| {
            missing.push(format!("repository: changes of its settings beside the run are not noticed: {e}"));
        });
        for bound in bound.iter_mut().filter(|bound| !unused.contains(&&bound.path)) {
            bound.held = bound.open();
            bound.text = super::read_small(&bound.path);
        }
        Self { inotify: inotify.ok(), bound }
    }

    /// The descriptor to wait for.
    pub(crate) fn source(&self) -> Option<PollFd<'_>> {
        self.inotify.as_ref().map(|inotify| PollFd::new(inotify, PollFlags::IN))
    }

    /// Processes pending events. True if a file is to be covered anew. The error is the reason to end the run: it made
    /// a file that it must not have, which is removed.
    pub(crate) fn look(&mut self) -> Result<bool, String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let Some(inotify) = &self.inotify else { return Ok(false) };
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut made = None;
        while let Ok(event) = reader.next() {
            let last = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let is_full = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let is_it = |bound: &&mut Bound| is_full || bound.watch == event.wd() && Some(bound.name()) == last;
            for bound in self.bound.iter_mut().filter(is_it) {
                if bound.held.is_some() {
                    bound.written |= bound.replaced;
                    bound.replaced |= (is_full || event.events().intersects(REPLACING)) && !bound.is_in_place();
                } else if bound.open().is_some() {
                    let _ = rustix::fs::unlinkat(&bound.directory, bound.name(), AtFlags::empty());
                    made = Some(format!("it made {}, which leads git to other settings", bound.path.display()));
                }
            }
        }
        made.map_or(Ok(self.bound.iter().any(|bound| bound.replaced)), Err)
    }

    /// Covers the replaced files anew. `cover` makes a path read-only in the run, which is stopped. The error is the
    /// reason to end the run.
    pub(crate) fn cover_anew(&mut self, cover: &mut dyn FnMut(&Path) -> Result<(), String>) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            self.wait_until_quiet()?;
            // What belonged to a directory that is gone needs no cover.
            self.bound.retain(|bound| !bound.replaced || !bound.is_gone());
            for bound in self.bound.iter_mut().filter(|bound| bound.replaced) {
                bound.renew(cover)?;
            }
            if !self.look()? {
                return Ok(());
            }
        }
        Err("its settings are replaced again and again beside the run".to_owned())
    }

    /// Waits until the other process has replaced all of its files and holds no lock.
    fn wait_until_quiet(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(QUIET.subsec_nanos()) };
        while Instant::now() < end {
            let mut fds = Vec::from_iter(self.source());
            let is_quiet = rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|events| events == 0);
            self.look()?;
            if is_quiet && !self.bound.iter().any(|bound| bound.replaced && bound.is_locked()) {
                break;
            }
        }
        Ok(())
    }

    /// The reason why a file that was replaced may not stay unexamined.
    pub(super) fn unsettled(&mut self) -> Option<String> {
        let fault = |bound: &Bound| bound.read().err().map(|fault| bound.wrong(&fault));
        self.look().map_or_else(Some, |_| self.bound.iter().filter(|bound| bound.replaced).find_map(fault))
    }

    /// The files that the run may have written and that must not stay, with the text that was there before, or that was
    /// accepted last. `private`: the run had mounts of its own.
    pub(super) fn compare(&self, private: bool) -> impl Iterator<Item = Violation> {
        let is_observed = private && self.inotify.is_some();
        let bound = self.bound.iter().filter(move |bound| bound.text.is_some() && (bound.written || !is_observed));
        bound.filter_map(|bound| {
            let reason = bound.read().err()?;
            Some(Violation { path: bound.path.clone(), reason, put_back: bound.text.clone() })
        })
    }
}

/// Watches the directories of some names.
fn observe(bound: &mut [Bound], repositories: &[Repository]) -> io::Result<OwnedFd> {
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    for Bound { path, watch, .. } in bound {
        let parent = path.parent().unwrap_or(path);
        let replacing = WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        // In a working tree files are written all the time.
        let is_inside = repositories.iter().any(|repository| parent.starts_with(&repository.path));
        let writing = if is_inside { WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE } else { WatchFlags::empty() };
        *watch = inotify::add_watch(&inotify, parent, replacing | writing)?;
    }
    Ok(inotify)
}

impl Bound {
    fn of(path: &Path) -> Option<Self> {
        let directory = nofollow::open_with(path.parent()?, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        let path = path.to_owned();
        Some(Self { path, directory, watch: -1, held: None, text: None, replaced: false, written: false })
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn open(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, self.name(), flags, Mode::empty()).ok()
    }

    fn is_in_place(&self) -> bool {
        let node = |file: &OwnedFd| nofollow::node(file).ok();
        self.open().as_ref().and_then(node) == self.held.as_ref().and_then(node)
    }

    /// True if its directory was removed.
    fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn is_locked(&self) -> bool {
        let mut lock = self.name().to_owned();
        lock.push(".lock");
        rustix::fs::statat(&self.directory, lock, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The file that has the name now, and its text. The error is its fault.
    fn read(&self) -> Result<(File, String), String> {
        let opened = super::open_small(&self.directory, Path::new(self.name()), LONGEST);
        let (file, bytes) = opened.map_err(|e| e.to_string())?;
        let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
        let before = self.text.as_ref().ok_or("it was not a file before")?;
        let fault = if text == *before { None } else { fault_in_changed_settings(before, &text, &self.path) };
        fault.map_or(Ok((file, text)), Err)
    }

    fn wrong(&self, fault: &str) -> String {
        format!("{} was replaced beside the run: {fault}", self.path.display())
    }

    /// Puts a copy of the replacement in its place, which is covered before it has the name.
    fn renew(&mut self, cover: &mut dyn FnMut(&Path) -> Result<(), String>) -> Result<(), String> {
        let (file, text) = self.read().map_err(|fault| self.wrong(&fault))?;
        let failed = |e: io::Error| format!("{} cannot be covered anew: {e}", self.path.display());
        let directory = self.directory.as_fd();
        let before = file.metadata().map_err(failed)?;
        let new =
            NewFile::filled(directory, text.as_bytes(), Some((before.uid(), before.gid())), before.mode() & 0o7777)
                .map_err(failed)?;
        cover(&self.path.with_file_name(&new.name))?;
        new.exchange(self.name()).map_err(failed)?;
        let taken =
            rustix::fs::statat(directory, &new.name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| failed(e.into()))?;
        if FileId::from(&taken).without_change_time() != FileId::from(&before).without_change_time() {
            // Another process was faster. Its file gets the name back, and is the next to be examined.
            return new.exchange(self.name()).map_err(failed);
        }
        self.held = Some(new.file.try_clone().map_err(failed)?.into());
        (self.text, self.replaced, self.written) = (Some(text), false, false);
        Ok(())
    }
}
