//! Questions to the person at the controlling terminal.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Instant;

use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::signals;
use crate::wire::{Error, Result};

/// Asks a question that `y` answers with yes. `None` if there is no terminal.
pub fn confirms(question: &str) -> Result<Option<bool>> {
    ask(question, None, |typed| Some(["y", "yes"].contains(&typed.trim().to_lowercase().as_str())))
}

/// Asks until an answer can be parsed, or until `until`. `None` if there is no terminal or no answer.
pub fn ask<T>(question: &str, until: Option<Instant>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(mut terminal) = open() else { return Ok(None) };
    let failed = |e: std::io::Error| Error::io("asking at the terminal", e);
    // Input that was typed before the question does not answer it.
    let _ = tcflush(&terminal, QueueSelector::IFlush);
    terminal.write_all(question.as_bytes()).map_err(failed)?;
    let (mut typed, mut bytes) = (Vec::new(), [0; 256]);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if !signals::wait_readable(terminal.as_fd(), left)? {
            return Ok(None);
        }
        match terminal.read(&mut bytes).map_err(failed)? {
            0 => return Ok(None),
            read => typed.extend_from_slice(&bytes[..read]),
        }
        if typed.ends_with(b"\n") {
            if let Some(answer) = parse(&String::from_utf8_lossy(&typed)) {
                return Ok(Some(answer));
            }
            typed.clear();
            terminal.write_all(b"Type one of the letters: ").map_err(failed)?;
        }
    }
}

/// True if a person can be asked.
pub fn is_there() -> bool {
    open().is_some()
}

/// Opens the controlling terminal; `None` in a pipeline without one, and in the background.
fn open() -> Option<File> {
    if !std::io::stdin().is_terminal() && !std::io::stderr().is_terminal() {
        return None;
    }
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    (tcgetpgrp(&terminal).ok()? == getpgrp()).then_some(terminal)
}
