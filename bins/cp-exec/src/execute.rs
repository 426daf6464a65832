//! A decided command from its intent on the ledger to its result.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cp_common::wire::{ExecResult, Executable, Receipt, raw};
use cp_common::{Code, Error, Result};
use serde_json::json;

use crate::capture::Captured;
use crate::decide::Ruling;
use crate::engine::{Ended, Helper, NotRun, Outcome, Run, Watch};
use crate::governor::Governor;
use crate::journal;
use crate::sandbox::plan::{Cause, Failure};

/// The longest grace: from the request to end to the kill.
const GRACE: Duration = Duration::from_millis(500);

/// What became of a command that ran.
pub(crate) struct Done {
    /// The result, as it is answered.
    pub result: ExecResult,
    /// Why it counts as a failure, if it does.
    pub failure: Option<(Code, String)>,
}

impl Done {
    /// The result, or the failure with the same members in its details.
    pub(crate) fn into_answer(self) -> Result<ExecResult> {
        let Some((code, message)) = self.failure else { return Ok(self.result) };
        let mut error = Error::new(code, message);
        if let Ok(serde_json::Value::Object(members)) = serde_json::to_value(&self.result) {
            for (name, value) in members {
                error = error.with(&name, value);
            }
        }
        Err(error)
    }
}

/// A command that is decided about, with its intent on the ledger: ready to run on any thread.
pub(crate) struct Prepared {
    /// What starts it.
    helper: Arc<Helper>,
    /// One ruling for each stage.
    rulings: Vec<Ruling>,
    /// The entry of intent of each stage.
    intents: Vec<Receipt>,
    /// What the first stage reads.
    stdin: Option<OwnedFd>,
    /// How long before the deadline it is asked to end.
    grace: Option<Duration>,
    /// More output than this kills it.
    output_limit: Option<u64>,
}

/// What came of one stage.
type Ran = std::result::Result<Outcome, NotRun>;

/// What came of every stage.
pub(crate) type Outcomes = Result<Vec<Ran>>;

impl Prepared {
    /// Puts the intent of each stage on the ledger. When this returns it is on the disk.
    pub(crate) fn new(
        governor: &mut Governor,
        tool: &'static str,
        rulings: Vec<Ruling>,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        let helper = governor.helper()?;
        let mut intents = Vec::new();
        for (stage, ruling) in rulings.iter().enumerate() {
            intents.push(journal::intend(governor, tool, ruling, stage)?);
        }
        let output_limit = governor.loaded.policy.exec.output_limit;
        Ok(Self { helper, rulings, intents, stdin, grace, output_limit })
    }

    /// Runs it to the end of everything it started. Stages run at once, each in a sandbox of its own, the output of one the input
    /// of the next.
    pub(crate) fn run(&mut self, watch: Option<Watch<'_>>) -> Outcomes {
        let stdin = self.stdin.take();
        let outcomes = match self.rulings.as_slice() {
            [ruling] => Ok(vec![self.helper.run(&ruling.plan, self.limits(ruling, stdin, None, watch))]),
            stages => self.run_stages(stages, stdin),
        };
        for ruling in &self.rulings {
            ruling.leave();
        }
        outcomes
    }

    fn limits<'a>(
        &self,
        ruling: &Ruling,
        stdin: Option<OwnedFd>,
        stdout: Option<OwnedFd>,
        watch: Option<Watch<'a>>,
    ) -> Run<'a> {
        Run {
            stdin,
            stdout,
            timeout: ruling.timeout,
            grace: self.grace.unwrap_or(GRACE.min(ruling.timeout / 10)).min(ruling.timeout),
            output_limit: self.output_limit,
            watch,
            interrupted: cp_common::signals::interrupted,
        }
    }

    fn run_stages(&self, stages: &[Ruling], stdin: Option<OwnedFd>) -> Outcomes {
        let mut ends = Vec::new();
        let mut input = stdin;
        for stage in 0..stages.len() {
            let last = stage + 1 == stages.len();
            let (reader, writer) = if last {
                (None, None)
            } else {
                let (reader, writer) = os_pipe::pipe().map_err(|e| Error::io("cannot make a pipe", e))?;
                (Some(OwnedFd::from(reader)), Some(OwnedFd::from(writer)))
            };
            ends.push((input, writer));
            input = reader;
        }
        Ok(std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (ruling, (stdin, stdout)) in stages.iter().zip(ends) {
                threads
                    .push(scope.spawn(move || self.helper.run(&ruling.plan, self.limits(ruling, stdin, stdout, None))));
            }
            let lost = |_| Err(NotRun::Lost(Error::new(Code::Unknown, "a stage of the pipeline was lost")));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        }))
    }

    /// Puts what came of it on the ledger, and makes the answer.
    pub(crate) fn settle(self, governor: &mut Governor, outcomes: Outcomes) -> Result<Done> {
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.abandon(governor, &error)?;
                return Err(error);
            }
        };
        let mut dones = Vec::new();
        for ((ruling, intent), outcome) in self.rulings.iter().zip(&self.intents).zip(outcomes) {
            dones.push(settle(governor, ruling, intent, outcome));
        }
        let mut dones = dones.into_iter().collect::<Result<Vec<_>>>()?;
        if dones.len() == 1 { Ok(dones.swap_remove(0)) } else { join(dones) }
    }

    /// Puts on the ledger that it did not run after all.
    pub(crate) fn abandon(&self, governor: &mut Governor, error: &Error) -> Result<()> {
        for (ruling, intent) in self.rulings.iter().zip(&self.intents) {
            ruling.leave();
            journal::abandon(governor, intent, error)?;
        }
        Ok(())
    }
}

fn settle(governor: &mut Governor, ruling: &Ruling, intent: &Receipt, outcome: Ran) -> Result<Done> {
    match outcome {
        Ok(mut outcome) => {
            outcome.enforcement.killed_processes = outcome.killed_processes;
            outcome.enforcement.missing.extend(governor.not_kernel_enforced());
            let receipt = journal::conclude(governor, ruling, intent, &outcome)?;
            done(ruling, &outcome, receipt)
        }
        Err(not_run) => {
            let error = explain(not_run);
            journal::abandon(governor, intent, &error)?;
            Err(error)
        }
    }
}

/// One result of many: the output of the last stage, the complaints of all, and the first stage that failed.
fn join(dones: Vec<Done>) -> Result<Done> {
    const BROKEN_PIPE: i32 = 13;
    let stages: Vec<_> = dones
        .iter()
        .map(|done| json!({ "argv": done.result.argv, "return_code": done.result.return_code, "signal": done.result.signal }))
        .collect();
    let argv: Vec<String> = dones.iter().map(|done| done.result.argv.clone()).collect::<Vec<_>>().join(&"|".to_owned());
    let stderr = dones.iter().map(|done| done.result.stderr.as_str()).collect();
    let timed_out = dones.iter().any(|done| done.result.timed_out);
    // A stage whose reader had enough did its work.
    let failure =
        dones.iter().filter(|done| done.result.signal != Some(BROKEN_PIPE)).find_map(|done| done.failure.clone());
    let Some(mut last) = dones.into_iter().next_back() else {
        return Err(Error::validation("there is no command"));
    };
    let mut streams: serde_json::Value =
        last.result.streams.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    streams["stages"] = stages.into();
    last.result.streams = Some(raw(&streams)?);
    last.result.argv = argv;
    last.result.stderr = stderr;
    last.result.timed_out = timed_out;
    last.failure = failure;
    Ok(last)
}

fn explain(not_run: NotRun) -> Error {
    match not_run {
        NotRun::Lost(error) => error,
        NotRun::Failed(Failure { step, message, cause }) => match cause {
            Cause::Required => Error::new(Code::Forbidden, message)
                .with("rule", "require")
                .with("layer", step)
                .hint("`cp-exec doctor` says what this machine gives and how to get the rest"),
            Cause::Changed => Error::new(Code::Forbidden, message)
                .with("rule", "changed")
                .hint("it was replaced between the check and the start; look at who did, then ask again"),
            Cause::Exec => Error::new(Code::Forbidden, message).with("rule", "not_executable"),
            Cause::Setup => Error::new(Code::Unknown, format!("the sandbox could not be built: {message}"))
                .with("step", step)
                .hint("`cp-exec doctor` probes every layer"),
        },
    }
}

fn done(ruling: &Ruling, outcome: &Outcome, receipt: Receipt) -> Result<Done> {
    let timed_out = outcome.ended == Some(Ended::TimedOut);
    let truncated = outcome.stdout.gap.is_some() || outcome.stderr.gap.is_some();
    let streams = json!({ "stdout": about(&outcome.stdout), "stderr": about(&outcome.stderr) });
    let result = ExecResult {
        argv: ruling.argv.clone(),
        stdout: text(&outcome.stdout),
        stderr: text(&outcome.stderr),
        return_code: outcome.status.code,
        signal: outcome.status.signal,
        timed_out,
        truncated,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        exe: Executable { path: ruling.pinned.path.display().to_string(), sha256: ruling.pinned.sha256.clone() },
        enforcement: raw(&outcome.enforcement)?,
        streams: Some(raw(&streams)?),
        receipt: Some(receipt),
        untrusted: vec!["/stdout".to_owned(), "/stderr".to_owned(), "/streams".to_owned()],
    };
    let name = &ruling.argv[0];
    let failure = match (outcome.ended, outcome.status.code, outcome.status.signal) {
        (Some(Ended::TimedOut), ..) => {
            Some((Code::Timeout, format!("{name} did not end within {} s", ruling.timeout.as_secs_f64())))
        }
        (Some(Ended::OutputLimit), ..) => {
            Some((Code::CommandFailed, format!("{name} wrote more than it may (output_limit)")))
        }
        (Some(Ended::Interrupted), ..) => Some((Code::Interrupted, format!("{name} was stopped: we were interrupted"))),
        (None, Some(0), _) => None,
        (None, Some(code), _) => Some((Code::CommandFailed, format!("{name} exited with {code}"))),
        (None, None, signal) => {
            Some((Code::CommandFailed, format!("{name} was killed by signal {}", signal.unwrap_or_default())))
        }
    };
    Ok(Done { result, failure })
}

/// A stream as text. Bytes that are none are replaced; where something is left out, the place says so.
fn text(captured: &Captured) -> String {
    let Some((at, left_out)) = captured.gap else { return String::from_utf8_lossy(&captured.bytes).into_owned() };
    let (head, tail) = captured.bytes.split_at(at);
    format!("{}\n[… {left_out} bytes left out …]\n{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
}

fn about(captured: &Captured) -> serde_json::Value {
    let mut about = json!({ "bytes": captured.total, "sha256": captured.sha256 });
    if let Some((at, left_out)) = captured.gap {
        about["omitted"] = json!({ "at": at, "bytes": left_out });
    }
    if std::str::from_utf8(&captured.bytes).is_err() {
        about["base64"] = base64(&captured.bytes).into();
    }
    about
}

/// Bytes in base64, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place)) & 63;
            text.push(if place <= chunk.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_the_standards() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
