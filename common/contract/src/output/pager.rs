//! The pager: a program that shows the answer of a query at a terminal, if it is longer than the screen.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::stdio::{dup2_stdout, stdout};
use rustix::termios::tcgetwinsize;

use crate::signals;

/// The pager of a user who has not chosen one.
const DEFAULT: &str = "if command -v less >/dev/null; then exec less -FRX; else exec cat; fi";

/// Interval at which a signal that ends the program is noticed.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The process of the pager, which has taken over standard output.
static PAGER: OnceLock<OwnedFd> = OnceLock::new();

/// True if a text has more lines than the terminal of standard output.
pub(super) fn exceeds_screen(text: &[u8]) -> bool {
    let Ok(size) = tcgetwinsize(stdout()) else { return false };
    let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col).max(1));
    // The prompt of the shell needs a line, too.
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.len().div_ceil(columns).max(1));
    rows > 0 && lines.sum::<usize>() > rows
}

/// Starts the pager: `CP_PAGER`, else `PAGER`, else less. If there is none, standard output remains the terminal.
pub(super) fn start() {
    let chosen = ["CP_PAGER", "PAGER"].into_iter().find_map(std::env::var_os);
    let command = chosen.unwrap_or_else(|| DEFAULT.into());
    if command.is_empty() || command == "cat" {
        return;
    }
    let mut pager = Command::new("sh");
    pager.arg("-c").arg(command).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        pager.env("LESS", "FRX");
    }
    let Ok(mut pager) = pager.spawn() else { return };
    let process = pidfd_open(Pid::from_child(&pager), PidfdFlags::empty());
    if let (Ok(process), Some(pipe)) = (process, pager.stdin.take())
        && dup2_stdout(&pipe).is_ok()
    {
        let _ = PAGER.set(process);
    }
}

/// Closes the pager's input, and waits until the person leaves it, or a signal other than SIGINT arrives.
pub(crate) fn wait() {
    let Some(process) = PAGER.get() else { return };
    if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(&nowhere);
    }
    let is_open =
        || matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&POLL_INTERVAL)), Ok(0) | Err(Errno::INTR));
    while !signals::ending() && is_open() {}
}
