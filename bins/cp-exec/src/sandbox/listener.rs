//! The execve listener: the kernel suspends each `execve` and `execveat` of a run until the supervisor has decided
//! about it.
//!
//! The command's own process installs the filter just before its first execution, and sends the descriptor to the
//! supervisor. A refused call fails with EPERM and never with EACCES, because after EACCES `execvp` would try the
//! next directory of PATH.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use seccompiler::sock_filter;

use super::plan::Identity;
use super::seccomp::{ALLOW, JUMP_IF_EQUAL, LOAD_WORD, RETURN};
use super::sys::{self, Notification};

/// The most bytes of arguments, or of the environment, that are read. The kernel accepts no more.
const LONGEST: usize = 6 << 20;
const PAGE: usize = 4096;
/// The number of cached pages of another process.
const PAGES: usize = 8;
const POINTER: usize = size_of::<u64>();

/// Installs the filter in this thread.
pub(super) fn install() -> io::Result<OwnedFd> {
    const USER_NOTIFICATION: u32 = 0x7fc0_0000;
    let call = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    sys::install_listener(&[
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: call(libc::SYS_execve) },
        sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: call(libc::SYS_execveat) },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: USER_NOTIFICATION },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW },
    ])
}

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
}

/// A suspended execution.
pub(crate) struct ExecCall {
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
    /// The file that would be executed, with its path in the sandbox.
    pub file: Identity,
    /// The same file, opened if it is readable.
    pub opened: Option<File>,
}

/// The descriptor on which the kernel reports executions.
pub(crate) struct Listener(pub OwnedFd);

/// The state of a listener.
pub(crate) enum Pending {
    Call(ExecCall),
    Nothing,
    /// All processes that the filter covers have ended.
    End,
}

impl Listener {
    /// The next suspended execution, without blocking.
    pub(crate) fn next(&self) -> Pending {
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            let events = fds[0].revents();
            if polled.is_err() || !events.contains(PollFlags::IN) {
                return if events.contains(PollFlags::HUP) { Pending::End } else { Pending::Nothing };
            }
            // The caller may have been killed in the meantime.
            let Ok(notification) = sys::receive_notification(self.0.as_fd()) else { continue };
            match thread_group(notification.thread).and_then(Process::find) {
                Some((process, parent)) => return Pending::Call(ExecCall { notification, process, parent }),
                None => drop(sys::answer_notification(self.0.as_fd(), notification.id, Some(libc::EPERM))),
            }
        }
    }

    /// Reads the arguments of an execution. `None` if its file does not exist, because a search along PATH tries many
    /// paths that do not exist.
    pub(crate) fn read(&self, call: &ExecCall) -> io::Result<Option<ExecRequest>> {
        let request = call.read();
        // The memory belongs to the caller only if the caller was suspended during the whole read.
        if !sys::notification_is_valid(self.0.as_fd(), call.notification.id) {
            return Err(io::ErrorKind::NotFound.into());
        }
        request
    }

    /// Allows an execution.
    pub(crate) fn allow(&self, call: &ExecCall) {
        // If the caller was killed, no answer is needed.
        drop(sys::answer_notification(self.0.as_fd(), call.notification.id, None));
    }

    /// Makes an execution fail.
    pub(crate) fn deny(&self, call: &ExecCall) {
        drop(sys::answer_notification(self.0.as_fd(), call.notification.id, Some(libc::EPERM)));
    }
}

/// The pid of the process that a thread belongs to.
fn thread_group(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

impl ExecCall {
    fn read(&self) -> io::Result<Option<ExecRequest>> {
        let Notification { thread, number, arguments, .. } = &self.notification;
        let of_process = |name: &str| PathBuf::from(format!("/proc/{thread}/{name}"));
        let mut memory = Memory::open(&of_process("mem"))?;
        let (directory, path, argv, env) = if *number == libc::SYS_execve {
            (None, arguments[0], arguments[1], arguments[2])
        } else {
            // The kernel uses the lower half of the argument.
            let [a, b, c, d, ..] = arguments[0].to_le_bytes();
            let descriptor = i32::from_le_bytes([a, b, c, d]);
            (Some(descriptor).filter(|fd| *fd != libc::AT_FDCWD), arguments[1], arguments[2], arguments[3])
        };
        let named = PathBuf::from(std::ffi::OsString::from_vec(memory.string(path)?));
        let cwd = fs::read_link(of_process("cwd"))?;
        let base = match directory {
            Some(descriptor) if !named.is_absolute() => fs::read_link(of_process(&format!("fd/{descriptor}")))?,
            _ => cwd.clone(),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = if named.as_os_str().is_empty() {
            let descriptor = directory.ok_or(io::ErrorKind::NotFound)?;
            rustix::fs::open(of_process(&format!("fd/{descriptor}")), flags, Mode::empty())
        } else {
            open_in_root(*thread, &base.join(&named))
        };
        let Ok(file) = opened else { return Ok(None) };
        let (file, opened) = identify(&file)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let argv = memory.list(argv)?.into_iter().map(text).collect();
        Ok(Some(ExecRequest { process: *thread, argv, env: memory.list(env)?, cwd, named, file, opened }))
    }
}

impl ExecRequest {
    /// The execution of a program with the directory and the environment of a process; `None` if the process cannot
    /// find the program.
    pub(crate) fn find(process: Process, name: &Path, argv: Vec<String>) -> io::Result<Option<Self>> {
        let of_process = |name: &str| PathBuf::from(format!("/proc/{}/{name}", process.pid));
        let cwd = fs::read_link(of_process("cwd"))?;
        let env: Vec<Vec<u8>> = fs::read(of_process("environ"))?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let path = env.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
        let named = if name.as_os_str().as_bytes().contains(&b'/') {
            vec![name.to_owned()]
        } else {
            std::env::split_paths(OsStr::from_bytes(path)).map(|directory| directory.join(name)).collect()
        };
        for named in named {
            let Ok(file) = open_in_root(process.pid, &cwd.join(&named)) else { continue };
            let meta = File::from(file.try_clone()?).metadata()?;
            if meta.is_file() && meta.mode() & 0o111 != 0 {
                let (file, opened) = identify(&file)?;
                return Ok(Some(Self { process: process.pid, argv, env, cwd, named, file, opened }));
            }
        }
        Ok(None)
    }

    /// True if the caller sees a file on a read-only mount; `None` if the file does not exist.
    pub(crate) fn sees_read_only(&self, path: &Path) -> Option<bool> {
        let file = open_in_root(self.process, path).ok()?;
        let mount = rustix::fs::fstatvfs(file).ok()?;
        Some(mount.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// Opens a path within the root directory of a process.
fn open_in_root(process: i32, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{process}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

/// The identity of a file, and the file opened for reading if possible.
fn identify(file: &OwnedFd) -> io::Result<(Identity, Option<File>)> {
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let meta = File::from(file.try_clone()?).metadata()?;
    let identity = Identity::of(&fs::read_link(&by_descriptor)?, &meta);
    let opened = meta.is_file().then(|| File::open(&by_descriptor).ok()).flatten();
    Ok((identity, opened))
}

/// The memory of another process, read and cached by pages because its strings are adjacent.
struct Memory {
    file: File,
    /// The pages that were read last, with their addresses.
    pages: VecDeque<(u64, [u8; PAGE])>,
}

impl Memory {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, pages: VecDeque::new() })
    }

    /// The bytes from an address to the end of its page.
    fn page_from(&mut self, address: u64) -> io::Result<&[u8]> {
        let offset = usize::try_from(address).unwrap_or_default() % PAGE;
        let start = address - offset as u64;
        let known = self.pages.iter().position(|(page, _)| *page == start);
        if known.is_none() {
            let mut page = [0; PAGE];
            self.file.read_exact_at(&mut page, start)?;
            self.pages.truncate(PAGES - 1);
            self.pages.push_front((start, page));
        }
        Ok(&self.pages[known.unwrap_or(0)].1[offset..])
    }

    fn pointer(&mut self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; POINTER];
        let mut filled = 0;
        while filled < POINTER {
            let part = self.page_from(address + filled as u64)?;
            let length = part.len().min(POINTER - filled);
            bytes[filled..filled + length].copy_from_slice(&part[..length]);
            filled += length;
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a string up to its NUL byte.
    fn string(&mut self, mut address: u64) -> io::Result<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let part = self.page_from(address)?;
            if let Some(end) = memchr::memchr(0, part) {
                string.extend_from_slice(&part[..end]);
                return Ok(string);
            }
            string.extend_from_slice(part);
            address += part.len() as u64;
            if string.len() > LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
        }
    }

    /// Reads a list of pointers to strings up to its null pointer. A null pointer to the list counts as an empty
    /// list, as in the kernel.
    fn list(&mut self, address: u64) -> io::Result<Vec<Vec<u8>>> {
        let (mut list, mut total, mut at) = (Vec::new(), 0, address);
        if address == 0 {
            return Ok(list);
        }
        loop {
            let string = self.pointer(at)?;
            if string == 0 {
                return Ok(list);
            }
            let string = self.string(string)?;
            total += string.len() + POINTER;
            if total > LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
            list.push(string);
            at += POINTER as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn string_lists_are_read_across_pages_up_to_limit() {
        let strings: Vec<CString> =
            (0..3 * PAGE).step_by(511).map(|length| CString::new(vec![b'x'; length]).unwrap()).collect();
        let pointers: Vec<u64> = strings.iter().map(|string| string.as_ptr().addr() as u64).chain([0]).collect();
        let mut memory = Memory::open(Path::new("/proc/self/mem")).unwrap();
        let expected: Vec<Vec<u8>> = strings.iter().map(|string| string.to_bytes().to_vec()).collect();
        assert_eq!(memory.list(pointers.as_ptr().addr() as u64).unwrap(), expected);
        assert_eq!(memory.list(0).unwrap(), Vec::<Vec<u8>>::new());
        // A list may begin at any address.
        let mut bytes = vec![0];
        bytes.extend(pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()));
        assert_eq!(memory.list(bytes[1..].as_ptr().addr() as u64).unwrap(), expected);
        let long = CString::new(vec![b'x'; LONGEST + PAGE]).unwrap();
        assert!(memory.string(long.as_ptr().addr() as u64).is_err());
        assert!(memory.string(1).is_err() && memory.string(u64::MAX).is_err());
    }
}
