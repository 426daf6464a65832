//! SIGINT, SIGTERM and SIGHUP as a flag and a pipe: a wait wakes up, the work unwinds, a closing line is left. Work that does not
//! unwind, because it computes or waits where no pipe wakes it, is ended from beside it.

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};

use crate::wire::{Code, Error, Result};

struct Signals {
    /// SIGINT, which a program with a person may outlive.
    interrupt: Arc<AtomicBool>,
    /// What ends the program.
    end: Arc<AtomicBool>,
    wake: UnixStream,
    sender: UnixStream,
    /// Whether SIGHUP is noticed.
    hangs_up: bool,
}

static SIGNALS: OnceLock<Option<Signals>> = OnceLock::new();

/// How long the work has to end by itself once a signal has come.
const GRACE: Duration = Duration::from_millis(100);
/// How often the end of an effect is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// How many effects are under way.
static EFFECTS: Mutex<usize> = Mutex::new(0);

/// Something that must not be cut in two by a signal: as long as this lives the work ends by itself, or not at all.
#[derive(Debug)]
#[must_use = "an effect is under way as long as this lives"]
pub struct Effect(());

/// Begins an effect. Whoever holds one waits only where a signal wakes it.
pub fn effect() -> Effect {
    *effects() += 1;
    Effect(())
}

impl Drop for Effect {
    fn drop(&mut self) {
        *effects() -= 1;
    }
}

fn effects() -> MutexGuard<'static, usize> {
    EFFECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to notice SIGINT, SIGTERM and SIGHUP. Where that fails they end the program at once, as without it. `leave` ends the program
/// when the work does not; it comes back when there is nothing left to end.
pub(crate) fn install(leave: fn()) {
    SIGNALS.get_or_init(|| {
        let (wake, sender) = UnixStream::pair().ok()?;
        wake.set_nonblocking(true).ok()?;
        // A program that was started with `nohup` goes on without its terminal.
        let hangs_up = !comes_ignored(SIGHUP);
        let signals = Signals { interrupt: Arc::default(), end: Arc::default(), wake, sender, hangs_up };
        signals.notice(SIGINT, &signals.interrupt).ok()?;
        signals.notice(SIGTERM, &signals.end).ok()?;
        if hangs_up {
            signals.notice(SIGHUP, &signals.end).ok()?;
        }
        // A file at its size limit is then an error of the write, which can be reported, and not the end of the program.
        signal_hook::flag::register(SIGXFSZ, Arc::default()).ok()?;
        Some(signals)
    });
    watch(leave);
}

/// Looks, from a thread of its own, whether a signal ended the work. Where that thread cannot be had, work that does not look for
/// signals is not ended by them.
fn watch(leave: fn()) {
    let Some(signals) = installed() else { return };
    let Ok((mut came, sender)) = UnixStream::pair() else { return };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let is_noticed = signal != SIGHUP || signals.hangs_up;
        let registered = sender.try_clone().and_then(|sender| {
            if is_noticed { signal_hook::low_level::pipe::register(signal, sender).map(drop) } else { Ok(()) }
        });
        if registered.is_err() {
            return;
        }
    }
    let watch = move || {
        while !matches!(came.read(&mut [0; 64]), Ok(0)) {
            std::thread::sleep(GRACE);
            while interrupted() {
                // Kept while the program is ended: no effect begins any more.
                let effects = effects();
                if *effects == 0 {
                    leave();
                    break;
                }
                drop(effects);
                std::thread::sleep(LOOK);
            }
        }
    };
    let _ = std::thread::Builder::new().name("signals".to_owned()).stack_size(256 << 10).spawn(watch);
}

/// Whether this process was started with a signal ignored. Where that cannot be known the signal stays as it is.
fn comes_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & (1 << (signal - 1)) != 0)
}

impl Signals {
    fn notice(&self, signal: i32, mark: &Arc<AtomicBool>) -> std::io::Result<()> {
        signal_hook::flag::register(signal, Arc::clone(mark))?;
        signal_hook::low_level::pipe::register(signal, self.sender.try_clone()?).map(drop)
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.wake, &mut bytes), Ok(1..)) {}
    }
}

/// From now on SIGQUIT ends the program as SIGTERM does: for one that holds a session which is to have its end.
pub fn quit_ends() {
    let Some(signals) = installed() else { return };
    // Where that fails it ends the program at once, as before.
    let _ = signals.notice(SIGQUIT, &signals.end);
}

/// Forgets a SIGINT that was handled, so that an interactive program continues. A signal that ends the program is never forgotten.
pub fn forget_interrupt() {
    let Some(signals) = installed() else { return };
    signals.interrupt.store(false, Ordering::Relaxed);
    if signals.end.load(Ordering::Relaxed) {
        return;
    }
    signals.drain();
}

fn installed() -> Option<&'static Signals> {
    SIGNALS.get().and_then(Option::as_ref)
}

/// Whether SIGINT, SIGTERM or SIGHUP has come.
pub fn interrupted() -> bool {
    ending() || installed().is_some_and(|signals| signals.interrupt.load(Ordering::Relaxed))
}

/// Whether a signal has arrived that ends even an interactive program.
pub fn ending() -> bool {
    installed().is_some_and(|signals| signals.end.load(Ordering::Relaxed))
}

/// Fails with [`Code::Interrupted`] once a signal has come: to be called between steps of long work.
pub fn check() -> Result<()> {
    if interrupted() { Err(Error::new(Code::Interrupted, "interrupted by a signal")) } else { Ok(()) }
}

/// Waits until `fd` can be read, or a signal comes, or the time is over. True when it can be read (or has ended).
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Option<Duration>) -> Result<bool> {
    wait_either(fd, None, limit)
}

/// As [`wait_readable`], and `other` wakes it too. True when `fd` can be read.
pub fn wait_either(fd: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Result<bool> {
    check()?;
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let signals = installed();
    let wake = signals.map(|signals| signals.wake.as_fd());
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        fds.extend([wake, other].into_iter().flatten().map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => {
                check()?;
                let woken = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
                match signals {
                    // The byte of a SIGINT came after the SIGINT was forgotten.
                    Some(signals) if woken(1) && !woken(0) && !woken(2) => {
                        signals.drain();
                        check()?;
                    }
                    _ => return Ok(woken(0)),
                }
            }
            Err(Errno::INTR) => check()?,
            Err(e) => return Err(Error::io("waiting for input", e)),
        }
    }
}

/// Waits until `fd` can be read, at most so long. A signal ends the wait only where no effect is under way.
pub(crate) fn outlasts(fd: BorrowedFd<'_>, limit: Duration) -> Result<bool> {
    if *effects() == 0 && !interrupted() {
        return wait_readable(fd, None);
    }
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(Error::io("waiting", e)),
    }
}

/// Whether `fd` has bytes (or its end) now.
pub(crate) fn readable_now(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0) && fds[0].revents().contains(PollFlags::IN)
}
