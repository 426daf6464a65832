//! SIGINT, SIGTERM and SIGHUP as a flag and a wake-up pipe. A signal interrupts waits, the work unwinds, and a closing
//! line is written. A watchdog thread ends work that does not unwind because it computes or waits without watching the
//! pipe.

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};

use crate::wire::{Code, Error, Result};

struct Signals {
    /// Set by SIGINT, which an interactive program may ignore.
    interrupt: Arc<AtomicBool>,
    /// Set by the signals that end the program.
    end: Arc<AtomicBool>,
    /// Readable after a signal.
    wake: UnixStream,
    /// The other ends of `wake` and of the watchdog's pipe.
    senders: [UnixStream; 2],
}

static SIGNALS: OnceLock<Signals> = OnceLock::new();

/// Time for the work to end by itself after a signal, and after the last effect.
const GRACE: Duration = Duration::from_millis(100);
/// Interval at which the watchdog checks for the end of an effect.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Number of effects in progress.
static EFFECTS: Mutex<usize> = Mutex::new(0);

/// Number of writes to standard output that were begun and ended; odd while one is in progress.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Writes to standard output. A write that waits for its reader longer than [`GRACE`] is not part of an effect, so that
/// a signal ends the program.
pub(crate) fn while_writing<T>(write: impl FnOnce() -> T) -> T {
    WRITES.fetch_add(1, Ordering::Relaxed);
    let written = write();
    WRITES.fetch_add(1, Ordering::Relaxed);
    written
}

/// Guard of an operation that a signal must not interrupt: while it exists, the watchdog does not end the program.
#[derive(Debug)]
#[must_use = "an effect is under way as long as this lives"]
pub struct Effect(());

/// Begins an effect. The holder must wait only in functions that a signal wakes.
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

/// Installs handlers for SIGINT, SIGTERM and SIGHUP. If that fails, these signals end the program at once, as by
/// default. `leave` ends the program when the work does not unwind; it returns if there is nothing left to end.
pub(crate) fn install(leave: fn()) {
    if let Ok((signals, came)) = installed() {
        let _ = SIGNALS.set(signals);
        // If the thread cannot be started, signals do not end work that does not check for them.
        let watch = move || watch(came, leave);
        let _ = std::thread::Builder::new().name("signals".to_owned()).stack_size(256 << 10).spawn(watch);
    }
}

/// Also returns the pipe of the watchdog.
fn installed() -> std::io::Result<(Signals, UnixStream)> {
    let ((wake, waker), (came, watchdog)) = (UnixStream::pair()?, UnixStream::pair()?);
    wake.set_nonblocking(true)?;
    let signals = Signals { interrupt: Arc::default(), end: Arc::default(), wake, senders: [waker, watchdog] };
    let ignored = ignored_signals();
    let is_ignored = |signal: i32| ignored & (1 << (signal - 1)) != 0;
    // The kernel reaps the children of a process that ignores SIGCHLD, and their status is lost.
    if is_ignored(SIGCHLD) {
        signal_hook::flag::register(SIGCHLD, Arc::default())?;
    }
    signals.notice(SIGINT, &signals.interrupt)?;
    signals.notice(SIGTERM, &signals.end)?;
    // A program that was started with `nohup` continues without its terminal.
    if !is_ignored(SIGHUP) {
        signals.notice(SIGHUP, &signals.end)?;
    }
    // A file at its size limit then fails the write, which can be reported, instead of killing the program.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok((signals, came))
}

/// Ends the program some time after a signal, unless it ends by itself.
fn watch(mut came: UnixStream, leave: fn()) {
    while !matches!(came.read(&mut [0; 64]), Ok(0)) {
        let (mut write, mut since, mut effect) = (WRITES.load(Ordering::Relaxed), Instant::now(), Instant::now());
        while interrupted() {
            // The lock is held while the program ends, so that no effect begins.
            let effects = effects();
            let last = std::mem::replace(&mut write, WRITES.load(Ordering::Relaxed));
            if write != last {
                since = Instant::now();
            }
            if *effects > 0 {
                effect = Instant::now();
            }
            let is_blocked = write % 2 == 1 && since.elapsed() >= GRACE;
            // The result of the last effect can still be written.
            if effect.elapsed() >= GRACE || is_blocked {
                leave();
                break;
            }
            drop(effects);
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the mask of the signals that this process was started with ignored; all of them if that is unknown.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
}

impl Signals {
    fn notice(&self, signal: i32, mark: &Arc<AtomicBool>) -> std::io::Result<()> {
        signal_hook::flag::register(signal, Arc::clone(mark))?;
        for sender in &self.senders {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(())
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.wake, &mut bytes), Ok(1..)) {}
    }
}

/// Makes SIGQUIT end the program as SIGTERM does, for a program that must close its session.
pub fn quit_ends() {
    // If this fails, SIGQUIT ends the program at once, as by default.
    let _ = SIGNALS.get().map(|signals| signals.notice(SIGQUIT, &signals.end));
}

/// Clears a SIGINT that was handled, so that an interactive program continues. A signal that ends the program is never
/// cleared.
pub fn forget_interrupt() {
    let Some(signals) = SIGNALS.get() else { return };
    signals.interrupt.store(false, Ordering::Relaxed);
    if !ending() {
        signals.drain();
    }
}

/// True if SIGINT, SIGTERM or SIGHUP has arrived.
pub fn interrupted() -> bool {
    ending() || SIGNALS.get().is_some_and(|signals| signals.interrupt.load(Ordering::Relaxed))
}

/// True if a signal has arrived that ends even an interactive program.
pub fn ending() -> bool {
    SIGNALS.get().is_some_and(|signals| signals.end.load(Ordering::Relaxed))
}

/// Fails with [`Code::Interrupted`] after a signal. Call it between the steps of long work.
pub fn check() -> Result<()> {
    if interrupted() { Err(Error::new(Code::Interrupted, "interrupted by a signal")) } else { Ok(()) }
}

/// Waits until `fd` is readable, a signal arrives, or the limit is over. Returns true if `fd` is readable or at its
/// end.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Option<Duration>) -> Result<bool> {
    wait_either(fd, None, limit)
}

/// Like [`wait_readable`], but `other` also ends the wait. Returns true if `fd` is readable.
pub fn wait_either(fd: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Result<bool> {
    check()?;
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let signals = SIGNALS.get();
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
                    // The byte of a SIGINT arrived after the SIGINT was cleared.
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

/// Waits until `fd` is readable, at most `limit`. A signal ends the wait only if no effect is in progress.
pub(crate) fn outlasts(fd: BorrowedFd<'_>, limit: Duration) -> Result<bool> {
    if *effects() == 0 && !interrupted() {
        return wait_readable(fd, Some(limit));
    }
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(Error::io("waiting", e)),
    }
}
