//! Runs commands after a decision: intent on the ledger, sandbox helper, captured output, result on the ledger.
//! An [`Engine`] has the policy in force, and a [`Prepared`] is a command from its intent to its result.

pub(crate) mod approvals;
pub(crate) mod clients;
mod connections;
pub(crate) mod helper;
mod journal;
mod result;
mod steps;
pub(crate) mod streams;
mod supervise;
mod terminal;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::home::Home;
use cp_common::program::approval::Spent;
use cp_common::{Context, Result, signals};
use cp_ledger::format::approval::Said;

use self::helper::Helper;
pub(crate) use self::journal::{Journal, newest, quoted};
use self::result::{EarlyEnd, Outcome};
pub(crate) use self::result::{FinishedRun, milliseconds};
pub(crate) use self::steps::Steps;
pub(crate) use self::streams::{Stream, Watch};
pub(crate) use self::supervise::supervise;
pub(crate) use self::terminal::has_terminal;
use crate::changes::{Baseline, Changes, Store};
use crate::decision::{Caller, HashCache, Ruling};
use crate::git_dir::Session;
use crate::guard::settle::{OpenRun, Settled, settle};
use crate::guard::{self, session_tmp};
use crate::listings;
use crate::policy::{HostCall, Policy};
use crate::refusal::refuse;
use crate::sandbox::plan::Operation;

/// The result of a run.
pub(crate) type RunResult = Result<Outcome>;

/// A command with a decision and an intent on the ledger.
pub(crate) struct Prepared {
    pub(crate) ruling: Ruling,
    /// The number of the entry of the intent; 0 without one.
    intent: u64,
    pub(crate) stdin: Option<OwnedFd>,
    /// The time that the command gets to end by itself after this program received a signal to stop.
    pub(crate) patience: Duration,
    /// The names whose refusal needs no message.
    pub(crate) quiet: &'static [String],
    /// The marker of a run without a result. The next start reads it if this program is killed.
    open: Option<OpenRun>,
    _effect: signals::Effect,
}

/// The patience with a command that is not an agent. A caller that stops this program kills it 2 seconds later.
const PATIENCE: Duration = Duration::from_secs(1);

impl Prepared {
    /// A command without an intent on a ledger.
    pub(crate) fn unrecorded(ruling: Ruling) -> Self {
        let patience = PATIENCE;
        Self { ruling, intent: 0, stdin: None, patience, quiet: &[], open: None, _effect: signals::effect() }
    }

    /// Records the intent. The entry is synced on return.
    pub(crate) fn new(engine: &mut Engine, tool: &'static str, ruling: Ruling, stdin: Option<OwnedFd>) -> Result<Self> {
        if let Some(directory) = engine.policy.session_tmp() {
            let (bytes, entries) = (engine.policy.exec().scratch, engine.policy.loaded.settings.paths.walk);
            session_tmp::prepare(&directory, bytes, entries)?;
        }
        engine.helper()?;
        let own = ruling.decision.command.stdin.as_ref().map(|text| streams::stdin_from_bytes(text.as_bytes()));
        let mut prepared = Self { stdin: stdin.or(own.transpose()?), ..Self::unrecorded(ruling) };
        let ruling = &mut prepared.ruling;
        if let Some(Spent { approval, grant, .. }) = &ruling.approved {
            engine.journal.approval(Said::Spent(grant), approval)?;
        }
        prepared.intent = engine.journal.intend(tool, ruling)?.seq;
        ruling.plan.view.files = std::mem::take(&mut ruling.git.read().files);
        Ok(prepared)
    }

    /// Runs the command until all of its processes have ended.
    pub(crate) fn run(&mut self, engine: &mut Engine, watch: Option<Watch<'_>>) -> RunResult {
        let session_of_helper = engine.helper()?.session();
        let Engine { policy, hashes, .. } = &*engine;
        let store = Store::of_home(&policy.cp_home);
        let is_agent = self.ruling.decision.caller == Caller::Program;
        let view = &self.ruling.plan.view;
        let hidden = view.of(Operation::Hidden).cloned().collect();
        let walk = policy.loaded.settings.paths.walk;
        let recorded: Vec<PathBuf> =
            view.of(Operation::Write).filter(|path| !view.state.contains(path)).cloned().collect();
        let before = (!recorded.is_empty()).then(|| Baseline::capture(&recorded, hidden, &store, walk));
        let mut session = Session::begin(&mut self.ruling.watched.repositories, is_agent, &store);
        let (call, watched) = (self.ruling.call.clone(), &self.ruling.watched);
        self.open = Some(OpenRun::begin(policy, call, self.intent, session_of_helper, watched, before.as_ref())?);
        let steps = Steps::new(policy, hashes, &mut self.ruling, self.intent);
        let mut ran = supervise(engine.helper()?, self, steps, watch, session.watch.as_mut());
        self.guard(&engine.policy.cp_home, session, &mut ran);
        if let (Ok(outcome), Some(before)) = (&mut ran, before) {
            let changes = before.compare();
            outcome.enforcement.missing.extend(changes.missing());
            outcome.changes = changes;
        }
        listings::forget();
        ran
    }

    /// Quarantines files of the run that other programs execute later, even if it is unknown whether the command
    /// started.
    fn guard(&self, home: &Home, mut session: Session, ran: &mut RunResult) {
        let private = ran.as_ref().map_or(true, |outcome| outcome.enforcement.is_private());
        let watched = &self.ruling.watched;
        let in_repositories = session.finish(&watched.repositories, private);
        let found = guard::finish(watched, in_repositories, home, private);
        match ran {
            Ok(outcome) => {
                outcome.ended = outcome.ended.take().or(session.unsettled.take().map(EarlyEnd::Conflict));
                let enforcement = &mut outcome.enforcement;
                enforcement.missing.extend(session.missing);
                enforcement.guard = found.quarantined;
                guard::remember(home, &found.own_repositories);
                let is_of_earlier = |path: &String| watched.own.iter().any(|own| own == Path::new(path));
                enforcement.repositories_made =
                    found.own_repositories.into_iter().filter(|path| !is_of_earlier(path)).collect();
            }
            Err(_) if found.quarantined.is_empty() => {}
            Err(error) => {
                let message = "the command did not start properly, and created files that other programs execute; they were quarantined";
                let quarantined = serde_json::json!(found.quarantined);
                *error = refuse("guard", message).with("guard", "after").with("quarantined", quarantined);
            }
        }
    }

    /// Records the result, and builds the answer.
    pub(crate) fn settle(self, engine: &mut Engine, ran: RunResult) -> Result<FinishedRun> {
        match ran {
            Ok(mut outcome) => {
                if let Some(error) = outcome.steps.failed.take() {
                    return Err(error.fatal());
                }
                outcome.enforcement.missing.extend(engine.policy.not_kernel_enforced());
                let receipt = engine.journal.conclude(&self.ruling, self.intent, &outcome)?;
                outcome.finish(&self.ruling.decision, receipt)
            }
            Err(error) => {
                engine.journal.abandon(self.intent, &error)?;
                Err(error)
            }
        }
    }
}

/// What is lost of a killed run.
pub(crate) const NOT_RECORDED: &str = "which files it changed is not recorded, so `cp-exec undo` cannot put them back";

/// The state of one start of the program.
pub(crate) struct Engine {
    pub policy: Policy,
    /// Hashes of known programs.
    pub hashes: HashCache,
    pub journal: Journal,
    /// The descriptor of a lock of the caller.
    pub lock: Option<i32>,
    helper: Option<Helper>,
}

impl Engine {
    /// Reads the policy. Starts and writes nothing yet.
    pub(crate) fn new(context: &Context, tools: &[PathBuf]) -> Result<Self> {
        let policy = Policy::resolve(context, tools)?;
        let hashes = HashCache::of_home(&policy.cp_home);
        let journal = Journal::new(&policy);
        Ok(Self { policy, hashes, journal, lock: None, helper: None })
    }

    /// Cleans up after killed runs, and returns a message about each of them and each quarantined file. This happens
    /// before any decision, because decisions would attribute the files to the owner.
    pub(crate) fn settle_killed_runs(&mut self) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        for settled in &settle(&self.policy.cp_home, &self.policy.ledger) {
            if self.journal.settle(settled)? {
                let Settled { run, quarantined, changes, .. } = settled;
                let intent = run.intent;
                let what = match changes {
                    None => NOT_RECORDED.to_owned(),
                    Some(changes) => format!("{}; `cp-exec undo {intent}` puts that back", changes.summary()),
                };
                messages.push(format!("run {intent} was killed before it ended; {what}"));
                messages.extend(changes.as_ref().and_then(Changes::missing));
                messages.extend(quarantined.iter().map(|file| format!("run {intent} made {file}")));
            }
        }
        Ok(messages)
    }

    /// Serves a tool call of another agent. All following entries name the call.
    pub(crate) fn serve(&mut self, hosted: HostCall) {
        self.policy.actor.call = Some(hosted.call.clone());
        self.policy.actor.host = Some(hosted);
        self.journal = Journal::new(&self.policy);
    }

    /// The helper that starts runs.
    fn helper(&mut self) -> Result<&Helper> {
        let started = match self.helper.take().filter(Helper::is_alive) {
            Some(helper) => helper,
            None => Helper::start(self.lock)?,
        };
        Ok(self.helper.insert(started))
    }
}

/// Repeats an attempt as long as a person at the terminal grants what a typed command requires.
pub(crate) fn until_answered<T>(
    engine: &mut Engine,
    typed: bool,
    mut attempt: impl FnMut(&mut Engine) -> Result<T>,
) -> Result<T> {
    loop {
        let error = match attempt(engine) {
            Err(error) if !error.is_fatal() => error,
            outcome => return outcome,
        };
        let Some(approval) = approvals::paused(&error) else { return Err(error) };
        let Engine { journal, policy, .. } = engine;
        journal.approval(Said::Asked, &approval)?;
        let decided = if typed { approvals::ask(&approval)? } else { None };
        approvals::settle(journal, policy, &approval, decided, || error)?;
    }
}
