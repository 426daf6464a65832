//! A command inside the sandbox of another cp-exec. It is executed in the existing sandbox: the supervisor outside
//! decides about each program when it starts, and records it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::exec_result::{ExecResult, Executable};
use cp_common::wire::raw;
use cp_common::{Code, Error, Result, signals};
use rustix::event::Timespec;
use rustix::process::{Pid, Signal};
use serde_json::json;

use super::result::{EarlyEnd, FinishedRun, failure_of, stream_summary, text, untrusted};
use super::streams::{Output, Watch};
use super::supervise::{DRAIN, SIGNAL_POLL};
use crate::decision::shell_words;
use crate::request::Form;
use crate::sandbox::report::Status;

/// The value of `~` inside.
pub(crate) fn home() -> String {
    std::env::var("HOME").unwrap_or_default()
}

/// The arguments of a command, and the program that is executed.
pub(crate) fn words_of(form: Form) -> Result<(Vec<String>, std::path::PathBuf)> {
    let argv = match form {
        Form::Line(line) => return shell_words(&line).map(|(shell, argv)| (argv, shell)),
        Form::Words(argv) => argv,
    };
    let program = argv.first().ok_or_else(|| Error::validation("there is no command"))?.into();
    Ok((argv, program))
}

/// A command that is about to start.
pub(crate) struct Inside {
    argv: Vec<String>,
    /// What messages call it.
    name: String,
    command: Command,
}

impl Inside {
    /// A command for the working directory of this process.
    pub(crate) fn new(form: Form, env: &BTreeMap<String, String>, stdin: Stdio) -> Result<Self> {
        let is_line = matches!(form, Form::Line(_));
        let (argv, program) = words_of(form)?;
        let mut command = Command::new(program);
        command.arg0(&argv[0]).args(&argv[1..]).envs(env).stdin(stdin);
        let name = if is_line { "the line".to_owned() } else { argv[0].clone() };
        Ok(Self { argv, name, command })
    }

    /// Replaces this process by the command. Returns only if the command cannot be executed.
    pub(crate) fn replace_process(mut self) -> Error {
        let failed = self.command.exec();
        not_started(self.command.get_program(), &failed, "")
    }

    /// Runs the command until it exits or its time limit ends it.
    pub(crate) fn run(mut self, timeout: Option<Duration>, watch: Option<Watch<'_>>) -> Result<FinishedRun> {
        let started = Instant::now();
        let _effect = signals::effect();
        let (mut output, [out_writer, err_writer]) = Output::new(watch)?;
        self.command.stdout(out_writer).stderr(err_writer).process_group(0);
        let program = self.command.get_program().to_owned();
        let child = self.command.spawn();
        // The command holds writers of the pipes, so it is dropped.
        drop(self.command);
        let child = child.map_err(|failed| {
            // The supervisor writes the reason of a refusal where the program would have written.
            output.read();
            not_started(&program, &failed, &String::from_utf8_lossy(&output.end_of_errors()))
        })?;
        let mut running = Running { child, output, status: None, ended: None };
        running.follow(timeout.map(|timeout| started + timeout));
        let Running { output, status, ended, .. } = running;
        let [out, err] = output.finish();
        let status = status.unwrap_or(Status { code: None, signal: Some(9) });
        let failure = failure_of(&self.name, ended, None, status, timeout.unwrap_or_default().as_secs_f64());
        let result = ExecResult {
            stdout: text(&out),
            stderr: text(&err),
            return_code: status.code,
            signal: status.signal,
            timed_out: ended == Some(EarlyEnd::TimedOut),
            truncated: out.gap.is_some() || err.gap.is_some(),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            exe: Executable { path: program.to_string_lossy().into_owned(), sha256: String::new() },
            enforcement: raw(&json!({ "nested": true }))?,
            streams: Some(raw(&json!({ "stdout": stream_summary(&out), "stderr": stream_summary(&err) }))?),
            steps: 0,
            untrusted: untrusted(&[], false, false),
            denied: Vec::new(),
            connections: None,
            files_changed: None,
            receipt: None,
            argv: self.argv,
        };
        Ok(FinishedRun { result, failure, is_ended: ended.is_some(), refusal: None })
    }
}

/// The error for a command that did not start, with what the supervisor said about it.
fn not_started(program: &OsStr, failed: &io::Error, said: &str) -> Error {
    let code = if failed.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Forbidden };
    let said = said.trim().strip_prefix("cp-exec: ").unwrap_or_default();
    let message = if said.is_empty() { format!("{}: {failed}", program.display()) } else { said.to_owned() };
    Error::new(code, message).with("rule", "not_executable")
}

/// A running child.
struct Running<'a> {
    child: Child,
    output: Output<'a>,
    status: Option<Status>,
    ended: Option<EarlyEnd>,
}

impl Running<'_> {
    fn follow(&mut self, deadline: Option<Instant>) {
        let mut drained = None;
        loop {
            self.wait(deadline);
            self.output.read();
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
            if self.status.is_some() && (self.output.is_closed() || is_over(drained)) {
                // Processes that outlive the command are killed, as outside of the sandbox.
                self.kill();
                return;
            }
        }
    }

    fn wait(&self, deadline: Option<Instant>) {
        let mut fds: Vec<_> = self.output.sources().collect();
        let left = deadline.map_or(SIGNAL_POLL, |at| at.saturating_duration_since(Instant::now()).min(SIGNAL_POLL));
        // The end of a child without open pipes does not wake the poll.
        let left = if fds.is_empty() { left.min(Duration::from_millis(2)) } else { left };
        let _ = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() }));
    }

    fn kill(&self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}
