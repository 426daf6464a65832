//! The client: cp-exec inside the sandbox of another cp-exec. The supervisor decides and records; the command runs in
//! the existing sandbox.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::wire::{DeniedStep, ExecResult, raw};
use cp_common::{Code, Error, Result, signals};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use serde_json::json;

pub(crate) use super::clients::{Answer, ClientDecision, Message, ToolCall};
use super::result::{EarlyEnd, FinishedRun, Stream, Watch, failure_of, stream_summary, text, untrusted};
use super::supervise::{DRAIN, Pipe, SIGNAL_POLL};
use crate::request::Form;
use crate::sandbox;
use crate::sandbox::report::Status;

/// The time limit for an answer of the supervisor.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a message to the supervisor and returns the answer.
pub(crate) fn ask(message: &Message) -> Result<Answer> {
    let exchange = || -> io::Result<Answer> {
        let mut stream = sandbox::connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&serde_json::to_vec(message)?)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    };
    match exchange() {
        Ok(Answer::Failed(error)) => Err(Error::from_value(&error)),
        Ok(answer) => Ok(answer),
        Err(e) => Err(Error::io("the supervisor outside of the sandbox does not answer", e)),
    }
}

/// Changes to the directory of a command, because the supervisor decides for the working directory of this process.
pub(crate) fn enter(base: &Path, directory: Option<&str>) -> Result<()> {
    let directory = base.join(directory.unwrap_or_default());
    std::env::set_current_dir(&directory).map_err(|e| Error::io("cwd", e).in_file(&directory))
}

/// Requests a decision.
pub(crate) fn decision(message: &Message) -> Result<ClientDecision> {
    match ask(message)? {
        Answer::ClientDecision(decided) => Ok(*decided),
        _ => Err(Error::new(Code::Unknown, "the supervisor did not answer with a decision")),
    }
}

/// The programs that were refused since the last request, and the error of the first one.
fn report() -> Result<(Vec<DeniedStep>, Option<Error>)> {
    match ask(&Message::Report)? {
        Answer::Report { denied, error } => Ok((denied, error.as_ref().map(Error::from_value))),
        _ => Err(Error::new(Code::Unknown, "the supervisor did not answer with a report")),
    }
}

/// A command that is registered with the supervisor.
pub(crate) struct Requested {
    decided: ClientDecision,
    command: Command,
}

impl Requested {
    /// Registers a command that this process is about to run.
    pub(crate) fn new(form: Form, env: &BTreeMap<String, String>, stdin: Stdio) -> Result<Self> {
        let decided = decision(&Message::Run(form))?;
        let (name, arguments) = decided.argv.split_first().ok_or_else(|| Error::validation("there is no command"))?;
        let mut command = Command::new(&decided.file);
        command.arg0(name).args(arguments).envs(env).stdin(stdin);
        Ok(Self { decided, command })
    }

    /// Replaces this process by the command. Returns only if the command cannot be executed.
    pub(crate) fn replace_process(mut self) -> Error {
        let failed = self.command.exec();
        self.not_started(&failed)
    }

    /// Runs the command until it exits or its time limit ends it.
    pub(crate) fn run(mut self, timeout: Option<Duration>, mut watch: Option<Watch<'_>>) -> Result<FinishedRun> {
        let started = Instant::now();
        let _effect = signals::effect();
        let (out, out_writer) = Pipe::new(Stream::Out)?;
        let (err, err_writer) = Pipe::new(Stream::Err)?;
        self.command.stdout(out_writer).stderr(err_writer).process_group(0);
        let child = self.command.spawn().map_err(|failed| self.not_started(&failed))?;
        // The command holds writers of the pipes, so it is dropped.
        self.command = Command::new("");
        let mut running = Running { child, pipes: [out, err], status: None, ended: None };
        running.follow(timeout.map(|timeout| started + timeout), &mut watch);
        let Running { pipes: [out, err], status, ended, .. } = running;
        let (out, err) = (out.capture.finish(), err.capture.finish());
        let (denied, refusal) = report()?;
        let ClientDecision { argv, line, exe, receipt, .. } = self.decided;
        let name = if line.is_some() { "the line" } else { &argv[0] };
        let status = status.unwrap_or(Status { code: None, signal: Some(9) });
        let failure = failure_of(name, ended, None, status, timeout.unwrap_or_default().as_secs_f64());
        let result = ExecResult {
            stdout: text(&out),
            stderr: text(&err),
            return_code: status.code,
            signal: status.signal,
            timed_out: ended == Some(EarlyEnd::TimedOut),
            truncated: out.gap.is_some() || err.gap.is_some(),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            exe,
            enforcement: raw(&json!({ "nested": true }))?,
            streams: Some(raw(&json!({ "stdout": stream_summary(&out), "stderr": stream_summary(&err) }))?),
            steps: 0,
            untrusted: untrusted(&denied, false, false),
            denied,
            connections: None,
            files_changed: None,
            receipt,
            argv,
        };
        Ok(FinishedRun { result, failure, is_ended: ended.is_some(), refusal })
    }

    /// The error for a command that did not start: its refusal, or the error of the kernel.
    fn not_started(&self, failed: &io::Error) -> Error {
        if failed.kind() == ErrorKind::PermissionDenied
            && let Ok((_, Some(error))) = report()
        {
            return error;
        }
        let code = if failed.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Forbidden };
        Error::new(code, format!("{}: {failed}", self.decided.file.display())).with("rule", "not_executable")
    }
}

/// A running child.
struct Running {
    child: Child,
    pipes: [Pipe; 2],
    status: Option<Status>,
    ended: Option<EarlyEnd>,
}

impl Running {
    fn follow(&mut self, deadline: Option<Instant>, watch: &mut Option<Watch<'_>>) {
        let mut buffer = vec![0; 64 * 1024];
        let mut drained = None;
        loop {
            self.wait(deadline);
            for pipe in &mut self.pipes {
                pipe.read(&mut buffer, watch);
            }
            if self.status.is_none()
                && let Ok(Some(status)) = self.child.try_wait()
            {
                self.status = Some(Status { code: status.code(), signal: status.signal() });
                drained = Some(Instant::now() + DRAIN);
            }
            let now = Instant::now();
            let is_over = |at: Option<Instant>| at.is_some_and(|at| now >= at);
            if self.status.is_none() && self.ended.is_none() && (signals::interrupted() || is_over(deadline)) {
                self.ended = Some(if signals::interrupted() { EarlyEnd::Interrupted } else { EarlyEnd::TimedOut });
                self.kill();
            }
            let is_closed = self.pipes.iter().all(|pipe| pipe.source.is_none());
            if self.status.is_some() && (is_closed || is_over(drained)) {
                // Processes that outlive the command are killed, as outside of the sandbox.
                self.kill();
                return;
            }
        }
    }

    fn wait(&self, deadline: Option<Instant>) {
        let sources = self.pipes.iter().filter_map(|pipe| pipe.source.as_ref());
        let mut fds: Vec<_> = sources.map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN)).collect();
        let left = deadline.map_or(SIGNAL_POLL, |at| at.saturating_duration_since(Instant::now()).min(SIGNAL_POLL));
        // The end of a child without open pipes does not wake the poll.
        let left = if fds.is_empty() { left.min(Duration::from_millis(2)) } else { left };
        let _ = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() }));
    }

    fn kill(&self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}
