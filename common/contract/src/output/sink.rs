//! Writes to the standard streams: all bytes or an error. Untrusted text is escaped for a terminal. Also detects a
//! process that was started without standard output (`>&-`).
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of a closed standard stream; from then on every write
//! succeeds but the output is lost. The replacement cannot be distinguished from a redirection, because Python, Node
//! and daemons also open `/dev/null` for reading and writing. Therefore the check runs before the runtime, in a
//! function that the loader calls first. It does not detect a descriptor that is open but not writable; the first write
//! reports that.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_getfd};
use rustix::termios::tcgetwinsize;

use crate::signals;
use crate::wire::{Code, Error, Result};

/// Writes to standard output.
pub(super) fn write_all(bytes: &[u8]) -> Result<()> {
    erase_progress();
    write_to(rustix::stdio::stdout(), bytes)
}

fn write_to(stdout: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match signals::while_writing(|| rustix::io::write(stdout, bytes)) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Err(Error::reader_gone()),
            // Another process may have made the pipe non-blocking.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)], None)),
            Err(e) => return Err(Error::io("writing standard output", e)),
        }
    }
    Ok(())
}

/// True if nobody reads the pipe of standard output.
pub fn has_lost_reader() -> bool {
    let stdout = rustix::stdio::stdout();
    // Errors are reported even for an empty set of events.
    let mut fds = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

/// Time for a reader to make room for the closing line of an interrupted program.
const LAST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Writes a short line if there is room for it, without a long wait and without a lock that the work may hold.
pub(super) fn write_last(fd: BorrowedFd<'_>, line: &[u8]) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    if poll(&mut fds, Some(&LAST)).is_ok_and(|ready| ready > 0) {
        let _ = write_to(fd, line);
    }
}

/// Writes text to standard error and escapes control characters, because a message may quote programs, names or models.
/// A failure is ignored, because it cannot be reported.
pub fn to_stderr(text: &str) {
    erase_progress();
    let _ = std::io::stderr().write_all(printable(text).as_bytes());
}

/// Writes text that accompanies standard output, faint on a terminal.
pub(super) fn aside_to_stderr(text: &str) {
    erase_progress();
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\x1b[2m{}\x1b[22m", printable(text));
    } else {
        to_stderr(text);
    }
}

/// True while a line of progress is shown.
static HAS_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Shows a line of progress in place of the last one.
fn show_progress(line: &str) {
    HAS_PROGRESS.store(true, Ordering::Relaxed);
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

/// Erases the line of progress, if it is shown.
fn erase_progress() {
    if HAS_PROGRESS.swap(false, Ordering::Relaxed) {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}

/// Time of work without a report, and between two reports.
const DELAY: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(200);
/// The width of a terminal that does not report it.
const WIDTH: u16 = 80;

/// The progress of one piece of long work: one line on a terminal's standard error, which each report rewrites.
/// Everything else that is written to a standard stream erases it first, and so does its end.
#[derive(Debug)]
pub struct Progress {
    /// The time of the next report; `None` if nothing is shown.
    next: Option<Instant>,
}

impl Progress {
    /// Begins reports about work that started at a time, if standard error is a terminal.
    pub(super) fn since(started: Instant, is_wanted: bool) -> Self {
        Self { next: (is_wanted && std::io::stderr().is_terminal()).then(|| started + DELAY) }
    }

    /// Shows a line, if the work already takes long and the last report is not recent.
    pub fn report(&mut self, line: impl FnOnce() -> String) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + INTERVAL);
        // A line that wraps could not be erased.
        show_progress(&fitting(&line()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase_progress();
    }
}

/// Returns as much of a line as fits on the terminal at standard error.
pub fn fitting(line: &str) -> String {
    let reported = tcgetwinsize(rustix::stdio::stderr()).ok().map(|size| size.ws_col);
    let columns = reported.filter(|columns| *columns > 1).unwrap_or(WIDTH);
    printable_line(line).chars().take(usize::from(columns) - 1).collect()
}

/// Writes one line to standard error. Line feeds are escaped, so that quoted text cannot forge a second line.
pub fn line_to_stderr(line: &str) {
    to_stderr(&format!("{}\n", printable_line(line)));
}

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // Only one system call and one store, because nothing else is initialized yet.
    if fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF) {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
#[used]
#[expect(unsafe_code, reason = "the only place that is before the runtime; the function needs nothing of it")]
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = look;

/// Fails if standard output is closed, because nobody could read the result.
pub(crate) fn check_open() -> Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        let error = Error::new(Code::Io, "standard output is closed, so nothing is done");
        return Err(error.hint("redirect it to /dev/null to discard it").fatal());
    }
    Ok(())
}

/// Escapes everything that controls a terminal. C0 controls are shown with a caret (`^[`), C1 controls and
/// bidirectional marks by their number (`<U+202E>`). Line feeds and tabs are kept, and CR LF becomes LF.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' if letters.peek() == Some(&'\n') => {}
            '\x7f' => shown.push_str("^?"),
            '\0'..='\x1f' if acts(letter) => shown.extend(['^', char::from(letter as u8 + 0x40)]),
            letter if acts(letter) => drop(write!(shown, "<U+{:04X}>", u32::from(letter))),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Like [`printable`] for a single line: line feeds and tabs are escaped too.
#[must_use]
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "^J").replace('\t', "^I")
}

/// True if a terminal does not just display this character: the C0 and C1 controls of ECMA-48, and Unicode's
/// bidirectional marks.
fn acts(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => true,
        _ => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn printable_escapes_terminal_controls() {
        assert_eq!(printable("a\x1b[31mred\x07\r\nb\tc"), "a^[[31mred^G\nb\tc");
        assert_eq!(printable("x\u{9b}2J\u{202e}y\x7f\rz"), "x<U+009B>2J<U+202E>y^?^Mz");
        assert_eq!(printable("\x1b]0;title\x1b\\\u{61c}\u{2067}"), "^[]0;title^[\\<U+061C><U+2067>");
        assert_eq!(printable_line("a\n\tb"), "a^J^Ib");
    }

    #[test]
    fn printable_borrows_plain_text() {
        assert!(matches!(printable("grüße 日本 👍\n\tשלום"), Cow::Borrowed("grüße 日本 👍\n\tשלום")));
    }

    proptest! {
        #[test]
        fn printable_is_idempotent_and_leaves_no_controls(text in any::<String>()) {
            let once = printable(&text);
            prop_assert!(!once.chars().any(acts));
            prop_assert_eq!(printable(&once), once.clone());
        }
    }
}
