//! A running process that a test interacts with: lines in, lines out, signals.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::outcome::Outcome;
use crate::wait::holds_within;

/// A running process. It is killed at the end of the test if it is still running.
///
/// Its output is read only when the test requests it: a process that nobody reads from blocks on its pipe.
pub struct Background {
    child: Child,
    line: String,
    deadline: Instant,
    limit: Duration,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    /// The output so far, and the number of bytes that the test has read.
    output: Vec<u8>,
    seen: usize,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Background {
    pub(crate) fn new(mut child: Child, line: String, limit: Duration) -> Self {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stderr.read_to_end(&mut bytes);
                bytes
            })
        });
        let deadline = Instant::now() + limit;
        Self { child, line, deadline, limit, stdin, stdout, output: Vec::new(), seen: 0, stderr }
    }

    #[track_caller]
    pub(crate) fn with_input(mut self, input: Vec<u8>) -> Self {
        self.write(input);
        self
    }

    /// Writes to its standard input.
    #[track_caller]
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(bytes.as_ref()).and_then(|()| stdin.flush()).expect("it reads its standard input");
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Returns its standard input, for a thread that writes more than a pipe holds.
    #[track_caller]
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("standard input is open")
    }

    /// Stops reading its output, like a reader that exits.
    pub fn close_stdout(&mut self) {
        self.stdout = None;
        // Until its exec, a program that another test starts has a copy of the descriptor.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Returns the next line of its output, without the line feed.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.next_line().unwrap_or_else(|| panic!("the output has ended\n{self:?}"))
    }

    /// Returns the next line as JSON.
    #[track_caller]
    pub fn record(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("not JSON ({e}): {line}\n{self:?}"))
    }

    /// Returns the next line, or `None` at the end of the output.
    #[track_caller]
    pub fn next_line(&mut self) -> Option<String> {
        loop {
            let rest = &self.output[self.seen..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8(rest[..end].to_vec()).expect("the line is text");
                self.seen += end + 1;
                return Some(line);
            }
            if !self.read_more() {
                let rest = String::from_utf8(self.output.split_off(self.seen)).expect("the line is text");
                self.output.extend_from_slice(rest.as_bytes());
                self.seen = self.output.len();
                return (!rest.is_empty()).then_some(rest);
            }
        }
    }

    /// Returns the next `length` bytes, even without a whole line.
    #[track_caller]
    pub fn read(&mut self, length: usize) -> Vec<u8> {
        while self.output.len() < self.seen + length {
            assert!(self.read_more(), "the output has ended\n{self:?}");
        }
        self.seen += length;
        self.output[self.seen - length..self.seen].to_vec()
    }

    /// Returns its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("it is there to get a signal");
    }

    /// True if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its state can be asked for").is_some()
    }

    /// Closes its standard input, reads the rest of its output and waits for its exit.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        self.close_stdin();
        self.wait()
    }

    /// Like [`Self::finish`], but leaves its standard input open.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        while self.read_more() {}
        let left = self.deadline.saturating_duration_since(Instant::now());
        if !holds_within(left, || self.has_ended()) {
            self.give_up();
        }
        let status = self.child.wait().expect("it has ended");
        let stderr = self.stderr.take().map(|stderr| stderr.join().expect("standard error was read"));
        let stdout = std::mem::take(&mut self.output);
        Outcome::new(self.line.clone(), Output { status, stdout, stderr: stderr.unwrap_or_default() })
    }

    /// Kills it, as a crash would, and waits for its end.
    pub fn kill(mut self) {
        self.end_at_once();
    }

    fn end_at_once(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reads available output, or waits for it. Returns false at the end of the output.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        let Some(stdout) = &mut self.stdout else { return false };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let mut ready = [PollFd::new(&*stdout, PollFlags::IN)];
        let left = Timespec::try_from(left).expect("a limit that the kernel can count");
        match rustix::event::poll(&mut ready, Some(&left)) {
            Ok(1..) => {}
            Ok(0) => self.give_up(),
            Err(_) => return true,
        }
        let mut piece = [0; 1 << 13];
        let Some(stdout) = &mut self.stdout else { return false };
        match stdout.read(&mut piece) {
            Ok(0) => {
                self.stdout = None;
                false
            }
            Ok(read) => {
                self.output.extend_from_slice(&piece[..read]);
                true
            }
            Err(e) => panic!("reading its output: {e}\n{self:?}"),
        }
    }

    #[track_caller]
    fn give_up(&mut self) -> ! {
        self.end_at_once();
        panic!("it did not end within {:?}\n{self:?}", self.limit);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end_at_once();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$ {}\nstdout so far:\n{}", self.line, String::from_utf8_lossy(&self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    #[test]
    fn lines_arrive_while_input_is_open() {
        let mut cat = Place::new().program("cat").start();
        for line in ["one", "{\"two\":2}"] {
            cat.write(format!("{line}\n"));
            assert_eq!(cat.line(), line);
        }
        cat.write("three");
        let ran = cat.finish();
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "one\n{\"two\":2}\nthree"));
    }

    #[test]
    fn signal_ends_process_with_its_status() {
        let mut sh = Place::new()
            .program("sh")
            .args(["-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"])
            .start();
        assert_eq!(sh.line(), "ready");
        sh.signal(Signal::TERM);
        assert_eq!(sh.wait().status, 7);
        let sleep = Place::new().program("sleep").arg("600").start();
        sleep.signal(Signal::KILL);
        assert_eq!(sleep.wait().status, 137);
    }

    #[test]
    fn end_of_output_returns_none() {
        let mut echo = Place::new().program("printf").arg("a\nb").start();
        assert_eq!([echo.next_line(), echo.next_line(), echo.next_line()], [Some("a".into()), Some("b".into()), None]);
        assert_eq!(echo.finish().stdout, "a\nb");
    }
}
