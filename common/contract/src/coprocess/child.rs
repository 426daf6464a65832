//! A child process and its pipes. Dropping the owner always stops it: its input ends, then SIGTERM, then SIGKILL.

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
use crate::stream::lines::Lines;
use crate::wire::{Code, Error, Result};

/// Number of bytes kept from the end of a child's standard error, usually whole lines.
const ERROR_TEXT_LIMIT: usize = 64 << 10;
/// Maximum length of its excerpt in an error message, in bytes.
const EXCERPT_LIMIT: usize = 2000;
/// Time for a foreign program to exit after SIGTERM while this process is being ended. Programs of this suite get their
/// full grace to finish their work.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// Interval at which waits check for a child's exit.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time for a child to exit before it is forced to.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// After the end of its standard input. Zero if only SIGTERM stops it.
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
    /// `None` after the input was closed. Buffered, so that a record is one write.
    input: Option<BufWriter<ChildStdin>>,
    /// `None` after another thread took it.
    output: Option<Lines<ChildStdout>>,
    errors: Option<ErrorText>,
    grace: Grace,
    leads_group: bool,
    is_ours: bool,
}

impl Child {
    /// Starts a command with pipes for its standard input and output. If standard error is a pipe, its end is kept for
    /// error messages.
    pub fn start(command: &mut Command, grace: Grace) -> Result<Self> {
        Self::start_with_stderr(command, grace, false)
    }

    /// Like [`Child::start`], and copies its standard error to ours.
    pub fn start_aloud(command: &mut Command, grace: Grace) -> Result<Self> {
        Self::start_with_stderr(command.stderr(Stdio::piped()), grace, true)
    }

    fn start_with_stderr(command: &mut Command, grace: Grace, copies_stderr: bool) -> Result<Self> {
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
        let errors = process.stderr.take().map(|stderr| ErrorText::of(stderr, copies_stderr));
        let input = Some(BufWriter::with_capacity(64 << 10, stdin));
        let is_ours = name.starts_with("cp-");
        Ok(Self { is_ours, name, process, input, output: Some(Lines::new(stdout)), errors, grace, leads_group: false })
    }

    /// Like [`Child::start`], as the leader of a new process group; stopping it kills the whole group.
    pub fn start_group(command: &mut Command, grace: Grace) -> Result<Self> {
        let mut child = Self::start(command.process_group(0), grace)?;
        child.leads_group = true;
        Ok(child)
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets its name in messages.
    #[must_use]
    pub fn called(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Writes all bytes to its input.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(input) = &mut self.input else { return Err(self.gone()) };
        let sent = input.write_all(bytes).and_then(|()| input.flush());
        sent.map_err(|e| match signals::check() {
            Err(interrupted) => interrupted,
            Ok(()) => Error::new(Code::Io, format!("{} accepts no more input: {e}", self.name)).fatal(),
        })
    }

    /// Writes bytes and closes its input in another thread, because the child may answer before it has read everything.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut input) = self.input.take() else { return Ok(()) };
        let bytes = bytes.to_vec();
        // A write error is ignored: the child did not need the rest, and its answer reports failures.
        let send = move || drop(input.write_all(&bytes).and_then(|()| input.flush()));
        std::thread::Builder::new().spawn(send).map_err(|e| Error::io("starting a thread", e).fatal()).map(drop)
    }

    /// Returns its pipes, for threads that write and read concurrently. Its input ends when the writer is dropped.
    pub fn take_pipes(&mut self) -> Option<(BufWriter<ChildStdin>, Lines<ChildStdout>)> {
        self.input.take().zip(self.output.take())
    }

    /// Waits for its output even after a signal.
    pub(crate) fn outlast_signals(&mut self) {
        if let Some(output) = &mut self.output {
            output.drain_after_signals();
        }
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Returns the next line of its output that is not blank; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>> {
        let too_long = || Error::new(Code::Io, format!("{} wrote a line that is too long", self.name)).fatal();
        let Some(output) = &mut self.output else { return Ok(None) };
        // The end of an overlong line may never come, so a caller that waited with a limit must not wait for it.
        if output.is_too_long() {
            return Err(too_long());
        }
        let Some(line) = output.next(&mut || Ok(()))? else { return Ok(None) };
        output.bytes(&line).map(Some).map_err(|_| too_long())
    }

    /// Waits at most `limit` for a whole line or the end. Returns true if [`Child::next_line`] will not block.
    pub fn wait_line(&mut self, limit: Duration) -> Result<bool> {
        self.output.as_mut().map_or(Ok(true), |output| output.wait_line(limit))
    }

    /// Appends its next output, waiting at most `limit`. Returns the number of bytes, 0 at the end; `None` if the limit
    /// was reached.
    pub fn read_some(&mut self, into: &mut Vec<u8>, limit: Duration) -> Result<Option<usize>> {
        self.output.as_mut().map_or(Ok(Some(0)), |output| output.some(into, limit))
    }

    /// True if it has not exited.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Closes its input and waits for it to exit by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.close_input();
        self.process.wait().map_err(|e| Error::io(format!("waiting for {}", self.name), e))
    }

    /// Returns the last lines of its standard error, at most three, joined to one line, because programs report
    /// failures there.
    pub fn error_text(&self) -> String {
        self.errors.as_ref().map(|errors| errors.last_lines(3)).unwrap_or_default()
    }

    /// Returns the last line of its standard error that is not blank.
    pub fn last_error_line(&self) -> Option<String> {
        self.errors.as_ref().map(|errors| errors.last_lines(1)).filter(|line| !line.is_empty())
    }

    /// Makes the error for a child that exited without an answer, with its standard error.
    pub fn gone(&self) -> Error {
        if let Err(interrupted) = signals::check() {
            return interrupted;
        }
        let message = format!("{} ended before it answered", self.name);
        let said = self.error_text();
        Error::new(Code::Io, if said.is_empty() { message } else { format!("{message}: {said}") }).fatal()
    }

    /// Stops it within its grace. Dropping it stops it too.
    pub fn stop(&mut self) {
        self.close_input();
        // After an interruption there is no time for the input grace.
        let asked = if signals::interrupted() { Duration::ZERO } else { self.grace.after_input };
        if !self.leaves_within(asked) {
            self.signal(Signal::TERM);
            let is_brief = signals::interrupted() && !self.is_ours;
            let left = if is_brief { self.grace.after_term.min(SHORT_GRACE) } else { self.grace.after_term };
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
            // Its remaining output is discarded, so that a full pipe does not block it.
            unread.clear();
            if !matches!(self.read_some(&mut unread, POLL_INTERVAL), Ok(Some(1..))) {
                std::thread::sleep(POLL_INTERVAL);
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

/// The end of a child's standard error, at most [`ERROR_TEXT_LIMIT`] bytes; a thread reads it to the end.
struct ErrorText {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl ErrorText {
    fn of(mut stderr: ChildStderr, copies_stderr: bool) -> Self {
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&kept);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                if copies_stderr {
                    let _ = std::io::stderr().write_all(&buffer[..length]);
                }
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..length]);
                let gone = kept.len().saturating_sub(ERROR_TEXT_LIMIT);
                kept.drain(..gone);
            }
        });
        Self { kept, reader }
    }

    fn last_lines(&self, most: usize) -> String {
        let kept = self.read();
        // A partial line may contain a part of a secret that cannot be recognized.
        let whole = if kept.len() < ERROR_TEXT_LIMIT {
            0
        } else {
            memchr(b'\n', &kept).map_or(ERROR_TEXT_LIMIT, |end| end + 1)
        };
        let text = String::from_utf8_lossy(&kept[whole..]);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines[lines.len().saturating_sub(most)..].join("; ").replace(char::is_control, " ");
        match Redactor::from_environment().cut(&said, EXCERPT_LIMIT / 2, EXCERPT_LIMIT / 2) {
            None => said,
            Some(Cut { head, tail: None }) => head,
            Some(Cut { head, tail: Some((_, tail)) }) => format!("{head}…{tail}"),
        }
    }

    /// Returns the bytes read so far, after the end of standard error or a short wait for it.
    fn read(&self) -> MutexGuard<'_, Vec<u8>> {
        // The end of standard output often arrives before the end of standard error.
        for _ in 0..50 {
            if self.reader.is_finished() {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
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
    fn child_lines_arrive_as_written() {
        let mut child = shell("read line; echo \"got $line\"; sleep 5", Grace::default());
        child.write(b"a\n").unwrap();
        assert_eq!(child.next_line().unwrap(), Some(&b"got a"[..]));
        assert!(!child.wait_line(Duration::from_millis(20)).unwrap());
    }

    #[test]
    fn exited_child_error_includes_stderr() {
        let mut child = shell("echo broken >&2; exit 3", Grace::default());
        assert_eq!(child.next_line().unwrap(), None);
        assert_eq!(child.gone().message(), "sh ended before it answered: broken");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn error_text_keeps_last_lines() {
        let script = "i=0; while [ $i -lt 999 ]; do echo traceback; i=$((i+1)); done >&2; printf 'why\\n\\n' >&2";
        let mut child = shell(script, Grace::default());
        child.wait().unwrap();
        assert_eq!(child.last_error_line().as_deref(), Some("why"));
        assert_eq!(child.error_text(), "traceback; traceback; why");
    }

    #[test]
    fn error_text_contains_no_part_of_a_secret() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        // A secret across the middle of a long line, and one at which the kept bytes begin.
        for (before, after) in [(980, 5000), (0, ERROR_TEXT_LIMIT - 20)] {
            let line = format!("{} {key} {}", "x".repeat(before), "y".repeat(after));
            let mut child = shell("cat >&2", Grace::default());
            child.feed(format!("{line}\nthe end\n").as_bytes()).unwrap();
            child.wait().unwrap();
            let said = child.error_text();
            assert!(said.ends_with("the end") && !said.contains("a1B2") && said.len() < 2100, "{before}: {said}");
        }
    }

    #[test]
    fn child_that_ignores_sigterm_and_floods_output_is_killed() {
        let grace = Grace { after_input: Duration::ZERO, after_term: Duration::from_millis(100) };
        let mut child = shell("trap '' TERM; while :; do echo noise; done", grace);
        assert!(child.next_line().unwrap().is_some());
        let asked = Instant::now();
        child.stop();
        assert!(!child.is_running());
        assert!(asked.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn child_that_exits_at_end_of_input_is_not_killed() {
        let grace = Grace { after_input: Duration::from_secs(10), after_term: Duration::ZERO };
        let mut child = shell("while read line; do :; done; exit 7", grace);
        child.stop();
        assert_eq!(child.process.wait().unwrap().code(), Some(7));
    }
}
