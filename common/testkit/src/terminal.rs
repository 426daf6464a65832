//! A pseudo-terminal: a test types keys and reads the screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::spawn::spawn;
use crate::wait::{LIMIT, holds_within};

/// The output, with and without escape sequences.
#[derive(Default)]
struct Shown {
    raw: Vec<u8>,
    text: String,
}

/// A program at a pseudo-terminal. It is killed at the end of the test if it is still running.
pub struct Terminal {
    child: Child,
    line: String,
    keys: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    seen: usize,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts `command`, which makes its standard input its controlling terminal.
    #[track_caller]
    pub(crate) fn start(mut command: Command, line: String, columns: u16) -> Self {
        let (ours, theirs) = open(columns).expect("a pseudo-terminal");
        let copy = || theirs.try_clone().expect("a copy of a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = spawn(&mut command).unwrap_or_else(|e| panic!("{line}: {e}"));
        // The command holds copies of the other side, which must be closed for the output to end.
        drop((command, theirs));
        let keys = File::from(ours);
        let output = keys.try_clone().expect("a copy of a descriptor");
        let shown = Arc::new((Mutex::new(Shown::default()), Condvar::new()));
        let shared = Arc::clone(&shown);
        let reader = std::thread::spawn(move || keep_reading(output, &shared));
        Self { child, line, keys, shown, seen: 0, reader }
    }

    /// Types keys; `\r` is Enter.
    #[track_caller]
    pub fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Waits until `words` appear after those of the last wait, and returns the output up to and including them.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str) -> String {
        let (shown, changed) = &*self.shown;
        let from = self.seen;
        let end = |shown: &Shown| shown.text[from..].find(words).map(|at| from + at + words.len());
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, _) = changed
            .wait_timeout_while(shown, LIMIT, |shown| end(shown).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let Some(end) = end(&shown) else {
            panic!("`{words}` was not shown by\n$ {}\nwhich showed since then:\n{}", self.line, &shown.text[from..]);
        };
        self.seen = end;
        shown.text[from..end].to_owned()
    }

    /// Returns all output so far, without escape sequences.
    pub fn text(&self) -> String {
        self.shown.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    /// Returns all output so far, unchanged.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.shown.0.lock().unwrap_or_else(PoisonError::into_inner).raw).into_owned()
    }

    /// Changes the width, which the program learns from a signal.
    #[track_caller]
    pub fn resize(&self, columns: u16) {
        rustix::termios::tcsetwinsize(&self.keys, size(columns)).expect("the terminal is there");
    }

    /// Sends a signal to the program only, and waits until one of its threads has received it.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("it is there to get a signal");
        let status = format!("/proc/{}/status", self.child.id());
        let is_pending =
            |line: &str| line.starts_with("ShdPnd:") && line.contains(|digit| ('1'..='9').contains(&digit));
        let is_taken = || !std::fs::read_to_string(&status).unwrap_or_default().lines().any(is_pending);
        assert!(holds_within(LIMIT, is_taken), "no thread takes the signal\n$ {}", self.line);
    }

    /// Kills the program with SIGKILL, which it cannot handle.
    #[track_caller]
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is there to be killed");
    }

    /// Waits for the exit and returns the status; `None` if a signal ended the program.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let mut status = None;
        let ended = holds_within(LIMIT, || {
            status = self.child.try_wait().expect("its state can be asked for");
            status.is_some()
        });
        assert!(ended, "it did not end within {LIMIT:?}\n$ {}\n{}", self.line, self.text());
        // Its last output may not have been read yet. A process that it left behind can keep the terminal open forever.
        let _ = holds_within(Duration::from_secs(10), || self.reader.is_finished());
        status.and_then(|status| status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16) -> Winsize {
    Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Opens a pseudo-terminal: our side, and the side of the program.
fn open(columns: u16) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    rustix::termios::tcsetwinsize(&ours, size(columns))?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((ours, theirs))
}

/// Reads until the other side is closed, which the kernel reports as an error.
fn keep_reading(mut output: File, shared: &(Mutex<Shown>, Condvar)) {
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut piece) {
        let mut shown = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.raw.extend_from_slice(&piece[..read]);
        shown.text = plain(&String::from_utf8_lossy(&shown.raw));
        shared.1.notify_all();
    }
}

/// Removes escape sequences and normalizes line ends.
fn plain(raw: &str) -> String {
    let (mut text, mut letters) = (String::new(), raw.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => {
                if letters.next() == Some('[') {
                    letters.by_ref().find(char::is_ascii_alphabetic);
                }
            }
            '\r' | '\x07' => {}
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    #[test]
    fn terminal_passes_keys_and_shows_output() {
        let script = "stty size; tput -T xterm bold; read -r word; echo \"<$word>\"; test -t 1 && exit 5";
        let mut terminal = Place::new().program("sh").args(["-c", script]).terminal(77);
        terminal.wait_for("24 77\n");
        terminal.send("hi\r");
        assert!(terminal.wait_for("<hi>").ends_with("hi\n<hi>"));
        assert_eq!(terminal.end(), Some(5));
        assert!(terminal.raw().contains("\x1b[1m") && !terminal.text().contains('\x1b'));
    }

    #[test]
    fn terminal_is_controlling_and_can_be_resized() {
        let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done";
        let mut terminal = Place::new().program("sh").args(["-c", script]).terminal(80);
        terminal.wait_for("ready");
        terminal.resize(40);
        terminal.wait_for("24 40");
        terminal.send("\x03");
        assert_eq!(terminal.end(), None);
    }

    #[test]
    fn signal_reaches_program() {
        let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
        let mut terminal = Place::new().program("sh").args(["-c", script]).terminal(80);
        terminal.wait_for("ready");
        terminal.signal(Signal::TERM);
        terminal.wait_for("caught");
        assert_eq!(terminal.end(), Some(3));
    }
}
