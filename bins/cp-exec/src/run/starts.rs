//! Starts commands, one or several whose output and input are joined, and follows them to the end of everything they started.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cp_common::program::approval::Spent;
use cp_common::{Code, Error, Result, signals};
use cp_ledger::format::approval::Said;

use super::engine::Engine;
use super::helper::{Helper, Run};
use super::outcome::{Ended, NotRun, Outcome, Stream, Watch};
use crate::decision::Ruling;
use crate::git_dir::Session;
use crate::guard::settle::OpenRun;
use crate::guard::{self, session_tmp};
use crate::refusal::refuse;
use crate::sandbox::plan::Layer;

/// The longest grace: from the request to end to the kill.
const GRACE: Duration = Duration::from_millis(500);

/// What starts commands, and what holds for all of them.
pub(super) struct Starts {
    helper: Arc<Helper>,
    /// How long before the deadline a command is asked to end.
    grace: Option<Duration>,
    /// More output than this kills it.
    pub output_limit: Option<u64>,
    /// Where what it must not leave behind is kept.
    home: PathBuf,
    /// What reads the history of repositories.
    git: Option<PathBuf>,
    ledger: PathBuf,
    /// The entry of intent of each command, or of all.
    pub intents: Vec<u64>,
    /// Runs whose results are not on the ledger yet.
    open: Vec<OpenRun>,
}

pub(super) type Ran = std::result::Result<Outcome, NotRun>;

/// Puts on the ledger that a yes is spent.
pub(super) fn spend(engine: &mut Engine, approved: Option<&Spent>) -> Result<()> {
    let Some(Spent { approval, grant, .. }) = approved else { return Ok(()) };
    engine.journal.approval(Said::Spent(grant), approval).map(drop)
}

impl Starts {
    pub(super) fn new(engine: &mut Engine, grace: Option<Duration>) -> Result<Self> {
        if let Some(directory) = engine.policy.session_tmp() {
            let (bytes, entries) = (engine.policy.exec().scratch, engine.policy.loaded.settings.paths.walk);
            session_tmp::prepare(&directory, bytes, entries)?;
        }
        let (output_limit, home) = (engine.policy.exec().output_limit, engine.policy.cp_home.clone());
        let git = engine.policy.exec().path.iter().map(|directory| directory.join("git")).find(|git| git.is_file());
        let ledger = engine.policy.ledger.clone();
        let helper = engine.helper()?;
        Ok(Self { helper, grace, output_limit, home, git, ledger, intents: Vec::new(), open: Vec::new() })
    }

    /// The same grace for all of several commands that share a time.
    pub(super) fn sharing(mut self, timeout: Duration) -> Self {
        self.grace = Some(self.grace(timeout));
        self
    }

    /// How long before the end of its time a command is asked to end.
    fn grace(&self, timeout: Duration) -> Duration {
        self.grace.unwrap_or(GRACE.min(timeout / 10)).min(timeout)
    }

    /// Runs commands to the end of everything they started. Stages run at once, each in a sandbox of its own, the output of one the
    /// input of the next.
    pub(super) fn run(
        &mut self,
        rulings: &[Ruling],
        stdin: Option<OwnedFd>,
        watch: Option<Watch<'_>>,
    ) -> Result<Vec<Ran>> {
        for (at, ruling) in rulings.iter().enumerate() {
            let intent = self.intents.get(at).or(self.intents.last()).copied().unwrap_or_default();
            let session = self.helper.session();
            self.open.push(OpenRun::begin(&self.home, &self.ledger, intent, session, &ruling.watched)?);
        }
        let mut sessions: Vec<_> = rulings.iter().map(|ruling| Session::begin(&ruling.watched.repositories)).collect();
        let outcomes = match (rulings, sessions.as_mut_slice()) {
            ([ruling], [session]) => {
                Ok(vec![self.helper.run(&ruling.plan, self.limits(ruling, session, stdin, None, watch))])
            }
            (stages, sessions) => self.run_stages(stages, sessions, stdin, watch),
        };
        let mut outcomes = outcomes?;
        for ((ruling, session), ran) in rulings.iter().zip(sessions).zip(&mut outcomes) {
            self.guard(ruling, session, ran);
        }
        Ok(outcomes)
    }

    /// Undoes what a run left behind that would run later, also where nobody knows whether the command started.
    fn guard(&self, ruling: &Ruling, session: Session<'_>, ran: &mut Ran) {
        let private = ran.as_ref().map_or(true, |outcome| outcome.enforcement.has(Layer::Mount));
        let after = session.finish(private, self.git.as_deref());
        let found = guard::finish(&ruling.watched, after.findings, &self.home, private);
        match ran {
            Ok(outcome) => {
                outcome.ended = outcome.ended.or(after.is_replaced.then_some(Ended::Conflict));
                let enforcement = &mut outcome.enforcement;
                enforcement.missing.extend(after.missing);
                enforcement.history = after.history;
                enforcement.guard = found.quarantined;
                enforcement.new_hidden = found.new_hidden;
                enforcement.repositories_made = found.repositories_made;
            }
            Err(_) if found.quarantined.is_empty() => {}
            Err(_) => {
                let message = "the command did not start properly, and yet left behind what other programs execute; it was quarantined";
                let error = refuse("guard", message)
                    .with("guard", "after")
                    .with("quarantined", serde_json::json!(found.quarantined));
                *ran = Err(NotRun::Lost(error));
            }
        }
    }

    fn limits<'a, 'r>(
        &self,
        ruling: &Ruling,
        session: &'r mut Session<'_>,
        stdin: Option<OwnedFd>,
        stdout: Option<OwnedFd>,
        watch: Option<Watch<'a>>,
    ) -> Run<'a, 'r> {
        Run {
            stdin,
            stdout,
            timeout: ruling.timeout,
            grace: self.grace(ruling.timeout),
            output_limit: self.output_limit,
            watch,
            repositories: session.watch(),
            interrupted: signals::interrupted,
        }
    }

    fn run_stages(
        &self,
        stages: &[Ruling],
        sessions: &mut [Session<'_>],
        stdin: Option<OwnedFd>,
        watch: Option<Watch<'_>>,
    ) -> Result<Vec<Ran>> {
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
        // Whoever watches is not for several threads: what the stages write comes to this one.
        let (sender, written) = std::sync::mpsc::sync_channel::<(Stream, Vec<u8>)>(16);
        Ok(std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((ruling, session), (stdin, stdout)) in stages.iter().zip(sessions).zip(ends) {
                let sender = watch.is_some().then(|| sender.clone());
                threads.push(scope.spawn(move || {
                    let mut pass = sender.map(|sender| {
                        move |stream: Stream, bytes: &[u8]| drop(sender.send((stream, bytes.to_owned())))
                    });
                    let watch = pass.as_mut().map(|pass| pass as Watch<'_>);
                    self.helper.run(&ruling.plan, self.limits(ruling, session, stdin, stdout, watch))
                }));
            }
            drop(sender);
            if let Some(watch) = watch {
                for (stream, bytes) in written {
                    watch(stream, &bytes);
                }
            }
            let lost = |_| Err(NotRun::Lost(Error::new(Code::Unknown, "a stage of the pipeline was lost")));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        }))
    }
}
