//! Relays the keys and the size of the user's terminal to the pseudo-terminal of a command, whose output is read like
//! that of a pipe.
//!
//! The terminal is in raw mode while the command runs, so that the keys reach the pseudo-terminal, which handles them:
//! Ctrl-C and Ctrl-Z are signals inside. The terminal's own mode is restored on every end of this program but SIGKILL.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use signal_hook::consts::SIGCONT;

use super::streams::copy_all;

/// The longest wait for the stop of this process after the signal to stop.
const STOPPING: Duration = Duration::from_millis(500);

/// The own mode of the terminal while it is in raw mode.
static RAW: Mutex<Option<Termios>> = Mutex::new(None);

/// The relay between two terminals.
pub(super) struct Relay {
    /// The pseudo-terminal of the command.
    inside: OwnedFd,
    continued: Arc<AtomicBool>,
    hung_up: AtomicBool,
}

impl Relay {
    /// Puts the terminal into raw mode, and starts to relay its keys.
    pub(super) fn begin(inside: OwnedFd) -> io::Result<Arc<Self>> {
        let relay = Arc::new(Self { inside, continued: Arc::default(), hung_up: AtomicBool::new(false) });
        signal_hook::flag::register(SIGCONT, Arc::clone(&relay.continued))?;
        restore_after_panic();
        set_raw()?;
        relay.pass_size();
        let own = Arc::clone(&relay);
        let keys = move || {
            let is_hung_up = copy_all(stdin(), &own.inside, || own.waits_for_key());
            own.hung_up.store(is_hung_up, Ordering::Relaxed);
        };
        Builder::new().name("keys".to_owned()).spawn(keys)?;
        Ok(relay)
    }

    /// Waits for a key. False after the command has closed its terminal: what is typed then is for the shell.
    fn waits_for_key(&self) -> bool {
        let keys = stdin();
        let mut fds = [PollFd::new(&keys, PollFlags::IN), PollFd::new(&self.inside, PollFlags::empty())];
        let _ = rustix::io::retry_on_intr(|| poll(&mut fds, None));
        // A key that is typed after a change of the size arrives after it.
        self.pass_size();
        !fds[1].revents().contains(PollFlags::HUP)
    }

    /// Passes the size of the terminal on, and puts it into raw mode again after a stop.
    pub(super) fn follow(&self) {
        if self.continued.swap(false, Ordering::Relaxed) {
            let _ = set_raw();
        }
        self.pass_size();
    }

    /// The kernel does nothing, and sends no signal, if the size is the same.
    fn pass_size(&self) {
        if let Ok(size) = tcgetwinsize(stdout()) {
            let _ = tcsetwinsize(&self.inside, size);
        }
    }

    /// True if the terminal of the user is gone.
    pub(super) fn is_hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// Stops this job, as the command inside has stopped. Returns when the user continues the job.
    pub(super) fn suspend(&self) {
        restore();
        // The shell of the user sees that the whole job has stopped. The kernel ignores the signal if no shell could
        // continue the job, and then the command continues at once.
        self.continued.store(false, Ordering::Relaxed);
        let _ = rustix::process::kill_current_process_group(Signal::TSTP);
        // Another thread may receive the signal, so this one may run on for a moment before the process stops.
        let end = Instant::now() + STOPPING;
        while !self.continued.load(Ordering::Relaxed) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.continued.store(true, Ordering::Relaxed);
        self.follow();
    }
}

/// True if both standard streams of this program are a terminal, so that a command can get one.
pub(crate) fn has_terminal() -> bool {
    isatty(stdin()) && isatty(stdout())
}

/// Puts the terminal into raw mode. The first call keeps its own mode.
fn set_raw() -> io::Result<()> {
    let mut raw = RAW.lock().unwrap_or_else(PoisonError::into_inner);
    let own = tcgetattr(stdin())?;
    let mut mode = own.clone();
    mode.make_raw();
    tcsetattr(stdin(), OptionalActions::Now, &mode)?;
    raw.get_or_insert(own);
    Ok(())
}

/// Restores the mode of the terminal.
pub(super) fn restore() {
    // A panic may hold the lock.
    if let Ok(mut raw) = RAW.try_lock()
        && let Some(mode) = raw.take()
    {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
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
