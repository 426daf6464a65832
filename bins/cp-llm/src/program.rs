//! Backends that are programs: any executable that answers `prompt` records with `message` records.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Content, Delta, Message, Params, Prompt};
use cp_common::{Code, Error, Result, signals};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde_json::Value;

use crate::wire::{Answer, Ask, Call, Tokens, bad_answer, cut};

/// How long a program that was asked to leave may take.
const LEAVE: Duration = Duration::from_secs(1);

/// An executable that speaks records. It is started when it is first asked, and kept.
pub(crate) struct Speaker {
    path: PathBuf,
    limit: Duration,
    idle: Mutex<Vec<Running>>,
}

impl Speaker {
    /// The executable at a path. Each answer may take so long.
    pub(crate) fn at(name: &str, limit: Duration) -> Result<Self> {
        let path = cp_common::coprocess::find(name).map_err(Error::fatal)?;
        Ok(Self { path, limit, idle: Mutex::default() })
    }

    /// Asks it.
    pub(crate) fn answer(&self, ask: &Ask, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<Answer> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut running = match kept {
            Some(running) => running,
            None => Running::start(Command::new(&self.path))?,
        };
        let prompt = Prompt {
            system: Some(ask.system.clone()).filter(|system| !system.is_empty()),
            messages: ask.messages.clone(),
            tools: ask.tools.clone(),
            model: Some(ask.model.clone()),
            params: params_of(ask),
            ..Prompt::default()
        };
        let answer = running.exchange(&prompt, Instant::now() + self.limit, show)?;
        // Only one that answered in full can be asked again.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(running);
        Ok(answer)
    }
}

fn params_of(ask: &Ask) -> Params {
    serde_json::from_value(Value::Object(ask.params.clone())).unwrap_or_default()
}

#[derive(Serialize)]
struct Open<'a> {
    ok: bool,
    schema_version: &'static str,
    r#type: &'static str,
    data: &'a Prompt,
}

/// A child process and what it has written. It does not outlive its owner.
pub(crate) struct Running {
    /// The process.
    pub child: Child,
    stdout: ChildStdout,
    /// What it has written, and nobody took.
    pub buffer: Vec<u8>,
}

impl Running {
    /// Starts it, with pipes for its standard input and output.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|e| Error::io(format!("starting {name}"), e).fatal())?;
        let stdout =
            child.stdout.take().ok_or_else(|| Error::new(Code::Io, format!("starting {name}: no pipe")).fatal())?;
        Ok(Self { child, stdout, buffer: Vec::new() })
    }

    fn exchange(&mut self, prompt: &Prompt, end: Instant, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<Answer> {
        let open = Open { ok: true, schema_version: "1.0", r#type: Kind::Prompt.name(), data: prompt };
        let mut line =
            serde_json::to_vec(&open).map_err(|e| Error::new(Code::Unknown, format!("encoding a prompt: {e}")))?;
        line.push(b'\n');
        let written = self.child.stdin.as_mut().map(|stdin| stdin.write_all(&line).and_then(|()| stdin.flush()));
        if !matches!(written, Some(Ok(()))) {
            return Err(cut());
        }
        loop {
            let Some(line) = self.line(end)? else { return Err(cut()) };
            let record = Record::parse(&line).map_err(|e| bad_answer("invalid_json", e.message()))?;
            if !record.ok {
                return Err(failure_of(&record));
            }
            match record.kind {
                Some(Kind::Delta) => show(&record.read::<Delta>()?.text)?,
                Some(Kind::Message) => return answer_of(record.read()?),
                _ => {}
            }
        }
    }

    /// The next line; nothing at the end.
    fn line(&mut self, end: Instant) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer) {
                let rest = self.buffer.split_off(at + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.more(end)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits for more and returns how much came; nothing at the end.
    pub(crate) fn more(&mut self, end: Instant) -> Result<usize> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !signals::wait_readable(self.stdout.as_fd(), Some(left))? {
            return Err(Error::new(Code::Timeout, "the program did not answer in time")
                .hint("--timeout allows for longer answers"));
        }
        let from = self.buffer.len();
        self.buffer.resize(from + (16 << 10), 0);
        let read = self.stdout.read(&mut self.buffer[from..]);
        self.buffer.truncate(from + *read.as_ref().unwrap_or(&0));
        Ok(read?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + if signals::interrupted() { Duration::ZERO } else { LEAVE };
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn failure_of(record: &Record<'_>) -> Error {
    let error: Value = record.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default();
    let message = error["message"].as_str().unwrap_or("the program failed");
    let mut failure = Error::new(record.code(), message);
    for (name, value) in error["details"].as_object().into_iter().flatten().filter(|(name, _)| *name != "index") {
        failure = failure.with(name, value.clone());
    }
    failure
}

fn answer_of(message: Message) -> Result<Answer> {
    let others = match &message.content {
        Content::Text(_) => Vec::new(),
        Content::Blocks(blocks) => {
            blocks.iter().filter_map(|block| serde_json::from_str(block.raw().get()).ok()).collect()
        }
    };
    let usage = message.usage;
    let answer = Answer {
        id: Some(message.id),
        model: Some(message.model),
        text: message.content.text(),
        others: others.into_iter().filter(|block: &Value| block["type"] != "text").collect(),
        calls: message
            .tool_calls
            .into_iter()
            .map(|call| Call { id: call.id, name: call.name, input: call.input })
            .collect(),
        stop: message.stop_reason,
        usage: Some(Tokens {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
        }),
    };
    answer.checked()
}
