//! A decided command, or plan, from its intent on the ledger to its result.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};

use super::engine::Engine;
use super::line::LineRun;
use super::outcome::{LineEnded, Watch};
use super::result::{Done, done, explain, join};
use super::starts::{Ran, Starts, spend};
use crate::decision::{Line, Ruling};
use crate::request::Command;

/// A command or plan that is decided about, with its intent on the ledger: ready to run on any thread.
pub(crate) enum Prepared {
    Stages(Box<Stages>),
    Line(Box<LineRun>),
}

/// What came of it.
pub(crate) enum Outcomes {
    Stages(Result<Vec<Ran>>),
    Line(Box<LineEnded>),
}

impl Prepared {
    /// Puts the intent of a plan on the ledger. When this returns it is on the disk.
    pub(crate) fn line(
        engine: &mut Engine,
        command: Command,
        line: Line,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        LineRun::prepare(engine, command, line, stdin, grace).map(|run| Self::Line(Box::new(run)))
    }

    /// Puts the intent of each stage on the ledger. When this returns it is on the disk.
    pub(crate) fn new(
        engine: &mut Engine,
        tool: &'static str,
        rulings: Vec<Ruling>,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        Stages::prepare(engine, tool, rulings, stdin, grace).map(|stages| Self::Stages(Box::new(stages)))
    }

    /// Runs it to the end of everything it started.
    pub(crate) fn run(&mut self, watch: Option<Watch<'_>>) -> Outcomes {
        match self {
            Self::Stages(stages) => Outcomes::Stages(stages.run(watch)),
            Self::Line(line) => Outcomes::Line(Box::new(line.run(watch))),
        }
    }

    /// Puts what came of it on the ledger, and makes the answer.
    pub(crate) fn settle(self, engine: &mut Engine, outcomes: Outcomes) -> Result<Done> {
        match (self, outcomes) {
            (Self::Stages(stages), Outcomes::Stages(outcomes)) => stages.settle(engine, outcomes),
            (Self::Line(line), Outcomes::Line(ended)) => line.settle(*ended),
            _ => Err(Error::new(Code::Unknown, "what ran is not what was prepared")),
        }
    }

    /// Puts on the ledger that it did not run after all.
    pub(crate) fn abandon(self, engine: &mut Engine, error: &Error) -> Result<()> {
        match self {
            Self::Stages(stages) => stages.abandon(engine, error),
            Self::Line(line) => engine.journal.abandon(&line.intent, error).map(drop),
        }
    }
}

/// One command, or a pipeline.
pub(crate) struct Stages {
    starts: Starts,
    rulings: Vec<Ruling>,
    /// The entry of intent of each stage.
    intents: Vec<Receipt>,
    /// What the first stage reads.
    stdin: Option<OwnedFd>,
    _effect: signals::Effect,
}

impl Stages {
    fn prepare(
        engine: &mut Engine,
        tool: &'static str,
        rulings: Vec<Ruling>,
        stdin: Option<OwnedFd>,
        grace: Option<Duration>,
    ) -> Result<Self> {
        let mut starts = Starts::new(engine, grace)?;
        let effect = signals::effect();
        let mut intents = Vec::new();
        for (stage, ruling) in rulings.iter().enumerate() {
            spend(engine, ruling.approved.as_ref())?;
            intents.push(engine.journal.intend(tool, ruling, stage)?);
        }
        starts.intents = intents.iter().map(|intent| intent.seq).collect();
        Ok(Self { starts, rulings, intents, stdin, _effect: effect })
    }

    fn run(&mut self, watch: Option<Watch<'_>>) -> Result<Vec<Ran>> {
        let stdin = self.stdin.take();
        self.starts.run(&self.rulings, stdin, watch)
    }

    /// Puts what came of it on the ledger, and makes the answer.
    fn settle(self, engine: &mut Engine, outcomes: Result<Vec<Ran>>) -> Result<Done> {
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
    fn abandon(self, engine: &mut Engine, error: &Error) -> Result<()> {
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
