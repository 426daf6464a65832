//! Relays the terminal of the user to the pseudo-terminal of a command.
//!
//! The terminal is in raw mode while the command runs, so that the keys reach the pseudo-terminal, which handles them:
//! Ctrl-C and Ctrl-Z are signals inside. The terminal's own mode is restored on every end of this program but SIGKILL.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios};
use signal_hook::consts::{SIGCONT, SIGWINCH};

use super::streams::{Capture, Output};

/// The longest wait for a terminal that does not accept the last output.
const LAST: Duration = Duration::from_secs(1);

/// The longest wait for the stop of this process after the signal to stop.
const STOPPING: Duration = Duration::from_millis(500);

/// The terminal in raw mode, and its own mode.
static RAW: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// The relay between two terminals. All operations are non-blocking, and each direction holds back one buffer.
pub(super) struct Relay {
    /// The pseudo-terminal of the command; `None` after its end.
    inside: Option<File>,
    keys: File,
    screen: File,
    /// Keys that the command has not accepted yet.
    typed: Vec<u8>,
    /// Output that the terminal has not accepted yet.
    shown: Vec<u8>,
    resized: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    hung_up: bool,
}

impl Relay {
    /// Puts the terminal into raw mode.
    pub(super) fn begin(inside: OwnedFd) -> io::Result<Self> {
        let (keys, screen) = (reopen(rustix::stdio::stdin())?, reopen(rustix::stdio::stdout())?);
        rustix::io::ioctl_fionbio(&inside, true)?;
        let (resized, continued) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        restore_after_panic();
        set_raw(&keys)?;
        let (typed, shown) = (Vec::new(), Vec::new());
        Ok(Self { inside: Some(inside.into()), keys, screen, typed, shown, resized, continued, hung_up: false })
    }

    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        let event = |is_read: bool, events| if is_read { events } else { PollFlags::empty() };
        let inside = event(self.shown.is_empty(), PollFlags::IN) | event(!self.typed.is_empty(), PollFlags::OUT);
        let keys = event(self.typed.is_empty() && !self.hung_up, PollFlags::IN);
        let screen = event(!self.shown.is_empty(), PollFlags::OUT);
        let inside = self.inside.iter().map(move |file| (file, inside));
        let outside = [(&self.keys, keys), (&self.screen, screen)];
        // Without an event the kernel would still report a hangup, again and again.
        let all = inside.chain(outside).filter(|(_, events)| !events.is_empty());
        all.map(|(file, events)| PollFd::from_borrowed_fd(file.as_fd(), events))
    }

    /// Copies what can be copied now in both directions.
    pub(super) fn pass(&mut self, output: &mut Output<'_>) {
        let (buffer, capture) = output.screen();
        if self.continued.swap(false, Ordering::Relaxed) {
            let _ = set_raw(&self.keys);
            self.resized.store(true, Ordering::Relaxed);
        }
        if self.resized.swap(false, Ordering::Relaxed) {
            self.pass_size();
        }
        if self.typed.is_empty() && !self.hung_up {
            self.hung_up = !read_some(&self.keys, &mut self.typed, buffer);
        }
        match &mut self.inside {
            Some(inside) => write_some(inside, &mut self.typed),
            None => self.typed.clear(),
        }
        self.show();
        if self.shown.is_empty() && self.read_output(buffer, capture) {
            self.show();
        }
    }

    /// Passes the last output on, to a terminal that accepts it in time.
    pub(super) fn finish(&mut self, output: &mut Output<'_>) {
        let (buffer, capture) = output.screen();
        let end = Instant::now() + LAST;
        while (!self.shown.is_empty() || self.read_output(buffer, capture)) && Instant::now() < end {
            let _ = rustix::event::poll(
                &mut [PollFd::new(&self.screen, PollFlags::OUT)],
                Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }),
            );
            self.show();
        }
    }

    /// True if all output was read and shown.
    pub(super) fn is_closed(&self) -> bool {
        self.inside.is_none() && self.shown.is_empty()
    }

    /// True if the terminal of the user is gone.
    pub(super) const fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Stops this job, as the command inside has stopped. Returns when the user continues the job.
    pub(super) fn suspend(&mut self) {
        self.show();
        restore();
        // The shell of the user sees that the whole job has stopped. The kernel ignores the signal if no shell could
        // continue the job, and then the command continues at once.
        self.continued.store(false, Ordering::Relaxed);
        let _ = rustix::process::kill_current_process_group(Signal::TSTP);
        // Another thread may receive the signal, so this one may run on for a moment before the process stops.
        let end = Instant::now() + STOPPING;
        while !self.continued.swap(false, Ordering::Relaxed) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = set_raw(&self.keys);
        self.pass_size();
    }

    fn pass_size(&self) {
        if let (Some(inside), Ok(size)) = (&self.inside, rustix::termios::tcgetwinsize(&self.screen)) {
            let _ = rustix::termios::tcsetwinsize(inside, size);
        }
    }

    fn show(&mut self) {
        write_some(&mut self.screen, &mut self.shown);
    }

    /// Reads output of the command after the last one was shown. True if there was some.
    fn read_output(&mut self, buffer: &mut [u8], capture: &mut Capture) -> bool {
        // The kernel reports an error after the last process inside has closed the terminal.
        self.inside = self.inside.take().filter(|inside| read_some(inside, &mut self.shown, buffer));
        capture.add(&self.shown);
        !self.shown.is_empty()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        restore();
    }
}

/// The size of the terminal that a command gets which is started now, if both standard streams of this program are one.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let size = rustix::termios::isatty(rustix::stdio::stdin()).then(size).flatten()?;
    Some((size.ws_row, size.ws_col))
}

/// Opens a terminal again, because the mode without blocking of a shared descriptor would hold for other programs.
fn reopen(terminal: BorrowedFd<'_>) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let named = rustix::termios::ttyname(terminal, Vec::new());
    let opened = named.and_then(|name| rustix::fs::open(name, flags, Mode::empty()));
    Ok(opened.or_else(|_| rustix::fs::open(Path::new("/dev/tty"), flags, Mode::empty()))?.into())
}

/// Puts a terminal into raw mode. The first call keeps its own mode.
fn set_raw(terminal: &File) -> io::Result<()> {
    let mut raw = RAW.lock().unwrap_or_else(PoisonError::into_inner);
    let own = rustix::termios::tcgetattr(terminal)?;
    let mut mode = own.clone();
    mode.make_raw();
    rustix::termios::tcsetattr(terminal, OptionalActions::Now, &mode)?;
    if raw.is_none() {
        *raw = Some((terminal.try_clone()?.into(), own));
    }
    Ok(())
}

/// Restores the mode of the terminal.
fn restore() {
    // A panic may hold the lock.
    if let Ok(mut raw) = RAW.try_lock()
        && let Some((terminal, mode)) = raw.take()
    {
        let _ = rustix::termios::tcsetattr(terminal.as_fd(), OptionalActions::Now, &mode);
    }
}

/// Restores the mode of the terminal before the message of a panic.
fn restore_after_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            report(info);
        }));
    });
}

/// Writes what a terminal accepts, and removes it.
fn write_some(to: &mut File, bytes: &mut Vec<u8>) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(written) if written > 0 => drop(bytes.drain(..written)),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // The terminal is gone.
            Ok(_) | Err(_) => bytes.clear(),
        }
    }
}

/// Reads what a terminal has. False after its end.
fn read_some(mut from: &File, bytes: &mut Vec<u8>, buffer: &mut [u8]) -> bool {
    match from.read(buffer) {
        Ok(0) => return false,
        Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        Err(e) => return matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
    true
}
