//! An active run: its plan, its conversation, its limits, and the records in which each step is written before it
//! happens.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::home::Home;
use cp_common::program::approval::answered;
use cp_common::wire::{Receipt, quoted};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::approval::Said;
use cp_policy::Llm;

use crate::state::call_end::noted_results;
use crate::state::conversation::{Conversation, Unshown};
use crate::state::journal::Journal;
use crate::state::plan::{Limits, Plan};
use crate::state::step::{Decision, Step};
use crate::state::step_log::StepLog;

/// The most bytes of a result in the conversation.
const LONGEST: usize = 64 << 10;

/// An active run.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) conversation: Conversation,
    pub(crate) deadline: Option<Instant>,
    /// The policy's limit of dollars for the run and its resumes.
    pub(crate) policy_usd: Option<f64>,
    /// `None` in a replay.
    records: Option<Records>,
}

/// The files to which a run is written.
pub(crate) struct Records {
    /// The exact state.
    pub(crate) steps: StepLog,
    /// The ledger.
    pub(crate) journal: Journal,
}

impl Run {
    /// A run in the state of `conversation`. Its deadline counts from now.
    pub(crate) fn new(plan: Plan, conversation: Conversation, records: Option<Records>) -> Self {
        let deadline = deadline_of(&conversation.limits);
        Self { plan, conversation, deadline, policy_usd: None, records }
    }

    /// Resumes a stopped run with these limits.
    pub(crate) fn resume(&mut self, limits: Limits) -> Result<()> {
        self.note(|journal| journal.resumed(&limits))?;
        self.step(Step::Limits(limits))?;
        self.deadline = deadline_of(&limits);
        Ok(())
    }

    /// Writes the results to the ledger that a killed process had in the state alone.
    pub(crate) fn note_results(&mut self) -> Result<()> {
        let Some(ledger) = self.ledger() else { return Ok(()) };
        let (noted, turn) = (noted_results(ledger)?, self.conversation.tally.iterations);
        let results = self.conversation.unshown.iter().filter_map(|record| match record {
            Unshown::Result(result) if !noted.contains(&result.id) => Some(result.clone()),
            Unshown::Result(_) | Unshown::Message(_) => None,
        });
        let missing: Vec<_> = results.collect();
        missing.iter().try_for_each(|result| self.note(|journal| journal.result(turn, result)).map(drop))
    }

    /// Records the decision about a call; `by` names who denied it.
    pub(crate) fn decide(&mut self, at: usize, mut decision: Decision, by: &str, home: &Home) -> Result<()> {
        let approval = self.conversation.calls[at].approval.clone();
        let approval = approval.ok_or_else(|| Error::new(Code::Conflict, "nothing was asked about the call"))?;
        match &mut decision {
            Decision::Approved(grant) => {
                let receipt = self.note(|journal| journal.approval(Said::Granted(grant), &approval))?;
                grant.receipt = receipt;
            }
            Decision::Denied(why) => drop(self.note(|journal| journal.approval(Said::Denied { by, why }, &approval))?),
        }
        self.step(Step::Decided(at, decision))?;
        answered(home, &approval.id)
    }

    /// Writes a step to the log, and applies it.
    pub(crate) fn step(&mut self, step: Step) -> Result<()> {
        if let Some(records) = &mut self.records {
            records.steps.append(&step)?;
        }
        self.conversation.take(step)
    }

    /// Writes an entry to the ledger, and returns its receipt; a replay writes none.
    pub(crate) fn note(&mut self, what: impl FnOnce(&mut Journal) -> Result<Receipt>) -> Result<Option<Receipt>> {
        let Some(records) = &mut self.records else { return Ok(None) };
        let receipt = what(&mut records.journal)?;
        records.steps.noted(receipt.seq);
        Ok(Some(receipt))
    }

    /// Syncs the log and the ledger to the disk, before an effect that cannot be undone.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(records) = &mut self.records else { return Ok(()) };
        records.journal.sync()?;
        records.steps.sync()
    }

    /// Starts a process that inherits the run's lock, see [`StepLog::shared`].
    pub(crate) fn shared<T>(&self, start: impl FnOnce(Option<i32>) -> Result<T>) -> Result<T> {
        match &self.records {
            Some(records) => records.steps.shared(start),
            None => start(None),
        }
    }

    /// A result that is too long for the conversation: its beginning and its end, with secrets redacted. The ledger
    /// stores all of it; a replay needs no such step.
    pub(crate) fn shortened(&self, answer: &str) -> Result<Option<String>> {
        match &self.records {
            Some(records) => records.journal.shortened(answer, LONGEST),
            None => Ok(None),
        }
    }

    /// Keeps the recording of a stopped run.
    pub(crate) fn keep(&self) -> Result<()> {
        match (&self.records, &self.plan.record) {
            (Some(records), Some(record)) => records.steps.keep(record),
            _ => Ok(()),
        }
    }

    /// Ends the run, and removes its state.
    pub(crate) fn complete(&mut self) -> Result<()> {
        let tally = self.conversation.tally;
        self.note(|journal| journal.end("completed", &tally))?;
        match self.records.take() {
            Some(records) => records.steps.close(self.plan.record.as_deref()),
            None => Ok(()),
        }
    }

    /// The ledger; `None` in a replay.
    pub(crate) fn ledger(&self) -> Option<&Path> {
        self.records.as_ref().map(|records| records.journal.path())
    }

    /// The command that resumes this run.
    pub(crate) fn resume_line(&self, more: &str) -> String {
        format!("cp-toolloop resume {}{more}", self.plan.run)
    }

    /// Adds the command that resumes this run to an error.
    pub(crate) fn resumable(&self, error: Error, home: &Home) -> Error {
        let mut error = error.with("run_id", self.plan.run.as_str());
        if self.records.is_none() {
            return error;
        }
        let home = quoted(&home.root().display().to_string());
        let details = error.details();
        // A resume may raise a shared budget for all its users.
        let amount = |name: &str| details.get(name).and_then(serde_json::Value::as_f64);
        let raised = ["tokens", "usd"].map(|unit| {
            let (limit, spent) = (amount(&format!("budget_{unit}"))?, amount(&format!("spent_{unit}"))?);
            Some(format!(" --budget-{unit} {}", limit.max(spent) * 2.0))
        });
        let raised: String = raised.into_iter().flatten().collect();
        for name in ["resume", "otherwise"] {
            let line = match details.get(name).and_then(|line| line.as_str()) {
                Some(line) if line.starts_with("cp-toolloop ") => line.to_owned(),
                _ if name == "resume" => self.resume_line(&raised),
                _ => continue,
            };
            error = error.with(name, line.replacen("cp-toolloop ", &format!("cp-toolloop --home {home} "), 1));
        }
        let (code, details) = (error.code(), error.details());
        let line = |name: &str| details.get(name).and_then(|line| line.as_str()).map(str::to_owned);
        match (line("resume"), line("otherwise")) {
            (Some(yes), Some(no)) if code == Code::HumanRequired => {
                let hint = error.hint_text().unwrap_or("a person has to answer").to_owned();
                error.hint(format!("{hint}\n  yes: {yes}\n  no:  {no}"))
            }
            _ => error,
        }
    }
}

fn deadline_of(limits: &Limits) -> Option<Instant> {
    limits.deadline.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds))
}

impl Run {
    /// Fails if a limit is reached, with the command that resumes with a higher limit.
    pub(crate) fn check_limits(&self) -> Result<()> {
        let (tally, limits) = (&self.conversation.tally, &self.conversation.limits);
        let (turns, tokens) = (tally.iterations, tally.tokens());
        if turns >= limits.max_iterations {
            let times = if turns == 1 { "once".to_owned() } else { format!("{turns} times") };
            let next = format!(" --max-iterations {}", limits.max_iterations.saturating_mul(2));
            return Err(self.exhausted("iterations", format!("the model was asked {times} and is not done"), &next));
        }
        if let Some(limit) = limits.tokens.filter(|limit| tokens >= *limit) {
            let next = format!(" --budget-tokens {}", limit.max(tokens).saturating_mul(2));
            return Err(self.exhausted("tokens", format!("{tokens} tokens were used, of {limit}"), &next));
        }
        if let (Some(limit), true) = (limits.usd, tally.iterations > 0) {
            let Some(spent) = tally.usage.cost_usd else {
                return Err(Error::config("the price of an answer is not known, so --budget-usd cannot be enforced")
                    .hint("add the model to config/prices.toml, or use --budget-tokens"));
            };
            if spent >= limit {
                let next = format!(" --budget-usd {:.4}", limit.max(spent) * 2.0);
                return Err(self.exhausted("usd", format!("{spent:.4} dollars were spent, of {limit:.4}"), &next));
            }
        }
        if let Some((limit, spent)) = self.policy_usd.zip(tally.usage.cost_usd).filter(|(limit, spent)| spent >= limit)
        {
            let message = format!("{spent:.4} dollars were spent, and policy allows a run {limit:.4}");
            return Err(self
                .exhausted("usd", message, "")
                .hint("raise budget_usd in [llm] of the policy, then resume"));
        }
        self.time_left().map(|_| ())
    }

    /// Reads the policy's limit of dollars.
    pub(crate) fn keep_policy(&mut self, context: &Context) -> Result<()> {
        self.policy_usd = Llm::load(&context.home)?.budget_usd;
        Ok(())
    }

    /// The remaining time of the run; `None` without a deadline.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(self.out_of_time()),
        }
    }

    /// The error of a run whose deadline has passed.
    pub(crate) fn out_of_time(&self) -> Error {
        let seconds = self.conversation.limits.deadline.unwrap_or_default();
        let next = format!(" --deadline {}", seconds * 2.0);
        self.exhausted("time", format!("the deadline of {seconds} seconds has passed"), &next)
    }

    /// The error of a run that has used up one of its limits.
    pub(crate) fn exhausted(&self, budget: &str, message: String, next: &str) -> Error {
        Error::new(Code::BudgetExhausted, message)
            .with("budget", budget)
            .with("action", "raise_budget")
            .with("resume", self.resume_line(next))
            .hint("details.resume continues with a higher limit")
    }
}
