//! An active run: its plan, its conversation, its limits, and its log, in which each step is written before its effect.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::home::Home;
use cp_common::program::approval::answered;
use cp_common::wire::{Receipt, quoted};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, Ledger, Sync, blob};
use cp_policy::{Llm, table};
use cp_redact::Redactor;

use crate::state::conversation::Conversation;
use crate::state::ledger::{is_answer_since, refuse_earlier};
use crate::state::plan::{Limits, Plan, RunFiles};
use crate::state::step::{Decision, Owner, Step};
use crate::state::step_log::StepLog;

/// The most bytes of a result in the conversation.
const LONGEST: usize = 64 << 10;

/// An active run.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) conversation: Conversation,
    pub(crate) deadline: Option<Instant>,
    /// The policy's limit of dollars for the run and its resumes.
    policy_usd: Option<f64>,
    home: PathBuf,
    /// The exact steps.
    pub(crate) steps: StepLog,
    /// The ledger, whose lines are derived from the steps.
    pub(super) ledger: Ledger,
    pub(super) agent: String,
}

impl Run {
    /// Begins a run. Its steps are written first, so that a run that is killed here can be resumed.
    pub(crate) fn begin(plan: Plan, context: &Context) -> Result<Self> {
        let files = RunFiles::of(&plan.run, context)?;
        let first = Step::Plan(Box::new(plan), Owner::this());
        let steps = StepLog::create(&files, &context.home, &first)?;
        let mut run = Self::of(&files, steps, vec![first], context)?;
        run.limit(context)?;
        Ok(run)
    }

    /// Acquires a stopped run.
    pub(crate) fn open(files: &RunFiles, context: &Context) -> Result<Self> {
        let (steps, log) = StepLog::open(files, &context.home)?;
        Self::of(files, steps, log, context)
    }

    /// A run after the steps of its log, the line of whose last step a killed process may not have written.
    fn of(files: &RunFiles, steps: StepLog, log: Vec<Step>, context: &Context) -> Result<Self> {
        let last = log.last().cloned().unwrap_or(Step::Shown);
        let (plan, conversation) = Conversation::of_steps(log)?;
        // The coprocesses sync the same file before each effect, which includes all earlier entries.
        let ledger = Ledger::open(&files.ledger, Sync::Batch)?;
        let (agent, home) = (context.agent(plan.prompt.agent.as_deref()), context.home.root().to_owned());
        let mut run = Self { plan, conversation, deadline: None, policy_usd: None, home, steps, ledger, agent };
        run.missing(&last)?.into_iter().try_for_each(|line| run.note(line).map(drop))?;
        Ok(run)
    }

    /// Resumes the run with these limits, unless an earlier state of it was restored.
    pub(crate) fn resume(&mut self, files: &RunFiles, limits: Limits, context: &Context) -> Result<()> {
        let is_noted = |id: &str| self.conversation.calls.iter().any(|call| call.asked.id == id && call.is_noted);
        refuse_earlier(files, self.steps.seq(), is_noted)?;
        self.record(Step::Resumed(Owner::this(), limits))?;
        self.limit(context)
    }

    /// Sets the limits of this process: its deadline counts from now.
    fn limit(&mut self, context: &Context) -> Result<()> {
        let seconds = self.conversation.limits.deadline;
        self.deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        self.policy_usd = table::<Llm>(&context.home, "llm")?.budget_usd;
        Ok(())
    }

    /// Records the decision about a call.
    pub(crate) fn decide(&mut self, at: usize, decision: Decision, home: &Home) -> Result<()> {
        let id = self.conversation.calls[at].approval.as_ref().map(|approval| approval.id.clone());
        let id = id.ok_or_else(|| Error::new(Code::Conflict, "nothing was asked about the call"))?;
        self.record(Step::Decided(at, decision))?;
        answered(home, &id)
    }

    /// Writes a step to the log, and its lines to the ledger, and applies it.
    pub(crate) fn record(&mut self, mut step: Step) -> Result<()> {
        if let Step::Message(message) = &mut step
            && let Some(receipt) = message.receipt.as_ref().filter(|receipt| self.has(receipt))
        {
            // A false receipt would leave the answer without a line.
            if is_answer_since(self.ledger(), self.steps.seq(), receipt)? {
                self.steps.noted(receipt.seq);
            } else {
                message.receipt = None;
            }
        }
        let mut lines = self.lines(&step);
        // The lines come first, because the step has the receipt of the grant.
        if let Step::Decided(_, decision) = &mut step {
            for line in lines.drain(..) {
                let receipt = self.note(line)?;
                if let Decision::Approved(grant) = decision {
                    grant.receipt = Some(receipt);
                }
            }
        }
        self.steps.append(&step)?;
        lines.into_iter().try_for_each(|line| self.note(line).map(drop))?;
        self.conversation.take(step)
    }

    /// Writes a line to the ledger.
    fn note(&mut self, line: Entry) -> Result<Receipt> {
        let receipt = self.ledger.append(line).map_err(Error::fatal)?;
        self.steps.noted(receipt.seq);
        Ok(receipt)
    }

    /// Records that the run has stopped with an error, and keeps its recording.
    pub(crate) fn pause(&mut self, error: &Error) -> Result<Receipt> {
        let line = self.entry("run_paused").message(error.message()).with("code", error.code().row().name);
        let receipt = self.note(line.with("tally", &self.conversation.tally))?;
        self.plan.record.as_ref().map_or(Ok(()), |record| self.steps.keep(record))?;
        Ok(receipt)
    }

    /// Ends the run, and removes its state, unless it is recorded.
    pub(crate) fn end(&mut self, status: &str, record: Option<&Path>) -> Result<()> {
        self.note(self.entry("run_end").with("status", status).with("tally", &self.conversation.tally))?;
        self.ledger.sync()?;
        self.steps.close(record)
    }

    /// Syncs the log and the ledger to the disk, before an effect that cannot be undone.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.steps.sync()?;
        self.ledger.sync()
    }

    /// A result that is too long for the conversation: its beginning and its end, with secrets redacted. The ledger
    /// stores all of it.
    pub(crate) fn shortened(&self, text: &str) -> Result<Option<String>> {
        let redactor = Redactor::from_environment();
        let Some(cut) = redactor.cut(text, LONGEST - LONGEST / 4, LONGEST / 4) else { return Ok(None) };
        let Some((missing, tail)) = cut.tail else { return Ok(Some(cut.head)) };
        let hash = blob::store(self.ledger(), redactor.redact_text(text).0.as_bytes())?;
        Ok(Some(format!("{}\n[… {missing} bytes are left out here, the whole is {hash} …]\n{tail}", cut.head)))
    }

    /// The ledger.
    pub(crate) fn ledger(&self) -> &Path {
        self.ledger.path()
    }

    /// The command that resumes this run.
    pub(crate) fn resume_line(&self, more: &str) -> String {
        let home = quoted(&self.home.display().to_string());
        format!("cp-toolloop --home {home} resume {}{more}", self.plan.run)
    }

    /// Adds the command that resumes this run to an error.
    pub(crate) fn resumable(&self, error: Error) -> Error {
        let error = error.with("run_id", self.plan.run.as_str());
        let details = error.details();
        let resume = details.get("resume").and_then(serde_json::Value::as_str);
        if resume.is_some_and(|line| line.starts_with("cp-toolloop ")) {
            return error;
        }
        // A resume may raise a shared budget for all its users.
        let amount = |name: &str| details.get(name).and_then(serde_json::Value::as_f64);
        let raised = ["tokens", "usd"].map(|unit| {
            let (limit, spent) = (amount(&format!("budget_{unit}"))?, amount(&format!("spent_{unit}"))?);
            Some(format!(" --budget-{unit} {}", limit.max(spent) * 2.0))
        });
        error.with("resume", self.resume_line(&raised.into_iter().flatten().collect::<String>()))
    }

    /// Fails if a limit is reached, with the command that resumes with a higher limit.
    pub(crate) fn check_limits(&self) -> Result<()> {
        let (tally, limits) = (&self.conversation.tally, &self.conversation.limits);
        let (turns, tokens, cost) = (tally.iterations, tally.usage.tokens(), tally.usage.cost_usd);
        if let Some(limit) = limits.max_iterations.filter(|limit| turns >= *limit) {
            let times = if turns == 1 { "once".to_owned() } else { format!("{turns} times") };
            let next = format!(" --max-iterations {}", limit.saturating_mul(2));
            return Err(self.exhausted("iterations", format!("the model was asked {times} and is not done"), &next));
        }
        if let Some(limit) = limits.tokens.filter(|limit| tokens >= *limit) {
            let next = format!(" --budget-tokens {}", limit.max(tokens).saturating_mul(2));
            return Err(self.exhausted("tokens", format!("{tokens} tokens were used, of {limit}"), &next));
        }
        if limits.usd.is_some() && turns > 0 && cost.is_none() {
            return Err(Error::config("the price of an answer is not known, so --budget-usd cannot be enforced")
                .hint("add the model to config/prices.toml, or use --budget-tokens"));
        }
        let spent = |limit: Option<f64>| limit.zip(cost).filter(|(limit, spent)| turns > 0 && spent >= limit);
        if let Some((limit, spent)) = spent(limits.usd) {
            let next = format!(" --budget-usd {:.4}", limit.max(spent) * 2.0);
            return Err(self.exhausted("usd", format!("{spent:.4} dollars were spent, of {limit:.4}"), &next));
        }
        if let Some((limit, spent)) = spent(self.policy_usd) {
            let message = format!("{spent:.4} dollars were spent, and policy allows a run {limit:.4}");
            let hint = "raise budget_usd in [llm] of the policy, then resume";
            return Err(self.exhausted("usd", message, "").hint(hint));
        }
        self.time_left().map(|_| ())
    }

    /// The remaining time of the run; `None` without a deadline.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) { Err(self.out_of_time()) } else { Ok(left) }
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
