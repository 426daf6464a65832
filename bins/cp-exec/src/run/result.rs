//! The outcome of a run, and the answer that is built from it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::exec_result::{Connections, DeniedStep, ExecResult, Executable};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::wire::{Receipt, raw};
use cp_common::{Code, Error, Result};
use cp_egress::Destination;
use serde::Serialize;
use serde_json::json;

use super::streams::Capture;
use crate::changes::Changes;
use crate::decision::{Decision, Pinned, on_own_path, resolve};
use crate::policy::{Access, Policy, normal};
use crate::refusal::{allow_line, with_members};
use crate::sandbox;
use crate::sandbox::pieces::sees;
use crate::sandbox::plan::{Operation, Plan};
use crate::sandbox::report::{Enforcement, Failure, Status};

/// A command that ran, with its answer.
pub(crate) struct FinishedRun {
    pub result: ExecResult,
    /// The failure that the answer reports.
    pub failure: Option<Error>,
    /// True if the failure counts more than the command's own end, because it was ended early or left something in
    /// quarantine.
    pub is_ended: bool,
}

/// The members of a result with words of the command.
const UNTRUSTED: [&str; 6] = ["/stdout", "/stderr", "/streams", "/denied", "/connections", "/files_changed"];

impl FinishedRun {
    /// The result, or the failure with the members of the result in its details.
    pub(crate) fn into_answer(self) -> Result<ExecResult> {
        match self.failure {
            Some(error) => Err(with_members(error, &self.result)),
            None => Ok(self.result),
        }
    }
}

impl EarlyEnd {
    /// The error code for a command that was ended, and what happened to it.
    fn explain(&self, timeout: Duration) -> (Code, String) {
        let (code, reason) = match self {
            Self::TimedOut => return (Code::Timeout, format!("timed out after {} s", timeout.as_secs_f64())),
            Self::Interrupted => return (Code::Interrupted, "was interrupted".to_owned()),
            Self::Conflict(reason) => (Code::Conflict, reason.as_str()),
            Self::Guard(reason) => (Code::Forbidden, reason.as_str()),
            // The refusal names the file.
            Self::Evaded => {
                (Code::CommandFailed, "a process executed another file than the program that was decided about")
            }
        };
        (code, format!("was ended: {reason}"))
    }

    /// The error for a command that was ended before it had started.
    pub(super) fn before_start(&self, name: &str, timeout: Duration) -> Error {
        let (code, what) = self.explain(timeout);
        let error = Error::new(code, format!("{name} {what} before it had started"));
        if *self != Self::TimedOut {
            return error;
        }
        error.with("timed_out", true).hint("give it more time with --timeout, or with `timeout` in the request")
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let forbidden = |rule, message| Self::new(Code::Forbidden, message).with("rule", rule);
        match failure {
            Failure::Missing(layer, message) => {
                let nested = sandbox::is_nested();
                forbidden("require", message).with("layer", layer).with("outer_sandbox", nested).hint(if nested {
                    "an outer sandbox is present and gives fewer layers than the machine; run cp-exec outside of it, or, \
                     where it is enough for single commands, the owner of the policy writes degraded = \"allow\" under \
                     [exec], and takes the layer out of `require`; command lines and agents need every layer"
                } else {
                    "`cp-exec doctor` shows which layers this machine provides and how its administrator can get the \
                     others; to run single commands without one is for the owner of the policy to decide \
                     (exec.degraded, exec.require); command lines and agents need every layer"
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

impl Outcome {
    /// The answer, with the receipt of the entry of the result.
    pub(super) fn finish(self, decision: &Decision, receipt: Receipt) -> Result<FinishedRun> {
        let failure = self.failure(decision);
        let is_ended = self.ended.is_some() || !self.enforcement.guard.is_empty();
        let streams = json!({ "stdout": self.stdout.summary(), "stderr": self.stderr.summary() });
        let result = ExecResult {
            argv: decision.command.argv.clone(),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            return_code: self.status.code,
            signal: self.status.signal,
            timed_out: self.ended == Some(EarlyEnd::TimedOut),
            truncated: self.stdout.gap().is_some() || self.stderr.gap().is_some(),
            duration_ms: milliseconds(self.duration),
            exe: Executable::of(&decision.pinned),
            enforcement: raw(&self.enforcement)?,
            streams: raw(&streams)?,
            steps: self.steps.line + self.steps.programs,
            receipt: Some(receipt),
            untrusted: UNTRUSTED.map(str::to_owned).to_vec(),
            denied: self.steps.denied,
            connections: self.connections,
            files_changed: self.changes.for_result(),
        };
        Ok(FinishedRun { result, failure, is_ended })
    }

    /// The failure that the answer reports: an early end, files that other programs execute, a refused program, or the
    /// command's own.
    fn failure(&self, decision: &Decision) -> Option<Error> {
        let name = if decision.command.line.is_some() { "the line" } else { decision.command.argv[0].as_str() };
        let guard = &self.enforcement.guard;
        let own = |what: String| Some((Code::CommandFailed, what));
        let mut failure = match (&self.ended, self.status.code) {
            (Some(ended), _) => Some(ended.explain(decision.timeout)),
            (None, Some(0)) => None,
            (None, Some(code)) => own(format!("exited with {code}")),
            (None, None) => own(format!("was killed by signal {}", self.status.signal.unwrap_or_default())),
        };
        if let (Some(EarlyEnd::Conflict(_)), Some((_, what))) = (&self.ended, &mut failure) {
            let kept = guard.iter().find_map(|found| found.moved_to.as_ref());
            what.extend(kept.map(|file| format!("; its new text is in {file}")));
        } else if !guard.is_empty() {
            let ended = failure.filter(|_| self.ended.is_some()).map(|(_, what)| format!("{what}; {name} "));
            let what = format!(
                "{}created files that other programs execute, or that could not be searched ({})",
                ended.unwrap_or_default(),
                guard.len(),
            );
            failure = Some((Code::Forbidden, what));
        }
        let is_ordinary = failure.as_ref().is_none_or(|(code, _)| *code == Code::CommandFailed);
        if let Some(refusal) = self.steps.error.as_ref().filter(|_| is_ordinary) {
            return Some(refusal.clone().with("exit_code", self.status.code));
        }
        let (code, what) = failure?;
        let error = Error::new(code, format!("{name} {what}"));
        if code != Code::Forbidden {
            return Some(error);
        }
        let told = guard.iter().take(TOLD).fold(String::new(), |told, file| format!("{told}{file}\n"));
        let hint = format!("{told}only the owner of the home can put back what is in its state/quarantine");
        Some(error.with("rule", "guard").with("guard", "after").hint(hint))
    }
}

impl Executable {
    pub(crate) fn of(pinned: &Pinned) -> Self {
        Self { path: pinned.path.display().to_string(), sha256: pinned.sha256.clone() }
    }
}

/// A duration in milliseconds, as records have it.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The most quarantined files that a failure names. `enforcement.guard` has all of them.
const TOLD: usize = 20;

impl Capture {
    /// The text of a stream. Invalid UTF-8 is replaced, and omissions are marked.
    pub(super) fn text(&self) -> String {
        let Some((at, left_out)) = self.gap() else { return String::from_utf8_lossy(&self.bytes()).into_owned() };
        let (head, tail) = (whole_words(&self.head), self.tail.iter().copied().collect::<Vec<_>>());
        let tail = whole_words_of_end(&tail);
        let left_out = left_out + (at + self.tail.len() - head.len() - tail.len()) as u64;
        format!("{}\n[… {left_out} bytes left out …]\n{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
    }

    /// The number and hash of all bytes, the gap, and bytes that are not UTF-8.
    fn summary(&self) -> serde_json::Value {
        let mut about = json!({ "bytes": self.total, "sha256": self.sha256() });
        if let Some((at, left_out)) = self.gap() {
            about["omitted"] = json!({ "at": at, "bytes": left_out });
        }
        let bytes = self.bytes();
        if std::str::from_utf8(&bytes).is_err() {
            about["base64"] = BASE64_STANDARD.encode(&bytes).into();
        }
        about
    }
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

/// The reason why a run was ended early.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EarlyEnd {
    TimedOut,
    /// This program received a signal to stop.
    Interrupted,
    /// Another process changed a setting of a repository in a way that the run may have had a part in.
    Conflict(#[serde(skip)] String),
    /// A process executed another file than the one that was decided about.
    Evaded,
    /// The command made a file that leads git to other settings.
    Guard(#[serde(skip)] String),
}

/// The outcome of a command that started.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status of the command's own process.
    pub status: Status,
    /// The reason why it was ended early; `None` if it ended by itself.
    pub ended: Option<EarlyEnd>,
    pub stdout: Capture,
    pub stderr: Capture,
    /// The time from the start of the helper to the end of all processes.
    pub duration: Duration,
    /// The layers it ran under.
    pub enforcement: Enforcement,
    /// The programs that it started.
    pub steps: StepsReport,
    /// The connections to destinations of the policy, if there were any.
    pub connections: Option<Connections>,
    /// The files that it created, changed and removed.
    pub changes: Changes,
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

/// The words of git about files that it leaves as they are, although it may succeed.
const OF_GIT: [&str; 2] = ["unable to unlink", "unable to create file"];
/// The words of programs, among them git and cargo, about a path that does not exist.
const MISSING: [&str; 8] =
    ["no such file", "enoent", "not exist", "not appear", "not found", "cannot find", "failed to read", NO_DIRECTORY];
/// The words about a directory in which a file is to be made.
const NO_DIRECTORY: &str = "not a directory";

/// The most bytes at the end of standard error that are read.
const READ: usize = 8 << 10;

/// A guess in a sentence why a command failed, for the last line of its standard error that names a path which the
/// sandbox hides, does not show or keeps read-only, a port at which a listed name cannot be reached, a program that only
/// the shell outside finds, or ptrace. Relative paths start at its directory or at the top of the repository. A command
/// that did not fail may have left out files.
pub(super) fn guess_cause(stderr: &[u8], has_failed: bool, plan: &Plan, policy: &Policy) -> Option<String> {
    let text = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(READ)..]);
    let cwd = &plan.cwd.path;
    let top = cwd.ancestors().find(|directory| directory.join(".git").exists()).unwrap_or(cwd);
    // The command may have gone to a directory inside.
    let kept = || plan.view.of(Operation::Hidden).chain(plan.view.of(Operation::ReadOnly));
    let ends_with = |end: &str| kept().find(|place| place.starts_with(top) && place.ends_with(end)).cloned();
    // A name without a slash is a path if it is a link, which may lead out of the view.
    let is_path = |word: &&str| word.contains(['/', '.']) || cwd.join(word).is_symlink();
    let about_path = |line| {
        let places = paths(line).filter(is_path).flat_map(|path| {
            let inside = ends_with(path.trim_start_matches("../"));
            [cwd.join(path), top.join(path)].into_iter().chain(inside)
        });
        places.map(|path| normal(&path)).find_map(|path| about(line, &path, plan, policy))
    };
    let is_asked = |line: &&str| has_failed || OF_GIT.iter().any(|words| line.contains(words));
    let why = text.lines().rev().filter(is_asked).find_map(|line| {
        about_path(line)
            .or_else(|| about_port(line, plan.network.destinations()))
            .or_else(|| about_program(line, policy))
            .or_else(|| about_tracing(line))
    })?;
    Some(format!("a guess: it {} because {why}", if has_failed { "failed" } else { "left out files" }))
}

/// The guess about a line that names ptrace.
fn about_tracing(line: &str) -> Option<String> {
    let why =
        "no process can trace another one; for a sanitizer, ASAN_OPTIONS=detect_leaks=0 turns off the search for leaks";
    line.to_lowercase().contains("ptrace").then(|| why.to_owned())
}

/// The guess about a line that names a listed name together with another port: `NAME:PORT`, or `NAME port PORT`.
fn about_port(line: &str, listed: &[Destination]) -> Option<String> {
    let line = line.to_ascii_lowercase().replace(" port ", ":");
    let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && !".-:".contains(letter));
    words.find_map(|word| {
        let (name, port) = word.split_once(':')?;
        let port: u16 = port.trim_end_matches(['.', ':']).parse().ok()?;
        let named: Vec<_> = listed.iter().filter(|destination| destination.contains(name)).collect();
        let is_reached = named.iter().any(|destination| destination.ports().contains(&port));
        let text = named.first().filter(|_| !is_reached)?.to_string();
        // The address that the policy gives for the name is that of the other port too.
        let target = text.split_once('=').map(|(_, target)| format!("={target}")).unwrap_or_default();
        let line = allow_line("network", &format!("{name}:{port}{target}"));
        Some(format!("the policy does not list {name} for port {port}; `{line}` allows it"))
    })
}

/// The guess about a line that names a program which only the shell outside finds.
fn about_program(line: &str, policy: &Policy) -> Option<String> {
    let names = line.split(": ").map(|word| word.trim_matches(is_quote)).filter(|word| !word.contains('/'));
    let missing = names
        .filter(|name| is_missing(line) && on_own_path(name).is_some())
        .find_map(|name| resolve(policy, name).err())?;
    Some(format!("{missing}; {}", missing.hint_text()?))
}

/// True for a line with the words of a program about a path that does not exist.
fn is_missing(line: &str) -> bool {
    let line = line.to_lowercase();
    MISSING.iter().any(|words| line.contains(words))
}

/// The guess about a line that names a path.
fn about(line: &str, path: &Path, plan: &Plan, policy: &Policy) -> Option<String> {
    let (is_missing, line, view) = (is_missing(line), line.to_lowercase(), &plan.view);
    let has = |errors: [&str; 2]| errors.iter().any(|error| line.contains(error));
    let shown = path.display();
    if view.is_within(Operation::Hidden, path) {
        return Some(format!("commands cannot read or change {shown}, which the policy hides"));
    }
    let is_read_only = has(["read-only file system", "erofs"]);
    if view.of(Operation::ReadOnly).any(|place| place == path || is_read_only && path.starts_with(place)) {
        return Some(format!("{shown} is read-only for commands, because other programs run what it names"));
    }
    let mut kept = view.of(Operation::ReadOnly).chain(view.of(Operation::Hidden));
    if has(["resource busy", "ebusy"])
        && let Some(place) = kept.find(|place| place.starts_with(path))
    {
        return Some(format!("commands cannot move or remove {shown}, which has {} in it", place.display()));
    }
    // The directory of a file that is to be made exists.
    let there = path.ancestors().take(2).find_map(|path| path.canonicalize().ok());
    let is_outside = |there: &PathBuf| !sees(plan, there) && !plan.cwd.path.starts_with(there);
    let is_granted = |there: &PathBuf| {
        let can_write = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok();
        path.exists() || can_write && policy.grantable(Access::Write, there).1.is_none()
    };
    if let Some(outside) = there.filter(|there| is_missing && is_outside(there) && is_granted(there)) {
        let is_made = !path.exists() || line.contains(NO_DIRECTORY);
        let access = if is_made { Access::Write } else { Access::Read };
        return Some(granted_by(access, "outside of the view of", &outside, policy));
    }
    if !is_read_only || !path.parent().is_some_and(Path::is_dir) || view.is_within(Operation::Write, path) {
        return None;
    }
    if path.starts_with("/dev") {
        return Some(format!("the mode, owner and times of {shown} belong to the machine"));
    }
    Some(granted_by(Access::Write, "read-only for", path, policy))
}

/// The sentence about a path that commands cannot access, with the line that grants the access.
fn granted_by(access: Access, state: &str, path: &Path, policy: &Policy) -> String {
    let (asked, never) = policy.grantable(access, path);
    let asked = asked.display().to_string();
    let granted = if access == Access::Write { "writable" } else { "readable" };
    let told = match never {
        None => format!("; `{}` makes it {granted}", allow_line(access.name(), &asked)),
        Some(why) => format!(": {why}"),
    };
    format!("{asked} is {state} commands{told}")
}

fn is_quote(letter: char) -> bool {
    "'\"`‘’".contains(letter)
}

/// What can be a path in a line, the last first: words, and what is quoted.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_border = move |letter: char| letter.is_whitespace() || is_quote(letter) || ",;()".contains(letter);
    line.rsplit(is_border).chain(line.rsplit(is_quote)).map(|word| word.trim_end_matches([':', '.']))
}
