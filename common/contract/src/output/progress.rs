//! Progress of long work: one line on a terminal's standard error, which each report rewrites. Everything else that is
//! written to a standard stream erases it first.

use std::time::{Duration, Instant};

use rustix::stdio::stderr;
use rustix::termios::tcgetwinsize;

use super::sink::{erase_progress, is_terminal, printable_line, show_progress};

/// Time of work without a report.
const DELAY: Duration = Duration::from_secs(2);

/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// The width of a terminal that does not report it.
const WIDTH: u16 = 80;

/// The progress of one piece of work. The line is erased at its end.
#[derive(Debug)]
pub struct Progress {
    /// The time of the next report; `None` if nothing is shown.
    next: Option<Instant>,
}

impl Progress {
    /// Begins reports about work that started at a time, if standard error is a terminal.
    pub(super) fn since(started: Instant, is_wanted: bool) -> Self {
        Self { next: (is_wanted && is_terminal()).then(|| started + DELAY) }
    }

    /// Shows a line, if the work already takes long and the last report is not recent.
    pub fn report(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        let columns = tcgetwinsize(stderr()).map_or(WIDTH, |size| size.ws_col).max(2);
        // A line that wraps could not be erased.
        let line: String = printable_line(&line()).chars().take(usize::from(columns) - 1).collect();
        show_progress(&line);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        erase_progress();
    }
}
