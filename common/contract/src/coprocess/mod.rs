//! Parts: programs that run other programs. Found in safe places, started without a shell, spoken to in records.

use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cp_json::words;
use serde::Serialize;

use crate::stream::lines::{Lines, Next};
use crate::wire::record::{Kind, SCHEMA_VERSION};
use crate::wire::{Code, Error, Result};

/// The line that closes the requests.
const CLOSING: &[u8] =
    b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"summary\",\"data\":{},\"meta\":{\"duration_ms\":0}}\n";

/// Where a program is. One of ours (`cp-…`) lies beside the running executable, else on `PATH` in absolute directories that
/// others cannot write. Any other must be named with a `/`.
pub fn find(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if is_executable(&path) { Ok(path) } else { Err(absent(name).hint("name an executable file")) };
    }
    if !name.starts_with("cp-") {
        return Err(Error::usage(format!("`{name}` is not one of the cp-tools"))
            .hint("name a program of your own with a path, such as ./name"));
    }
    let here = std::env::current_exe().and_then(|exe| exe.canonicalize()).ok();
    let beside = here.and_then(|exe| exe.parent().map(|directory| directory.join(name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        std::env::split_paths(&path).filter(|directory| is_safe(directory)).map(|directory| directory.join(name));
    beside
        .into_iter()
        .chain(on_path)
        .find(|path| is_executable(path))
        .ok_or_else(|| absent(name).hint("install the cp-tools together, in one directory"))
}

fn absent(name: &str) -> Error {
    Error::not_found(format!("the program `{name}` was not found"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn is_safe(directory: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    directory.is_absolute()
        && directory.metadata().is_ok_and(|meta| meta.mode() & 0o022 == 0 && (meta.uid() == 0 || meta.uid() == me))
}

/// A command line given as an option, split by the strict tokenizer; its program is looked up.
pub fn command_line(text: &str) -> Result<Vec<String>> {
    let mut argv = words::split(text).map_err(|refusal| Error::usage(format!("`{text}`: {refusal}")))?.argv;
    let program = argv.first_mut().ok_or_else(|| Error::usage("the command is empty"))?;
    *program = find(program)?.display().to_string();
    Ok(argv)
}

/// A program that runs beside this one and answers records with records.
pub struct Part {
    name: String,
    child: Child,
    /// Taken when no more will be sent. Buffered, so that a record is one write.
    requests: Option<BufWriter<ChildStdin>>,
    answers: Lines<ChildStdout>,
}

#[derive(Serialize)]
struct Open<'a, T> {
    ok: bool,
    schema_version: &'static str,
    r#type: &'static str,
    data: &'a T,
}

impl Part {
    /// Starts `argv`, whose first word is a path. Its standard error is ours.
    pub fn start(argv: &[String]) -> Result<Self> {
        let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        let name =
            Path::new(program).file_name().map_or_else(|| program.clone(), |name| name.to_string_lossy().into_owned());
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io(format!("starting {program}"), e).fatal())?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(Code::Io, format!("starting {name}: no pipes")).fatal());
        };
        Ok(Self { name, child, requests: Some(BufWriter::with_capacity(64 << 10, stdin)), answers: Lines::new(stdout) })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends one open record.
    pub fn send<T: Serialize>(&mut self, kind: Kind, data: &T) -> Result<()> {
        let record = Open { ok: true, schema_version: SCHEMA_VERSION, r#type: kind.name(), data };
        let Some(requests) = &mut self.requests else { return Err(self.gone()) };
        let sent = jsonl::write(&mut *requests, &record)
            .map_err(|e| e.to_string())
            .and_then(|()| requests.flush().map_err(|e| e.to_string()));
        sent.map_err(|reason| Error::new(Code::Io, format!("{} takes no more requests: {reason}", self.name)).fatal())
    }

    /// The next line of its answers: an envelope. A part that ends instead is a failure.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        match self.answers.next(&mut || Ok(()))? {
            Next::Line(line) => Ok(self.answers.bytes(&line).to_vec()),
            Next::TooLong(_) => {
                Err(Error::new(Code::Io, format!("{} answered with a line that is too long", self.name)).fatal())
            }
            Next::End => Err(self.gone()),
        }
    }

    /// Waits for a whole answer, at most so long. True when [`Part::receive`] will not wait.
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.answers.wait_line(limit)
    }

    /// Says that no more will be sent, reads its answers to the end, and waits for it to leave.
    pub fn finish(mut self) -> Result<()> {
        if let Some(mut requests) = self.requests.take() {
            // The closing line tells the end from a break. A part that has left already needs none.
            let _ = requests.write_all(CLOSING).and_then(|()| requests.flush());
        }
        while !matches!(self.answers.next(&mut || Ok(()))?, Next::End) {}
        self.child.wait().map_err(|e| Error::io(format!("waiting for {}", self.name), e)).map(|_| ())
    }

    fn gone(&self) -> Error {
        if crate::signals::interrupted() {
            return Error::new(Code::Interrupted, "interrupted by a signal");
        }
        Error::new(Code::Io, format!("{} ended before it answered", self.name)).fatal()
    }
}

impl Drop for Part {
    /// A part never outlives the program that runs it. Its standard input is closed by then; it is asked, then made to go.
    fn drop(&mut self) {
        self.requests = None;
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
