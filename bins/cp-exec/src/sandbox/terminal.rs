//! The controlling terminal of a command: a pseudo-terminal of its own, whose other side the supervisor relays.
//!
//! The init is the leader of the terminal's session, and the command is a process group in it. If the command led the
//! session itself, its group would be orphaned, and the kernel ignores Ctrl-Z in an orphaned group.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};

use super::plan::Plan;
use super::report::{self, At, Failure, Report};
use super::sys;

/// Makes a new pseudo-terminal the controlling terminal of this process, if the plan has one, and sends its other side
/// to the supervisor.
pub(super) fn control(plan: &Plan, socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Failure> {
    let Some((rows, columns)) = plan.terminal else { return Ok(None) };
    let opened = open(rows, columns).and_then(|(relayed, terminal)| {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&terminal)?;
        report::send_report(socket, &Report::Terminal, Some(relayed.as_fd()))?;
        Ok(terminal)
    });
    opened.map(Some).at("terminal")
}

/// Opens a pseudo-terminal of this size: the side of the supervisor, and that of the command.
fn open(rows: u16, columns: u16) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let relayed = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&relayed)?;
    let terminal = rustix::pty::ioctl_tiocgptpeer(&relayed, flags)?;
    rustix::termios::tcsetwinsize(&terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let mut modes = rustix::termios::tcgetattr(&terminal)?;
    modes.input_modes |= InputModes::IUTF8;
    rustix::termios::tcsetattr(&terminal, OptionalActions::Now, &modes)?;
    Ok((relayed, terminal))
}

/// Makes this process the foreground group of the terminal, which becomes its standard streams.
pub(super) fn enter(terminal: &OwnedFd) -> rustix::io::Result<()> {
    rustix::process::setpgid(None, None)?;
    rustix::termios::tcsetpgrp(terminal, rustix::process::getpid())?;
    sys::become_streams(&[terminal, terminal, terminal])
}

/// Continues the stopped command in the foreground. A command that ended in the meantime is reported as usual.
pub(super) fn resume(terminal: Option<&OwnedFd>, command: Pid) {
    if let Some(terminal) = terminal {
        let _ = rustix::termios::tcsetpgrp(terminal, command);
        let _ = rustix::process::kill_process_group(command, Signal::CONT);
    }
}
