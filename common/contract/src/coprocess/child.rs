//! A child process and its pipes. Whatever happens to its owner, it is stopped: its input ends, then SIGTERM, then SIGKILL.

use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cp_redact::{Cut, Redactor};
use memchr::memchr;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::signals;
use crate::stream::lines::{Lines, Next};
use crate::wire::{Code, Error, Result};

/// How much of the end of what a child writes on standard error is kept, in bytes: as a rule whole lines.
const KEPT: usize = 64 << 10;
/// How much of it an error message has, in bytes.
const SAID: usize = 2000;
/// How long a stranger has to leave when we are being ended ourselves. Our own programs finish what they do first.
const BRIEF: Duration = Duration::from_millis(50);
/// How often a wait for a child's end looks.
const LOOK: Duration = Duration::from_millis(2);

/// How long a child has to leave before it is made to.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// After its standard input has ended. Zero where only SIGTERM stops it.
    pub after_input: Duration,
    /// After SIGTERM.
    pub after_term: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { after_input: Duration::from_millis(200), after_term: Duration::from_secs(2) }
    }
}

/// A child process that does not outlive its owner.
pub struct Child {
    name: String,
    process: std::process::Child,
    /// Taken when no more will be sent. Buffered, so that a record is one write.
    input: Option<BufWriter<ChildStdin>>,
    /// Taken by whoever reads it in a thread of its own.
    output: Option<Lines<ChildStdout>>,
    errors: Option<ErrorText>,
    grace: Grace,
    leads_group: bool,
    is_ours: bool,
}

impl Child {
    /// Starts a command with pipes for its standard input and output. Standard error is as the command says; where that is a pipe, the
    /// beginning of what comes is kept for error messages.
    pub fn start(command: &mut Command, grace: Grace) -> Result<Self> {
        Self::heard(command, grace, false)
    }

    /// Like [`Child::start`]; what it writes on standard error is written to ours too.
    pub fn start_aloud(command: &mut Command, grace: Grace) -> Result<Self> {
        Self::heard(command.stderr(Stdio::piped()), grace, true)
    }

    fn heard(command: &mut Command, grace: Grace, is_aloud: bool) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let name =
            Path::new(&program).file_name().map_or_else(|| program.clone(), |name| name.to_string_lossy().into_owned());
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io(format!("starting {program}"), e).fatal())?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::new(Code::Io, format!("starting {name}: no pipes")).fatal());
        };
        let errors = process.stderr.take().map(|stderr| ErrorText::of(stderr, is_aloud));
        let input = Some(BufWriter::with_capacity(64 << 10, stdin));
        let is_ours = name.starts_with("cp-");
        Ok(Self { is_ours, name, process, input, output: Some(Lines::new(stdout)), errors, grace, leads_group: false })
    }

    /// Like [`Child::start`], as the leader of a process group of its own, which is killed whole.
    pub fn start_group(command: &mut Command, grace: Grace) -> Result<Self> {
        let mut child = Self::start(command.process_group(0), grace)?;
        child.leads_group = true;
        Ok(child)
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Calls it something else in messages.
    #[must_use]
    pub fn called(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sends bytes, all of them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(input) = &mut self.input else { return Err(self.gone()) };
        let sent = input.write_all(bytes).and_then(|()| input.flush());
        sent.map_err(|e| match signals::check() {
            Err(interrupted) => interrupted,
            Ok(()) => Error::new(Code::Io, format!("{} takes no more input: {e}", self.name)).fatal(),
        })
    }

    /// Sends bytes and ends its input, from beside the reading: it may answer before it has read all.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut input) = self.input.take() else { return Ok(()) };
        let bytes = bytes.to_vec();
        // What it does not read it did not need; why, it says in its answer.
        let send = move || drop(input.write_all(&bytes).and_then(|()| input.flush()));
        std::thread::Builder::new().spawn(send).map_err(|e| Error::io("starting a thread", e).fatal()).map(drop)
    }

    /// Gives its pipes away, to threads that send and read beside each other: it may neither read what it is sent, nor stop writing. Its
    /// input ends when that is dropped.
    pub fn take_pipes(&mut self) -> Option<(BufWriter<ChildStdin>, Lines<ChildStdout>)> {
        self.input.take().zip(self.output.take())
    }

    /// Waits for its output also after a signal.
    pub(crate) fn outlast_signals(&mut self) {
        if let Some(output) = &mut self.output {
            output.drain_after_signals();
        }
    }

    /// Ends its input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line of its output that is not blank; none at the end.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>> {
        let too_long = || Error::new(Code::Io, format!("{} wrote a line that is too long", self.name)).fatal();
        let Some(output) = &mut self.output else { return Ok(None) };
        // Its end may never come, and whoever waited for a line with a limit must not wait for that.
        if output.is_too_long() {
            return Err(too_long());
        }
        match output.next(&mut || Ok(()))? {
            Next::Line(line) => Ok(Some(output.bytes(&line))),
            Next::TooLong(_) => Err(too_long()),
            Next::End => Ok(None),
        }
    }

    /// Waits for a whole line, or the end, at most so long. True when [`Child::next_line`] will not wait.
    pub fn wait_line(&mut self, limit: Duration) -> Result<bool> {
        self.output.as_mut().map_or(Ok(true), |output| output.wait_line(limit))
    }

    /// Appends what comes next of its output, waited for at most so long. How much it was, 0 at the end; `None` when that was not enough.
    pub fn read_some(&mut self, into: &mut Vec<u8>, limit: Duration) -> Result<Option<usize>> {
        self.output.as_mut().map_or(Ok(Some(0)), |output| output.some(into, limit))
    }

    /// Whether it has not left yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Ends its input, and waits for it to leave by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.close_input();
        self.process.wait().map_err(|e| Error::io(format!("waiting for {}", self.name), e))
    }

    /// The last lines that it wrote on standard error, in one line, at most three: a program says there why it failed.
    pub fn error_text(&self) -> String {
        self.errors.as_ref().map(|errors| errors.last_lines(3)).unwrap_or_default()
    }

    /// The last line that it wrote on standard error and that is not blank.
    pub fn last_error_line(&self) -> Option<String> {
        self.errors.as_ref().map(|errors| errors.last_lines(1)).filter(|line| !line.is_empty())
    }

    /// What its silence means: it has ended, and perhaps said why.
    pub fn gone(&self) -> Error {
        if let Err(interrupted) = signals::check() {
            return interrupted;
        }
        let message = format!("{} ended before it answered", self.name);
        let said = self.error_text();
        Error::new(Code::Io, if said.is_empty() { message } else { format!("{message}: {said}") }).fatal()
    }

    /// Makes it leave, within its grace. It is also stopped when it is dropped.
    pub fn stop(&mut self) {
        self.close_input();
        // Whoever was interrupted does not wait for what was not.
        let asked = if signals::interrupted() { Duration::ZERO } else { self.grace.after_input };
        if !self.leaves_within(asked) {
            self.signal(Signal::TERM);
            let is_brief = signals::interrupted() && !self.is_ours;
            let left = if is_brief { self.grace.after_term.min(BRIEF) } else { self.grace.after_term };
            if !self.leaves_within(left) {
                self.signal(Signal::KILL);
            }
        }
        let _ = self.process.wait();
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) else { return };
        let _ = if self.leads_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }

    fn leaves_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut unread = Vec::new();
        loop {
            if !self.is_running() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            // What it still writes is not wanted, and a full pipe must not keep it.
            unread.clear();
            if !matches!(self.read_some(&mut unread, LOOK), Ok(Some(1..))) {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_running() {
            self.stop();
        }
    }
}

/// What a child writes on standard error: read to the end, the last [`KEPT`] bytes kept.
struct ErrorText {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl ErrorText {
    fn of(mut stderr: ChildStderr, is_aloud: bool) -> Self {
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&kept);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                if is_aloud {
                    let _ = std::io::stderr().write_all(&buffer[..length]);
                }
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..length]);
                let gone = kept.len().saturating_sub(KEPT);
                kept.drain(..gone);
            }
        });
        Self { kept, reader }
    }

    fn last_lines(&self, most: usize) -> String {
        let kept = self.read();
        // A part of a line may be a part of a secret, which nobody would know for one.
        let whole = if kept.len() < KEPT { 0 } else { memchr(b'\n', &kept).map_or(KEPT, |end| end + 1) };
        let text = String::from_utf8_lossy(&kept[whole..]);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines[lines.len().saturating_sub(most)..].join("; ").replace(char::is_control, " ");
        match Redactor::from_environment().cut(&said, SAID / 2, SAID / 2) {
            None => said,
            Some(Cut { head, tail: None }) => head,
            Some(Cut { head, tail: Some((_, tail)) }) => format!("{head}…{tail}"),
        }
    }

    /// What has been read, once the child has closed its standard error or is late with it.
    fn read(&self) -> MutexGuard<'_, Vec<u8>> {
        // The end of standard output is often seen before the end of standard error.
        for _ in 0..50 {
            if self.reader.is_finished() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, grace: Grace) -> Child {
        let mut command = Command::new("/bin/sh");
        Child::start(command.args(["-c", script]).stderr(Stdio::piped()), grace).unwrap()
    }

    #[test]
    fn lines_come_as_they_are_written() {
        let mut child = shell("read line; echo \"got $line\"; sleep 5", Grace::default());
        child.write(b"a\n").unwrap();
        assert_eq!(child.next_line().unwrap(), Some(&b"got a"[..]));
        assert!(!child.wait_line(Duration::from_millis(20)).unwrap());
    }

    #[test]
    fn one_that_ends_says_why() {
        let mut child = shell("echo broken >&2; exit 3", Grace::default());
        assert_eq!(child.next_line().unwrap(), None);
        assert_eq!(child.gone().message(), "sh ended before it answered: broken");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn the_last_lines_of_a_long_error_text_are_kept() {
        let script = "i=0; while [ $i -lt 999 ]; do echo traceback; i=$((i+1)); done >&2; printf 'why\\n\\n' >&2";
        let mut child = shell(script, Grace::default());
        child.wait().unwrap();
        assert_eq!(child.last_error_line().as_deref(), Some("why"));
        assert_eq!(child.error_text(), "traceback; traceback; why");
    }

    #[test]
    fn no_part_of_a_secret_is_in_what_is_left_of_an_error_text() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        // One that lies across the middle of a long line, and one that the kept bytes begin in.
        for (before, after) in [(980, 5000), (0, KEPT - 20)] {
            let line = format!("{} {key} {}", "x".repeat(before), "y".repeat(after));
            let mut child = shell("cat >&2", Grace::default());
            child.feed(format!("{line}\nthe end\n").as_bytes()).unwrap();
            child.wait().unwrap();
            let said = child.error_text();
            assert!(said.ends_with("the end") && !said.contains("a1B2") && said.len() < 2100, "{before}: {said}");
        }
    }

    #[test]
    fn one_that_ignores_sigterm_and_floods_its_output_is_killed() {
        let grace = Grace { after_input: Duration::ZERO, after_term: Duration::from_millis(100) };
        let mut child = shell("trap '' TERM; while :; do echo noise; done", grace);
        assert!(child.next_line().unwrap().is_some());
        let asked = Instant::now();
        child.stop();
        assert!(!child.is_running());
        assert!(asked.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn one_that_leaves_when_its_input_ends_is_not_killed() {
        let grace = Grace { after_input: Duration::from_secs(10), after_term: Duration::ZERO };
        let mut child = shell("while read line; do :; done; exit 7", grace);
        child.stop();
        assert_eq!(child.process.wait().unwrap().code(), Some(7));
    }
}
