//! The outcome of a run, and the answer that is built from it.

use std::time::Duration;

use crate::exec_result::{Connections, DeniedStep, ExecResult, Executable};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::wire::{Receipt, raw};
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::json;

use super::streams::Captured;
use crate::changes::Changes;
use crate::decision::Ruling;
use crate::git_dir::Snapshot;
use crate::refusal::with_members;
use crate::sandbox;
use crate::sandbox::report::{Enforcement, Failure, Quarantined, Status};

/// A command that ran, with its answer.
pub(crate) struct FinishedRun {
    pub result: ExecResult,
    /// The failure that the answer reports, if any.
    pub failure: Option<(Code, String)>,
    /// True if the run was ended early.
    pub is_ended: bool,
    /// The first program that was refused or awaits approval.
    pub refusal: Option<Error>,
}

impl FinishedRun {
    /// True if a step awaits approval and the run has no other failure.
    pub(crate) fn awaits_approval(&self) -> bool {
        self.is_ordinary() && self.refusal.as_ref().is_some_and(|error| error.code() == Code::HumanRequired)
    }

    /// False if the run was cut short or left guarded files. The answer reports that failure first.
    fn is_ordinary(&self) -> bool {
        self.failure.as_ref().is_none_or(|(code, _)| *code == Code::CommandFailed)
    }

    /// The result, or an error with the members of the result in its details.
    pub(crate) fn into_answer(self) -> Result<ExecResult> {
        let is_ordinary = self.is_ordinary();
        if let Some(error) = self.refusal.filter(|_| is_ordinary) {
            let error = error.with("exit_code", self.result.return_code);
            return Err(with_members(error, &self.result));
        }
        let Some((code, message)) = self.failure else { return Ok(self.result) };
        let mut error = Error::new(code, message);
        if code == Code::Forbidden {
            error = error.with("rule", "guard").with("guard", "after").hint(
                "it was moved to state/quarantine of the home, as enforcement.guard says; only the home's owner can put it back",
            );
        }
        Err(with_members(error, &self.result))
    }
}

impl EarlyEnd {
    /// The error for a command that was ended before it had started.
    pub(super) fn before_start(self, name: &str, timeout: Duration) -> Error {
        if self != Self::TimedOut {
            return Error::new(Code::Interrupted, format!("{name} was interrupted before it had started"));
        }
        let seconds = timeout.as_secs_f64();
        Error::new(Code::Timeout, format!("{name} timed out after {seconds} s, before it had started"))
            .with("timed_out", true)
            .hint("give it more time with --timeout, or with `timeout` in the request")
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let forbidden = |rule, message| Self::new(Code::Forbidden, message).with("rule", rule);
        match failure {
            Failure::Missing(layer, message) => {
                let nested = sandbox::is_nested();
                forbidden("require", message).with("layer", layer).with("outer_sandbox", nested).hint(if nested {
                    "an outer sandbox is present and gives fewer layers than the machine; run cp-exec outside of it, or, where it is \
                     enough, the owner of the policy writes degraded = \"allow\" under [exec], and takes the layer out of `require`"
                } else {
                    "`cp-exec doctor` shows which layers this machine provides and how its administrator can get the others; to run \
                     without one is for the owner of the policy to decide (exec.degraded, exec.require)"
                })
            }
            Failure::Changed(message) => forbidden("changed", message).hint(
                "the file was replaced between the check and the start; find out what changed it, then try again",
            ),
            Failure::Exec(message) => forbidden("not_executable", message),
            Failure::Setup(message) => Self::new(Code::Unknown, format!("the sandbox could not be built: {message}"))
                .hint("`cp-exec doctor` tests every layer"),
        }
    }
}

/// The members of a result that contain output or names from a command.
pub(super) fn untrusted(denied: &[DeniedStep], has_connections: bool, has_files: bool) -> Vec<String> {
    let denied = (!denied.is_empty()).then_some("/denied");
    let connections = has_connections.then_some("/connections");
    let files = has_files.then_some("/files_changed");
    ["/stdout", "/stderr", "/streams"]
        .into_iter()
        .chain(denied)
        .chain(connections)
        .chain(files)
        .map(str::to_owned)
        .collect()
}

pub(super) fn done(ruling: &Ruling, outcome: Outcome, receipt: Receipt) -> Result<FinishedRun> {
    let timed_out = outcome.ended == Some(EarlyEnd::TimedOut);
    let truncated = outcome.stdout.gap.is_some() || outcome.stderr.gap.is_some();
    let streams = json!({ "stdout": stream_summary(&outcome.stdout), "stderr": stream_summary(&outcome.stderr) });
    let (denied, files_changed) = (outcome.steps.denied, outcome.changes.for_result());
    let connections = outcome.connections.filter(|all| all.allowed + all.refused > 0);
    let result = ExecResult {
        argv: ruling.decision.argv.clone(),
        stdout: text(&outcome.stdout),
        stderr: text(&outcome.stderr),
        return_code: outcome.status.code,
        signal: outcome.status.signal,
        timed_out,
        truncated,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        exe: Executable {
            path: ruling.decision.pinned.path.display().to_string(),
            sha256: ruling.decision.pinned.sha256.clone(),
        },
        enforcement: raw(&outcome.enforcement)?,
        streams: Some(raw(&streams)?),
        steps: outcome.steps.line + outcome.steps.programs,
        receipt: Some(receipt),
        untrusted: untrusted(&denied, connections.is_some(), files_changed.is_some()),
        denied,
        connections,
        files_changed,
    };
    let name = if ruling.decision.line.is_some() { "the line" } else { ruling.decision.argv[0].as_str() };
    let (guard, reason) = (&outcome.enforcement.guard, outcome.reason.as_deref());
    let seconds = ruling.decision.timeout.as_secs_f64();
    let mut failure = failure_of(name, outcome.ended, reason, outcome.status, seconds);
    if let (Some(EarlyEnd::Conflict), Some((_, message))) = (outcome.ended, &mut failure) {
        let kept = guard.iter().find_map(|found| found.moved_to.as_ref());
        message.extend(kept.map(|file| format!("; its new text is in {file}")));
    } else if !guard.is_empty() {
        let ended = failure.filter(|_| outcome.ended.is_some()).map(|(_, message)| format!("{message}; "));
        let (ended, left, why) = (ended.unwrap_or_default(), guard.len(), reasons(guard));
        let message = format!(
            "{ended}{name} created files that other programs execute, or that could not be searched ({left}, see enforcement.guard){why}"
        );
        failure = Some((Code::Forbidden, message));
    }
    Ok(FinishedRun { result, failure, is_ended: outcome.ended.is_some(), refusal: outcome.steps.error })
}

/// The failure of a command, if any.
pub(super) fn failure_of(
    name: &str,
    ended: Option<EarlyEnd>,
    reason: Option<&str>,
    status: Status,
    seconds: f64,
) -> Option<(Code, String)> {
    let reason = reason.unwrap_or("a setting of the repository was replaced beside it");
    let (code, what) = match (ended, status.code) {
        (None, Some(0)) => return None,
        (None, Some(code)) => (Code::CommandFailed, format!("exited with {code}")),
        (None, None) => (Code::CommandFailed, format!("was killed by signal {}", status.signal.unwrap_or_default())),
        (Some(EarlyEnd::TimedOut), _) => (Code::Timeout, format!("timed out after {seconds} s")),
        (Some(EarlyEnd::Interrupted), _) => (Code::Interrupted, "was interrupted".to_owned()),
        (Some(EarlyEnd::Conflict), _) => (Code::Conflict, format!("was ended: {reason}")),
        (Some(EarlyEnd::Guard), _) => (Code::Forbidden, format!("was ended: {reason}")),
        // The refusal names the file.
        (Some(EarlyEnd::Evaded), _) => (Code::CommandFailed, format!("was ended: {EVADED}")),
    };
    Some((code, format!("{name} {what}")))
}

const EVADED: &str = "a process executed another file than the program that was decided about";

/// The reasons of the first quarantined files, if their names do not show them.
fn reasons(undone: &[Quarantined]) -> String {
    const TOLD: usize = 3;
    let with_reason = undone.iter().filter_map(|undone| Some((&undone.path, undone.reason.as_ref()?)));
    with_reason.take(TOLD).fold(String::new(), |told, (path, reason)| format!("{told}; {path}: {reason}"))
}

/// The text of a stream. Invalid UTF-8 is replaced, and omissions are marked.
pub(super) fn text(captured: &Captured) -> String {
    let Some((at, left_out)) = captured.gap else { return String::from_utf8_lossy(&captured.bytes).into_owned() };
    let (head, tail) = captured.bytes.split_at(at);
    let (head, tail) = (whole_words(head), whole_words_of_end(tail));
    let left_out = left_out + (captured.bytes.len() - head.len() - tail.len()) as u64;
    format!("{}\n[… {left_out} bytes left out …]\n{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
}

/// The longest word that is removed at a cut. Keys and tokens are shorter.
const LONGEST_WORD: usize = 4096;

/// Removes the last, incomplete word of a beginning, because half of a secret would not be recognized.
fn whole_words(head: &[u8]) -> &[u8] {
    let from = head.len().saturating_sub(LONGEST_WORD);
    let blank = head[from..].iter().rposition(u8::is_ascii_whitespace);
    &head[..blank.map_or(head.len(), |blank| from + blank + 1)]
}

/// Removes the first, incomplete word of an end.
fn whole_words_of_end(tail: &[u8]) -> &[u8] {
    let blank = tail.iter().take(LONGEST_WORD).position(u8::is_ascii_whitespace);
    &tail[blank.unwrap_or(0)..]
}

pub(super) fn stream_summary(captured: &Captured) -> serde_json::Value {
    let mut about = json!({ "bytes": captured.total, "sha256": captured.sha256 });
    if let Some((at, left_out)) = captured.gap {
        about["omitted"] = json!({ "at": at, "bytes": left_out });
    }
    if std::str::from_utf8(&captured.bytes).is_err() {
        about["base64"] = BASE64_STANDARD.encode(&captured.bytes).into();
    }
    about
}

/// The reason why a run was ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EarlyEnd {
    TimedOut,
    /// This program received a signal to stop.
    Interrupted,
    /// Another process changed a setting of a repository in a way that the run may have had a part in.
    Conflict,
    /// A process executed another file than the one that was decided about.
    Evaded,
    /// The command made a file that leads git to other settings.
    Guard,
}

/// The outcome of a command that started.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status of the command's own process.
    pub status: Status,
    /// The reason why it was ended early; `None` if it ended by itself.
    pub ended: Option<EarlyEnd>,
    /// The words for an end that a repository brought about.
    pub reason: Option<String>,
    pub stdout: Captured,
    pub stderr: Captured,
    /// The time from the start of the helper to the end of all processes.
    pub duration: Duration,
    /// The layers it ran under.
    pub enforcement: Enforcement,
    /// The programs that it started.
    pub steps: StepsReport,
    /// The connections to destinations of the policy, if the network is a list of them.
    pub connections: Option<Connections>,
    /// The files that it created, changed and removed.
    pub changes: Changes,
    /// What was kept of its repositories before it.
    pub snapshots: Vec<Snapshot>,
}

/// The steps of a run, for its record.
#[derive(Debug, Default)]
pub(crate) struct StepsReport {
    /// Programs that the line started.
    pub line: u64,
    /// Programs that those programs started.
    pub programs: u64,
    /// The number of steps that the budget of the run did not allow to be recorded.
    pub unrecorded: u64,
    /// Steps that were refused or await approval.
    pub denied: Vec<DeniedStep>,
    /// The number of denied steps.
    pub denied_count: u64,
    /// The first refusal, or the first pending approval.
    pub error: Option<Error>,
    /// Tool calls of an agent that were decided about.
    pub calls: u64,
    /// Those that were refused.
    pub calls_denied: u64,
    /// The error of the ledger. All later steps are refused.
    pub failed: Option<Error>,
}
