//! Runs a plan: each pipeline is decided about again with what is there now, and starts where what was agreed to still holds.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::wire::{ExecPart, Executable, Receipt};
use cp_common::{Code, Error, Result, signals};

use super::capture::Capture;
use super::engine::Engine;
use super::journal::Journal;
use super::outcome::{Ended, LineEnded, NotRun, Outcome, Stop, Stream, Watch};
use super::result::{Done, done_line, explain};
use super::starts::{Ran, Starts, spend};
use crate::decision::{Deciding, Directory, Expansion, Hashes, Line, Part, Ruling};
use crate::lowering::flow::{Flow, Next};
use crate::lowering::steps::{self, Word};
use crate::place;
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::request::Command;
use crate::sandbox::redirect;
use crate::sandbox::report::{Cause, Enforcement, Failure};

/// A plan with its intent on the ledger. It has a journal of its own, so that it can run on any thread.
pub(crate) struct LineRun {
    starts: Starts,
    policy: Policy,
    hashes: Hashes,
    journal: Journal,
    command: Command,
    line: Line,
    pub(super) intent: Receipt,
    /// What the first command reads.
    stdin: Option<OwnedFd>,
    _effect: signals::Effect,
}

impl LineRun {
    pub(super) fn prepare(
        engine: &mut Engine,
        command: Command,
        line: Line,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        let mut starts = Starts::new(engine, grace)?.sharing(line.timeout);
        let effect = signals::effect();
        spend(engine, line.approved.as_ref())?;
        let (policy, hashes) = (engine.policy.clone(), engine.hashes.clone());
        let mut journal = Journal::new(&policy);
        let intent = journal.intend_line(&command, &line)?;
        starts.intents = vec![intent.seq];
        Ok(Self { starts, policy, hashes, journal, command, line, intent, stdin, _effect: effect })
    }

    pub(super) fn run(&mut self, watch: Option<Watch<'_>>) -> LineEnded {
        let steps = self.command.steps.clone();
        let (started, parts) = (Instant::now(), self.line.parts.iter().map(not_yet).collect());
        let mut flow = Flow::new(&steps, self.line.directory.logical.clone(), false);
        let sink = Sink { out: Capture::new(), err: Capture::new(), watch };
        let output_limit = self.starts.output_limit;
        let exe = Executable { path: String::new(), sha256: String::new() };
        let mut running = Running {
            run: self,
            sink,
            parts,
            reached: 0,
            held: Vec::new(),
            until: started,
            output_limit,
            exe,
            enforcement: Enforcement::default(),
            pipefail: None,
            files: [Vec::new(), Vec::new()],
        };
        running.until += running.run.line.timeout;
        let stop = running.follow(&mut flow).err();
        let Running { mut parts, reached, sink, exe, enforcement, pipefail, files, .. } = running;
        if let Some(stop) = &stop {
            let left = parts.iter_mut().skip(reached).filter(|part| part.not_run.as_deref() == Some("skipped"));
            left.for_each(|part| part.not_run = Some(stop.name().to_owned()));
        }
        LineEnded {
            parts,
            status: flow.status(),
            stop,
            stdout: sink.out.finish(),
            stderr: sink.err.finish(),
            duration: started.elapsed(),
            exe,
            enforcement,
            pipefail,
            files,
        }
    }

    pub(super) fn settle(mut self, ended: LineEnded) -> Result<Done> {
        let mut done = done_line(&self.command, &self.line, &ended)?;
        let (stopped, error) = match &ended.stop {
            Some(Stop::Ended(ended)) => (Some(*ended), None),
            Some(Stop::Refused(error)) => (None, Some(error)),
            None => (None, None),
        };
        let [reads, writes] = &ended.files;
        let streams = [&ended.stdout, &ended.stderr];
        let receipt =
            self.journal.conclude_line(&self.intent, &done.result, stopped, streams, [reads, writes], error)?;
        done.result.receipt = Some(receipt);
        match ended.stop {
            Some(Stop::Refused(error)) if error.is_fatal() => Err(error),
            Some(Stop::Refused(error)) => Ok(Done { refusal: Some(error), ..done }),
            Some(Stop::Ended(_)) | None => Ok(done),
        }
    }
}

fn not_yet(part: &Part) -> ExecPart {
    ExecPart { argv: part.argv.clone(), not_run: Some("skipped".to_owned()), ..ExecPart::default() }
}

/// What a plan has written so far.
struct Sink<'a> {
    out: Capture,
    err: Capture,
    watch: Option<Watch<'a>>,
}

impl Sink<'_> {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Out => self.out.add(bytes),
            Stream::Err => self.err.add(bytes),
        }
        if let Some(watch) = &mut self.watch {
            watch(stream, bytes);
        }
    }

    /// What a shell would say itself.
    fn say(&mut self, text: &str) {
        self.take(Stream::Err, format!("cp-exec: {text}\n").as_bytes());
    }
}

/// A plan under way.
struct Running<'a, 'w> {
    run: &'a mut LineRun,
    sink: Sink<'w>,
    parts: Vec<ExecPart>,
    /// The parts before this one had their turn.
    reached: usize,
    /// The directories that were entered, held open.
    held: Vec<(Directory, OwnedFd)>,
    until: Instant,
    output_limit: Option<u64>,
    /// The last program that was started.
    exe: Executable,
    enforcement: Enforcement,
    pipefail: Option<u8>,
    files: [Vec<PathBuf>; 2],
}

impl Running<'_, '_> {
    fn follow(&mut self, flow: &mut Flow<'_>) -> std::result::Result<(), Stop> {
        let first = self.run.line.directory.clone();
        self.hold(first)?;
        while let Some(next) = flow.next() {
            if signals::interrupted() {
                return Err(Stop::Ended(Ended::Interrupted));
            }
            let directory = flow.directory().to_owned();
            match next {
                Next::Cd(word) => {
                    let entered = self.enter(&directory, word, flow.status())?;
                    flow.entered(entered);
                }
                Next::Pipeline { parts, first } => {
                    self.reached = first + parts.len();
                    let statuses = self.pipeline(parts, first, &directory, flow.status())?;
                    let failed = statuses.iter().rev().find(|status| **status != 0);
                    self.pipefail = failed.copied().filter(|_| statuses.last() == Some(&0)).or(self.pipefail);
                    flow.ended(&statuses);
                }
            }
        }
        Ok(())
    }

    fn hold(&mut self, directory: Directory) -> Result<()> {
        let gone = || refuse("changed", format!("{} is not the directory that was checked", directory.real.display()));
        let held = place::open(&directory.real).ok().flatten().ok_or_else(gone)?;
        self.held.push((directory, held));
        Ok(())
    }

    /// Where a directory that was entered is now, with what holds it.
    fn current(&self, logical: &Path) -> Result<(Directory, place::Node)> {
        let gone = || refuse("changed", format!("{} is no longer there", logical.display()));
        let found = self.held.iter().rev().find(|(directory, _)| directory.logical == logical);
        let (_, held) = found.ok_or_else(gone)?;
        let real = fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(|_| gone())?;
        let node = place::node(held).map_err(|_| gone())?;
        Ok((Directory { logical: logical.to_owned(), real }, node))
    }

    /// Goes to a directory; none if a shell could not.
    fn enter(&mut self, from: &Path, word: &Word, status: u8) -> Result<Option<PathBuf>> {
        let word = word.with_status(status);
        let to = self.current(from)?.0.entered(&self.run.policy, &word)?;
        if let Some(objection) = to.objection() {
            self.sink.say(&format!("cd: {word}: {objection}"));
            return Ok(None);
        }
        let logical = to.logical.clone();
        self.hold(to)?;
        Ok(Some(logical))
    }

    /// Runs commands whose output and input are joined, and answers with the status of each.
    fn pipeline(
        &mut self,
        parts: &[steps::Part],
        first: usize,
        directory: &Path,
        status: u8,
    ) -> std::result::Result<Vec<u8>, Stop> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Stop::Ended(Ended::TimedOut));
        }
        let parts = self.decided(parts, first, directory, status)?;
        for part in &parts {
            for (path, written) in part.redirected.files() {
                self.files[usize::from(written)].push(path.to_owned());
            }
        }
        if parts.iter().all(|part| part.considered.is_none()) {
            return Ok(vec![self.only_redirected(&parts[0], first)]);
        }
        let mut rulings = Vec::new();
        for (at, part) in (first..).zip(&parts) {
            rulings.extend(self.refused(at, part.ruling(&self.run.policy, left))?);
        }
        let (_, node) = self.current(directory)?;
        for (at, ruling) in (first..).zip(&rulings) {
            let plan = &ruling.plan;
            if (plan.cwd.dev, plan.cwd.ino) != node {
                let message = format!("{} is not the directory that was checked", plan.cwd.path.display());
                return Err(refuse("changed", message).into());
            }
            let agreed = &self.run.line.parts[at];
            if (&ruling.argv, &plan.cwd.path) != (&agreed.argv, &agreed.directory.real) {
                self.run.journal.expanded(&self.run.intent, at, ruling)?;
            }
            self.parts[at].argv.clone_from(&ruling.argv);
        }
        let written = self.sink.out.total() + self.sink.err.total();
        self.run.starts.output_limit = self.output_limit.map(|limit| limit.saturating_sub(written));
        let stdin = self.run.stdin.take();
        let sink = &mut self.sink;
        let mut watch = |stream: Stream, bytes: &[u8]| sink.take(stream, bytes);
        let outcomes = self.run.starts.run(&rulings, stdin, Some(&mut watch))?;
        self.settled(first, &rulings, outcomes)
    }

    /// Decides about each part with what is there now.
    fn decided(
        &mut self,
        parts: &[steps::Part],
        first: usize,
        directory: &Path,
        status: u8,
    ) -> std::result::Result<Vec<Part>, Stop> {
        let (directory, _) = self.current(directory)?;
        let mut decided = Vec::new();
        for (at, part) in (first..).zip(parts) {
            let LineRun { policy, hashes, command, line, .. } = &mut *self.run;
            let expansion = Expansion::of(policy);
            let mut deciding = Deciding { policy, hashes, command, expansion, since: Some(line.since) };
            let now = deciding.part(part, &directory, status);
            let now = now.and_then(|now| now.agreed(&line.parts[at]).map(|()| now));
            decided.push(self.refused(at, now)?);
        }
        Ok(decided)
    }

    /// A refusal of a part, on its record.
    fn refused<T>(&mut self, at: usize, outcome: Result<T>) -> std::result::Result<T, Stop> {
        outcome.map_err(|error| {
            self.parts[at].not_run = Some("refused".to_owned());
            Stop::Refused(error.with("part", at).with("argv", self.parts[at].argv.clone()))
        })
    }

    /// Makes the redirections of a part that starts nothing.
    fn only_redirected(&mut self, part: &Part, at: usize) -> u8 {
        let made = redirect::open_all(&part.redirected.redirects);
        let status = u8::from(made.is_err());
        if let Err(failure) = made {
            self.sink.say(&failure.message);
        }
        self.parts[at].return_code = Some(status.into());
        self.parts[at].not_run = (status != 0).then(|| "redirection".to_owned());
        status
    }

    /// Puts what came of each part on the ledger, and answers with the statuses.
    fn settled(&mut self, first: usize, rulings: &[Ruling], outcomes: Vec<Ran>) -> std::result::Result<Vec<u8>, Stop> {
        let (mut statuses, mut stop) = (Vec::new(), None);
        for ((at, ruling), outcome) in (first..).zip(rulings).zip(outcomes) {
            let pinned = &ruling.pinned;
            self.exe = Executable { path: pinned.path.display().to_string(), sha256: pinned.sha256.clone() };
            let status = match outcome {
                Ok(outcome) => {
                    let (status, stops) = self.ended(at, ruling, outcome)?;
                    stop = stop.or(stops);
                    status
                }
                Err(NotRun::Failed(Failure { cause, message, .. }))
                    if matches!(cause, Cause::Redirect | Cause::Exec) =>
                {
                    let (status, why) = if cause == Cause::Exec { (126, "not_executable") } else { (1, "redirection") };
                    self.sink.say(&message);
                    self.parts[at].not_run = Some(why.to_owned());
                    status
                }
                Err(NotRun::Ended(ended)) => {
                    self.parts[at].not_run = Some(ended.name().to_owned());
                    stop = stop.or(Some(Stop::Ended(ended)));
                    continue;
                }
                Err(not_run) => {
                    self.parts[at].not_run = Some("refused".to_owned());
                    stop = stop.or(Some(Stop::Refused(explain(ruling, not_run))));
                    continue;
                }
            };
            self.parts[at].return_code = Some(status.into());
            statuses.push(status);
        }
        stop.map_or(Ok(statuses), Err)
    }

    /// The status of a part that started, and why nothing follows it, if so.
    fn ended(&mut self, at: usize, ruling: &Ruling, mut outcome: Outcome) -> Result<(u8, Option<Stop>)> {
        let run = &mut *self.run;
        outcome.enforcement.killed_processes = outcome.killed_processes;
        outcome.enforcement.missing.extend(run.policy.not_kernel_enforced());
        run.journal.part(&run.intent, at, ruling, &outcome)?;
        let part = &mut self.parts[at];
        part.not_run = None;
        part.duration_ms = Some(u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX));
        let status = match (outcome.status.code, outcome.status.signal) {
            (Some(code), _) => code & 0xff,
            (None, signal) => 128 + signal.unwrap_or_default(),
        };
        let guarded = !outcome.enforcement.guard.is_empty();
        let before = std::mem::replace(&mut self.enforcement, outcome.enforcement);
        self.enforcement.guard.splice(0..0, before.guard);
        self.enforcement.repositories_made.splice(0..0, before.repositories_made);
        self.enforcement.history.splice(0..0, before.history);
        let stop = match outcome.ended {
            Some(ended) => Some(Stop::Ended(ended)),
            None if guarded => {
                let message = format!("{} left behind what would run later (see enforcement.guard)", ruling.argv[0]);
                Some(Stop::Refused(Error::new(Code::Forbidden, message).with("rule", "guard").with("guard", "after")))
            }
            None => None,
        };
        Ok((u8::try_from(status).unwrap_or(u8::MAX), stop))
    }
}
