//! The programs that run calls: cp-exec as idle coprocesses, and programs that are started once.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cp_common::coprocess::{Child, Grace, Part, find};
use cp_common::wire::ToolCall;
use cp_common::wire::record::{Kind, Record};
use cp_common::{Context, Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// How often a wait checks for a cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// True if a call was cancelled.
pub(super) type Stop = AtomicBool;

/// The verb of a coprocess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Run the call.
    Do,
    /// Decide about the call.
    Check,
}

/// An idle coprocess, and the policy that it has read.
struct Warm {
    verb: Verb,
    policy: Stamp,
    part: Part,
}

/// The identity of a file's content; `None` without a file.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The idle coprocesses, and the options of all programs.
pub(super) struct Executor {
    idle: Mutex<Vec<Warm>>,
    flags: Vec<OsString>,
    /// The client, for `--hosted` of cp-exec.
    hosted: String,
    policy: PathBuf,
}

impl Executor {
    /// An executor in this context. The first call starts the first coprocess.
    pub(super) fn new(context: &Context, hosted: String) -> Self {
        let mut flags = context.handed_on();
        if !context.options.quiet {
            flags.push("--quiet".into());
        }
        Self { idle: Mutex::default(), flags, hosted, policy: context.home.policy_file() }
    }

    /// Runs a call by a coprocess; `None` if it was cancelled, after its processes were killed.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        verb: Verb,
        call: &ToolCall,
        stop: &Stop,
        looked: &mut dyn FnMut(),
    ) -> Result<Option<T>> {
        let mut warm = self.warm(verb)?;
        warm.part.send(Kind::ToolCall, call)?;
        while !warm.part.wait(LOOK)? {
            looked();
            if stop.load(Relaxed) {
                return Ok(None);
            }
        }
        let outcome = warm.part.receive(|_, record| record.read());
        if outcome.as_ref().is_ok() || outcome.as_ref().is_err_and(|error| !error.is_fatal()) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(warm);
        }
        outcome.map(Some)
    }

    /// An idle coprocess, or a new one. A coprocess reads the policy when it starts, so a changed policy requires a new one.
    fn warm(&self, verb: Verb) -> Result<Warm> {
        let meta = std::fs::metadata(&self.policy).ok();
        let policy = meta.map(|meta| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()));
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let old = idle.extract_if(.., |warm| warm.policy != policy || !warm.part.child().is_running());
        old.for_each(drop);
        if let Some(at) = idle.iter().position(|warm| warm.verb == verb) {
            return Ok(idle.swap_remove(at));
        }
        drop(idle);
        let mut command = Command::new(find("cp-exec")?);
        match verb {
            Verb::Do => command.args(["--hosted", &self.hosted]),
            Verb::Check => command.arg("check"),
        };
        // Its standard error repeats its answers.
        command.arg("--closed").args(&self.flags).stderr(Stdio::piped());
        Ok(Warm { verb, policy, part: Part::of(Child::start(&mut command, Grace::default())?) })
    }

    /// Runs a program and returns its answer, with the records of a stream as `items`; `None` if the call was cancelled.
    pub(super) fn ask(
        &self,
        program: &str,
        words: &[String],
        input: &str,
        all: bool,
        stop: &Stop,
        looked: &mut dyn FnMut(),
    ) -> Result<Option<Value>> {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (before, operands) = words.split_at(end);
        let mut command = Command::new(find(program)?);
        command.args(before).args(self.flags(all)).args(["--format", "json"]).args(operands).stderr(Stdio::null());
        let mut child = Child::start(&mut command, Grace::default())?.called(program);
        child.feed(input.as_bytes())?;
        let (mut items, mut last) = (Vec::new(), None);
        loop {
            while !child.wait_line(LOOK)? {
                looked();
                if stop.load(Relaxed) {
                    return Ok(None);
                }
            }
            let Some(line) = child.next_line()? else { break };
            let record = Record::parse(line)?;
            if record.closed {
                last = Some(if record.ok {
                    data(&record)?
                } else {
                    return Err(record.failure().with_absent("part", program));
                });
            } else {
                items.push(if record.ok { data(&record)? } else { json!({ "error": record.failure().to_value() }) });
            }
        }
        let Some(last) = last else { return Err(child.gone()) };
        if items.is_empty() && last.get("total").is_none() {
            return Ok(Some(last));
        }
        let mut answer = Map::from_iter([("items".to_owned(), items.into())]);
        answer.extend(last.as_object().cloned().unwrap_or_default());
        Ok(Some(answer.into()))
    }

    /// The options that pass on the context, without the session if the program reads all sessions.
    fn flags(&self, all: bool) -> Vec<OsString> {
        let mut flags = self.flags.clone();
        if all && let Some(at) = flags.iter().position(|flag| flag == "--session") {
            flags.drain(at..at + 2);
        }
        flags
    }

    /// Ends the input of the coprocesses, and waits until they exit.
    pub(super) fn finish(&self) -> Result<()> {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        idle.into_iter().try_for_each(|warm| warm.part.finish())
    }
}

fn data(record: &Record<'_>) -> Result<Value> {
    let data = record.data.ok_or_else(|| Error::validation("an answer without data"))?;
    serde_json::from_str(data.get()).map_err(|e| Error::validation(e.to_string()))
}
