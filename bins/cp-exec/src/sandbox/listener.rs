//! The execve listener: the kernel suspends each `execve` and `execveat` of a run until the supervisor has decided
//! about it.
//!
//! The command's own process installs the filter just before its first execution, and sends the descriptor to the
//! supervisor. A refused call fails with EPERM and never with EACCES, because after EACCES `execvp` would try the
//! next directory of PATH.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use super::caller::{Found, LONGEST, Lookup, Memory, change_mode, numbers_of};
use super::interpreter::{Interpreter, interpreters, is_loader, is_native, operand_of_loader};
use super::plan::Identity;
use super::seccomp::EXECUTIONS;
use super::sys::{self, Notification};

/// The most interpreters of each other that the kernel starts for one script.
const DEPTH: usize = 5;

/// A process: its pid in this namespace and its start time, because pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub pid: i32,
    /// In clock ticks after boot.
    pub started: u64,
}

impl Process {
    /// The process with this pid, and the pid of its parent.
    pub(crate) fn find(pid: i32) -> Option<(Self, i32)> {
        let fields = super::stat_fields(pid)?;
        let (parent, started) = (fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        Some((Self { pid, started }, parent))
    }

    /// The file that the process executes, as device and inode. `None` if the process has ended.
    pub(crate) fn executed(self) -> Option<(u64, u64)> {
        let meta = fs::metadata(format!("/proc/{}/exe", self.pid)).ok()?;
        Self::find(self.pid).filter(|(found, _)| *found == self).map(|_| (meta.dev(), meta.ino()))
    }
}

/// A suspended execution.
pub(crate) struct ExecCall {
    listener: Arc<Listener>,
    notification: Notification,
    pub process: Process,
    /// The pid of the parent.
    pub parent: i32,
}

/// The arguments of an execution, read from the memory of its caller. Another thread may still change that memory, so
/// the request is used for decisions and records, and the sandbox enforces the policy.
pub(crate) struct ExecRequest {
    /// The suspended process, or the process for which the request was built.
    process: i32,
    /// The arguments, `argv[0]` first. Invalid UTF-8 is replaced.
    pub argv: Vec<String>,
    pub env: Vec<Vec<u8>>,
    /// The working directory of the caller.
    pub cwd: PathBuf,
    /// The path as the caller wrote it.
    pub named: PathBuf,
    /// False if this path leads to an open file and does not name it.
    pub is_named: bool,
    pub role: Role,
    /// The file that would be executed, with its path in the sandbox.
    pub file: Identity,
    /// The same file, opened if it is readable.
    pub opened: Option<File>,
}

/// The file that the kernel will execute for a call, as device and inode. `None` if that depends on the formats that
/// the machine has registered.
pub(crate) fn executed_for(starts: &[ExecRequest]) -> Option<(u64, u64)> {
    let interpreter = starts.iter().skip(1).take_while(|start| start.role == Role::Interpreter).last();
    let start = interpreter.or(starts.first())?;
    start.opened.as_ref().is_some_and(is_native).then_some(start.file.node)
}

/// The reason why a file is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A program executes it, or has a dynamic loader execute it.
    Program,
    /// The kernel executes it to run a script.
    Interpreter,
    /// The kernel maps it as the loader of a program.
    Loader,
}

/// The descriptor on which the kernel reports executions.
pub(crate) struct Listener {
    pub fd: OwnedFd,
    /// The streams of the run that its person reads, as device and inode.
    pub shown: Vec<(u64, u64)>,
}

impl Listener {
    /// The next suspended execution, without blocking; none if nothing waits. Fails if all processes that the filter
    /// covers have ended.
    pub(crate) fn next(self: &Arc<Self>) -> io::Result<Option<ExecCall>> {
        loop {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            let events = fds[0].revents();
            if polled.is_err() || !events.contains(PollFlags::IN) {
                return if events.contains(PollFlags::HUP) { Err(Errno::SRCH.into()) } else { Ok(None) };
            }
            // The caller may have been killed in the meantime.
            let Ok(notification) = sys::receive_notification(self.fd.as_fd()) else { continue };
            if !EXECUTIONS.contains(&notification.number) {
                let changed = change_mode(self.fd.as_fd(), &notification);
                let error = changed.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EPERM), |()| 0);
                drop(sys::answer_notification(self.fd.as_fd(), notification.id, Some(error)));
                continue;
            }
            let groups = numbers_of(notification.thread, "Tgid:").unwrap_or_default();
            match groups.first().and_then(|pid| Process::find(i32::try_from(*pid).ok()?)) {
                Some((process, parent)) => {
                    return Ok(Some(ExecCall { listener: Arc::clone(self), notification, process, parent }));
                }
                None => drop(sys::answer_notification(self.fd.as_fd(), notification.id, Some(libc::EPERM))),
            }
        }
    }
}

/// The standard error of a process.
pub(super) fn error_of(pid: i32) -> io::Result<(File, fs::Metadata)> {
    let process = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    let error = File::from(rustix::process::pidfd_getfd(process, 2, PidfdGetfdFlags::empty())?);
    let meta = error.metadata()?;
    Ok((error, meta))
}

/// Writes to an open file of another process without waiting for its reader.
pub(super) fn write_at_once(file: &File, meta: &fs::Metadata, bytes: &[u8]) -> io::Result<()> {
    let kind = meta.file_type();
    if kind.is_socket() {
        rustix::net::send(file, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    } else if kind.is_file() {
        rustix::io::write(file, bytes)?;
    } else if kind.is_fifo() || rustix::termios::isatty(file) {
        // The process shares the flags of its own descriptor.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::io::write(rustix::fs::open(path, flags, Mode::empty())?, bytes)?;
    }
    Ok(())
}

impl ExecCall {
    /// True if the caller is still suspended, so that its pid and its memory are its own.
    fn is_suspended(&self) -> bool {
        sys::notification_is_valid(self.listener.fd.as_fd(), self.notification.id)
    }

    /// Writes a line to the standard error of the caller, for whoever reads its output. True if the person of the run
    /// reads it there too. A stream that is full or cannot be reached is left alone.
    pub(crate) fn tell(&self, line: &str) -> bool {
        let write = || -> io::Result<bool> {
            let (error, meta) = error_of(self.process.pid)?;
            if !self.is_suspended() {
                return Err(Errno::SRCH.into());
            }
            write_at_once(&error, &meta, line.as_bytes())?;
            Ok(self.listener.shown.contains(&(meta.dev(), meta.ino())))
        };
        write().unwrap_or(false)
    }

    /// Allows the execution.
    pub(crate) fn allow(&self) {
        self.answer(None);
    }

    /// Makes the execution fail.
    pub(crate) fn deny(&self) {
        self.answer(Some(libc::EPERM));
    }

    /// Makes the execution fail with an error number, or allows it.
    pub(crate) fn answer(&self, error: Option<i32>) {
        // If the caller was killed, no answer is needed.
        drop(sys::answer_notification(self.listener.fd.as_fd(), self.notification.id, error));
    }

    /// Reads the arguments of the execution: the file, and then each file that the kernel starts for the one before.
    /// An error is the answer to the call.
    pub(crate) fn read(&self) -> io::Result<Vec<ExecRequest>> {
        let starts = self.starts();
        // The memory belongs to the caller only if the caller was suspended during the whole read.
        if self.is_suspended() { starts } else { Err(Errno::SRCH.into()) }
    }

    fn starts(&self) -> io::Result<Vec<ExecRequest>> {
        let Notification { thread, number, arguments, .. } = &self.notification;
        let mut memory = Memory::of(*thread);
        let (directory, path, argv, env) = if *number == libc::SYS_execve {
            (None, arguments[0], arguments[1], arguments[2])
        } else {
            (self.notification.directory(), arguments[1], arguments[2], arguments[3])
        };
        let named = PathBuf::from(OsString::from_vec(memory.string(path)?));
        let lookup = Lookup::of(*thread)?;
        let directory = directory.filter(|_| !named.is_absolute());
        let found = match directory {
            Some(open) if named.as_os_str().is_empty() => Found { file: lookup.opened(open)?, is_named: false },
            _ => lookup.find(directory, &named)?,
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (argv, env) = (memory.list(argv)?.into_iter().map(text).collect(), memory.list(env)?);
        let cwd = fs::read_link(format!("/proc/{thread}/cwd"))?;
        let mut request = ExecRequest::of(*thread, &found, named, cwd, argv)?;
        request.env = env;
        // A script gets the path of its file as an argument, and no path relative to a directory.
        let script = if directory.is_some() { request.file.path.clone() } else { request.named.clone() };
        request.with_interpreters(&lookup, script)
    }
}

impl ExecRequest {
    fn of(process: i32, found: &Found, named: PathBuf, cwd: PathBuf, argv: Vec<String>) -> io::Result<Self> {
        let (file, opened) = identify(&found.file)?;
        let is_named = found.is_named;
        Ok(Self { process, argv, env: Vec::new(), cwd, named, is_named, role: Role::Program, file, opened })
    }

    /// This start, and those of the programs that the kernel or a dynamic loader starts for it.
    fn with_interpreters(self, lookup: &Lookup, mut script: PathBuf) -> io::Result<Vec<Self>> {
        let mut starts = vec![self];
        while let Some(next) = starts[starts.len() - 1].next(lookup, &mut script)? {
            starts.push(next);
            if starts.len() > DEPTH + 1 {
                return Err(Errno::LOOP.into());
            }
        }
        Ok(starts)
    }

    /// The program that is started for this file. `script` is the path with which the kernel names it.
    fn next(&self, lookup: &Lookup, script: &mut PathBuf) -> io::Result<Option<Self>> {
        if self.role == Role::Loader {
            return Ok(None);
        }
        let start = |role, path: PathBuf, argv| -> io::Result<Self> {
            let found = lookup.find(None, &path)?;
            Ok(Self { role, ..Self::of(self.process, &found, path, self.cwd.clone(), argv)? })
        };
        let is_loader = |request: &Self| request.file.path.file_name().is_some_and(is_loader);
        for interpreter in self.opened.as_ref().map(interpreters).transpose()?.unwrap_or_default() {
            match interpreter {
                Interpreter::OfScript(path, word) => {
                    let script = std::mem::replace(script, path.clone());
                    let words = [Some(path.clone().into()), word, Some(script.into())].into_iter().flatten();
                    let words = words.map(|word: OsString| word.to_string_lossy().into_owned());
                    let argv = words.chain(self.argv.iter().skip(1).cloned()).collect();
                    return start(Role::Interpreter, path, argv).map(Some);
                }
                Interpreter::OfElf(path) => {
                    let loader = start(Role::Loader, path, self.argv.clone())?;
                    if !is_loader(&loader) {
                        return Ok(Some(loader));
                    }
                }
            }
        }
        let Some(at) = operand_of_loader(&self.argv).filter(|_| is_loader(self)) else { return Ok(None) };
        // The loader would search the directories of libraries for a name without a slash.
        let path = Some(PathBuf::from(&self.argv[at])).filter(|path| path.as_os_str().as_bytes().contains(&b'/'));
        start(Role::Program, path.ok_or(Errno::NOENT)?, self.argv[at..].to_vec()).map(Some)
    }

    /// A file that the caller names.
    fn find(&self, path: &Path) -> Option<OwnedFd> {
        let lookup = Lookup::of(self.process).ok()?;
        Some(lookup.find(None, path).ok()?.file)
    }

    /// The path of a file that the caller names, without links.
    pub(crate) fn resolved(&self, path: &Path) -> Option<PathBuf> {
        Some(identify(&self.find(path)?).ok()?.0.path)
    }

    /// The text of a small file that the caller names.
    pub(crate) fn text_of(&self, path: &Path) -> Option<String> {
        let mut text = String::new();
        identify(&self.find(path)?).ok()?.1?.take(LONGEST as u64).read_to_string(&mut text).ok()?;
        Some(text).filter(|text| text.len() < LONGEST)
    }

    /// True if the caller sees a file on a read-only mount; `None` if the file does not exist.
    pub(crate) fn sees_read_only(&self, path: &Path) -> Option<bool> {
        let mount = rustix::fs::fstatvfs(self.find(path)?).ok()?;
        Some(mount.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// The identity of a file, and the file opened for reading if possible.
fn identify(file: &OwnedFd) -> io::Result<(Identity, Option<File>)> {
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let meta = File::from(file.try_clone()?).metadata()?;
    let identity = Identity::of(&fs::read_link(&by_descriptor)?, &meta);
    let opened = meta.is_file().then(|| File::open(&by_descriptor).ok()).flatten();
    Ok((identity, opened))
}
