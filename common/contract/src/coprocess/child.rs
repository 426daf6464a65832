//! A child process and its pipes. Dropping the owner always stops it: its input ends, then SIGTERM, then SIGKILL.

use std::io::{BufWriter, Read as _, Write as _};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cp_redact::{Cut, Redactor};
use duct::{Expression, Handle};
use memchr::memchr;
use os_pipe::{PipeReader, PipeWriter};
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use serde::Serialize;
use serde_json::Map;

use crate::signals;
use crate::stream::lines::Lines;
use crate::wire::record::{Kind, Record, closed_line, open_line};
use crate::wire::{Code, Error, Result};

/// Number of bytes kept from the end of a child's standard error, usually whole lines.
const ERROR_TEXT_LIMIT: usize = 64 << 10;
/// Maximum length of its excerpt in an error message, in bytes.
const EXCERPT_LIMIT: usize = 2000;
/// Time for a foreign program to exit after SIGTERM while this process is being ended. Programs of this suite get their
/// full grace to finish their work.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// Interval at which the wait for an exit checks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// The lines that a child writes.
pub type Output = Lines<PipeReader>;

/// What becomes of a child's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stderr {
    /// It goes where its command says; by default to our own standard error.
    AsGiven,
    /// Its end is kept for error messages.
    Kept,
    /// Kept, and copied to ours.
    Copied,
}

/// How a child is started and stopped.
#[derive(Clone, Copy, Debug)]
pub struct ChildOptions {
    /// Time to exit after the end of its standard input. Zero if only SIGTERM stops it.
    pub after_input: Duration,
    /// Time to exit after SIGTERM, before it is killed.
    pub after_term: Duration,
    /// What becomes of its standard error.
    pub stderr: Stderr,
}

impl ChildOptions {
    /// A short grace, and standard error as the command says.
    pub const DEFAULT: Self =
        Self { after_input: Duration::from_millis(200), after_term: Duration::from_secs(2), stderr: Stderr::AsGiven };
}

/// A child process that does not outlive its owner.
pub struct Child {
    name: String,
    process: Handle,
    /// `None` after the input was closed. Buffered, so that a record is one write.
    input: Option<BufWriter<PipeWriter>>,
    /// `None` after another thread took it.
    output: Option<Output>,
    errors: Option<ErrorText>,
    options: ChildOptions,
}

impl Child {
    /// Starts a command with pipes for its standard input and output. Messages call it `name`; the name of a program of
    /// this suite begins with `cp-`.
    pub fn start(name: &str, command: &Expression, options: ChildOptions) -> Result<Self> {
        let failed = |e| Error::io(format!("starting {name}"), e).fatal();
        let pipe = || os_pipe::pipe().map_err(failed);
        let ((stdin, input), (output, stdout)) = (pipe()?, pipe()?);
        let mut command = command.stdin_file(stdin).stdout_file(stdout).unchecked();
        let errors = if options.stderr == Stderr::AsGiven {
            None
        } else {
            let (stderr, writer) = pipe()?;
            command = command.stderr_file(writer);
            Some(ErrorText::of(stderr, options.stderr == Stderr::Copied))
        };
        let process = command.start().map_err(failed)?;
        let input = Some(BufWriter::with_capacity(64 << 10, input));
        Ok(Self { name: name.to_owned(), process, input, output: Some(Lines::new(output)), errors, options })
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.name
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
    pub fn take_pipes(&mut self) -> Option<(BufWriter<PipeWriter>, Output)> {
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

    /// Waits at most `limit` for a whole line or the end. Returns true if [`Child::next_line`] will not block. Without any
    /// time left it is false, because a child that never stops writing would defer the end of its time.
    pub fn wait_line(&mut self, limit: Duration) -> Result<bool> {
        match &mut self.output {
            Some(_) if limit.is_zero() => Ok(false),
            output => output.as_mut().map_or(Ok(true), |output| output.wait_line(limit)),
        }
    }

    /// Closes its input and waits until it has exited, at most until `until`; `None` after that. Returns the exit status
    /// and the output, which `show` gets whenever it has grown. A signal is an error even if it also ended the child,
    /// because a key that interrupts reaches every process of the terminal.
    pub fn output(
        &mut self,
        until: Option<Instant>,
        show: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<(ExitStatus, Vec<u8>)>> {
        self.close_input();
        let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let mut bytes = Vec::new();
        while let Some(output) = &mut self.output {
            match output.some(&mut bytes, left())? {
                None => return Ok(None),
                Some(0) => break,
                Some(_) => show(&bytes)?,
            }
        }
        while !self.leaves_within(left().min(LOOK)) {
            signals::check()?;
            if left().is_zero() {
                return Ok(None);
            }
        }
        signals::check()?;
        Ok(Some((self.wait()?, bytes)))
    }

    /// Sends an open record.
    pub fn send<T: Serialize + ?Sized>(&mut self, kind: &str, data: &T) -> Result<()> {
        self.write(&open_line(kind, data)?)
    }

    /// Receives the next record and passes it to `take`. A record that reports a failure, and the end of its output,
    /// are errors.
    pub fn receive<T>(&mut self, take: impl FnOnce(&str, &Record<'_>) -> Result<T>) -> Result<T> {
        let name = self.name.clone();
        let Some(line) = self.next_line()? else { return Err(self.gone()) };
        let record = Record::parse(line).map_err(|e| {
            Error::new(Code::Io, format!("{name} answered with a line that is not a record: {}", e.message())).fatal()
        })?;
        if record.ok { take(&name, &record) } else { Err(failure(&name, &record)) }
    }

    /// Sends the closing record and closes the input, so that the child can distinguish the end from a broken pipe.
    /// Errors are ignored, because it may have exited already.
    pub fn end_input(&mut self) {
        if let Ok(line) = closed_line(Kind::Summary.name(), &Map::new()) {
            let _ = self.write(&line);
        }
        self.close_input();
    }

    /// Ends its input with a closing record, reads its answers to the end, and waits for it to exit.
    pub fn finish(mut self) -> Result<()> {
        self.end_input();
        while self.next_line()?.is_some() {}
        self.wait().map(drop)
    }

    /// True if it has not exited.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Closes its input and waits for it to exit by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.close_input();
        let ended = self.process.wait().map(|output| output.status);
        ended.map_err(|e| Error::io(format!("waiting for {}", self.name), e))
    }

    /// Returns the last lines of its standard error, at most three, joined to one line, because programs report
    /// failures there.
    pub fn error_text(&self) -> String {
        self.errors.as_ref().map(ErrorText::last_lines).unwrap_or_default()
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
        // Without a reader, a full pipe does not block it.
        self.output = None;
        let ChildOptions { after_input, after_term, .. } = self.options;
        let is_brief = signals::interrupted();
        // After an interruption there is no time for the input grace.
        if !self.leaves_within(if is_brief { Duration::ZERO } else { after_input }) {
            self.signal(Signal::TERM);
            let is_brief = is_brief && !self.name.starts_with("cp-");
            if !self.leaves_within(if is_brief { after_term.min(SHORT_GRACE) } else { after_term }) {
                self.signal(Signal::KILL);
            }
        }
        let _ = self.process.wait();
    }

    /// Signals it, with its whole process group if it leads one.
    fn signal(&self, signal: Signal) {
        let pids = self.process.pids().into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        for pid in pids {
            let leads_group = getpgid(Some(pid)) == Ok(pid);
            let _ = if leads_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        }
    }

    fn leaves_within(&self, limit: Duration) -> bool {
        !matches!(self.process.wait_timeout(limit), Ok(None))
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
    fn of(mut stderr: PipeReader, copies_stderr: bool) -> Self {
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

    fn last_lines(&self) -> String {
        let kept = self.read();
        // A partial line may contain a part of a secret that cannot be recognized.
        let whole = if kept.len() < ERROR_TEXT_LIMIT {
            0
        } else {
            memchr(b'\n', &kept).map_or(ERROR_TEXT_LIMIT, |end| end + 1)
        };
        let text = String::from_utf8_lossy(&kept[whole..]);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines[lines.len().saturating_sub(3)..].join("; ").replace(char::is_control, " ");
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
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a failure that a part reports to an error with its code, message, hint and details, and the part's name. A
/// failure that closes the stream is fatal.
pub fn failure(part: &str, record: &Record<'_>) -> Error {
    let error = record.failure().with_absent("part", part);
    if record.closed { error.fatal() } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, after_input: u64, after_term: u64) -> Child {
        let [after_input, after_term] = [after_input, after_term].map(Duration::from_millis);
        let options = ChildOptions { after_input, after_term, stderr: Stderr::Kept };
        Child::start("sh", &duct::cmd("/bin/sh", ["-c", script]), options).unwrap()
    }

    #[test]
    fn child_lines_arrive_as_written() {
        let mut child = shell("read line; echo \"got $line\"; sleep 5", 200, 2000);
        child.write(b"a\n").unwrap();
        assert_eq!(child.next_line().unwrap(), Some(&b"got a"[..]));
        assert!(!child.wait_line(Duration::from_millis(20)).unwrap());
    }

    #[test]
    fn child_that_never_stops_writing_has_lines_only_until_the_end_of_its_time() {
        let mut child = shell("exec yes a", 200, 2000);
        let end = Instant::now() + Duration::from_millis(100);
        while child.wait_line(end.saturating_duration_since(Instant::now())).unwrap() {
            assert_eq!(child.next_line().unwrap(), Some(&b"a"[..]));
        }
        assert!(child.wait_line(Duration::from_secs(5)).unwrap());
    }

    #[test]
    fn exited_child_error_includes_stderr() {
        let mut child = shell("echo broken >&2; exit 3", 200, 2000);
        assert_eq!(child.next_line().unwrap(), None);
        assert_eq!(child.gone().message(), "sh ended before it answered: broken");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn error_text_keeps_last_lines() {
        let script = "i=0; while [ $i -lt 999 ]; do echo traceback; i=$((i+1)); done >&2; printf 'why\\n\\n' >&2";
        let mut child = shell(script, 200, 2000);
        child.wait().unwrap();
        assert_eq!(child.error_text(), "traceback; traceback; why");
    }

    #[test]
    fn error_text_contains_no_part_of_a_secret() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        // A secret across the middle of a long line, and one at which the kept bytes begin.
        for (before, after) in [(980, 5000), (0, ERROR_TEXT_LIMIT - 20)] {
            let line = format!("{} {key} {}", "x".repeat(before), "y".repeat(after));
            let mut child = shell("cat >&2", 200, 2000);
            child.feed(format!("{line}\nthe end\n").as_bytes()).unwrap();
            child.wait().unwrap();
            let said = child.error_text();
            assert!(said.ends_with("the end") && !said.contains("a1B2") && said.len() < 2100, "{before}: {said}");
        }
    }

    #[test]
    fn child_that_ignores_sigterm_and_floods_output_is_killed() {
        let mut child = shell("trap '' TERM; while :; do echo noise; done", 0, 100);
        assert!(child.next_line().unwrap().is_some());
        let asked = Instant::now();
        child.stop();
        assert!(!child.is_running());
        assert!(asked.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn child_that_exits_at_end_of_input_is_not_killed() {
        let mut child = shell("while read line; do :; done; exit 7", 10_000, 0);
        child.stop();
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}
