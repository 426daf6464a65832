//! A decided command from its intent on the ledger to its result.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cp_common::program::approval::Spent;
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};
use cp_ledger::format::approval::Said;

use super::engine::Engine;
use super::guard;
use super::helper::{Helper, Run};
use super::outcome::{NotRun, Outcome, Watch};
use super::result::{Done, done, explain, join};
use crate::decision::Ruling;

/// The longest grace: from the request to end to the kill.
const GRACE: Duration = Duration::from_millis(500);

/// A command that is decided about, with its intent on the ledger: ready to run on any thread.
pub(crate) struct Prepared {
    helper: Arc<Helper>,
    rulings: Vec<Ruling>,
    /// The entry of intent of each stage.
    intents: Vec<Receipt>,
    /// What the first stage reads.
    stdin: Option<OwnedFd>,
    /// How long before the deadline it is asked to end.
    grace: Option<Duration>,
    /// More output than this kills it.
    output_limit: Option<u64>,
    /// Where what it must not leave behind is kept.
    home: PathBuf,
    _effect: signals::Effect,
}

type Ran = std::result::Result<Outcome, NotRun>;
pub(crate) type Outcomes = Result<Vec<Ran>>;

impl Prepared {
    /// Puts the intent of each stage on the ledger. When this returns it is on the disk.
    pub(crate) fn new(
        engine: &mut Engine,
        tool: &'static str,
        rulings: Vec<Ruling>,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        let helper = engine.helper()?;
        let effect = signals::effect();
        let mut intents = Vec::new();
        for (stage, ruling) in rulings.iter().enumerate() {
            if let Some(Spent { approval, grant, .. }) = &ruling.approved {
                engine.journal.approval(Said::Spent(grant), approval)?;
            }
            intents.push(engine.journal.intend(tool, ruling, stage)?);
        }
        let output_limit = engine.policy.exec().output_limit;
        let home = engine.policy.cp_home.clone();
        Ok(Self { helper, rulings, intents, stdin, grace, output_limit, home, _effect: effect })
    }

    /// Runs it to the end of everything it started. Stages run at once, each in a sandbox of its own, the output of one the input
    /// of the next.
    pub(crate) fn run(&mut self, watch: Option<Watch<'_>>) -> Outcomes {
        let stdin = self.stdin.take();
        let outcomes = match self.rulings.as_slice() {
            [ruling] => Ok(vec![self.helper.run(&ruling.plan, self.limits(ruling, stdin, None, watch))]),
            stages => self.run_stages(stages, stdin),
        };
        let mut outcomes = outcomes?;
        for (ruling, outcome) in self.rulings.iter().zip(&mut outcomes) {
            if let Ok(outcome) = outcome {
                guard::finish(&ruling.watched, &self.home, outcome);
            }
        }
        // What was made for it is no longer needed, though the rulings are: for the ledger and the answer.
        for ruling in &mut self.rulings {
            drop(std::mem::take(&mut ruling.made));
        }
        Ok(outcomes)
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
            interrupted: signals::interrupted,
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
    pub(crate) fn settle(self, engine: &mut Engine, outcomes: Outcomes) -> Result<Done> {
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.abandon(engine, &error)?;
                return Err(error);
            }
        };
        let mut dones = Vec::new();
        for ((ruling, intent), outcome) in self.rulings.iter().zip(&self.intents).zip(outcomes) {
            dones.push(settle(engine, ruling, intent, outcome));
        }
        let mut dones = dones.into_iter().collect::<Result<Vec<_>>>()?;
        if dones.len() == 1 { Ok(dones.swap_remove(0)) } else { join(dones) }
    }

    /// Puts on the ledger that it did not run after all.
    pub(crate) fn abandon(self, engine: &mut Engine, error: &Error) -> Result<()> {
        for intent in &self.intents {
            engine.journal.abandon(intent, error)?;
        }
        Ok(())
    }
}

fn settle(engine: &mut Engine, ruling: &Ruling, intent: &Receipt, outcome: Ran) -> Result<Done> {
    match outcome {
        Ok(mut outcome) => {
            outcome.enforcement.killed_processes = outcome.killed_processes;
            outcome.enforcement.missing.extend(engine.policy.not_kernel_enforced());
            let receipt = engine.journal.conclude(ruling, intent, &outcome)?;
            done(ruling, &outcome, receipt)
        }
        Err(not_run) => {
            let error = explain(ruling, not_run);
            engine.journal.abandon(intent, &error)?;
            Err(error)
        }
    }
}
