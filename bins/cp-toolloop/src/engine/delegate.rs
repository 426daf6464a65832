//! Calls of agents: their share of the budget, their run, and their result.

use std::path::Path;
use std::time::Duration;

use cp_common::wire::{Prompt, Receipt, Scope, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::proof::leaves::receipt_of;
use cp_ledger::read;
use serde_json::json;

use super::{Engine, Pending};
use crate::parts::agent::{self, Agent, Ended, Share, Task};
use crate::state::plan::{self, RunFiles};
use crate::state::step::{Decision, Step};
use crate::state::summary::waiting;
use crate::state::summary::{Status, summary};
use crate::state::tally::Spent;

/// How long after its own deadline an agent may report its end.
const REPORT_TIME: Duration = Duration::from_secs(3);

impl Engine {
    /// Starts an agent for a call, or resumes the agent of the call. The inner error is a reason for the model.
    pub(super) fn delegate(
        &mut self,
        at: usize,
        call: &ToolCall,
        context: &Context,
    ) -> Result<std::result::Result<Agent, String>> {
        let task: Task = match serde_json::from_str(call.input.get()) {
            Ok(task) => task,
            Err(e) => return Ok(Err(format!("the arguments of agent are not valid: {e}"))),
        };
        let offered = |name: &String| self.run.plan.tools.iter().any(|tool| tool.name == *name);
        let names = match task.tools.clone() {
            Some(names) => names,
            None => self.run.plan.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        if let Some(unknown) = names.iter().find(|name| !offered(name)) {
            return Ok(Err(format!("Tool not permitted: {unknown}")));
        }
        let share = match self.share(task.max_iterations) {
            Ok(share) => share,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let before = self.run.conversation.calls[at].agent.clone();
        if let Some(run) = &before
            && let Some(agent) = self.rejoin(at, run, share, context)?
        {
            return Ok(agent);
        }
        let run = if let Some(run) = before {
            // The same run id is used again, so that of two agents one cannot start.
            run
        } else {
            let run = plan::new_id()?;
            let turn = self.run.conversation.tally.iterations;
            self.run.note(|journal| journal.delegated(turn, &call.id, &run))?;
            self.run.step(Step::Delegated(at, run.clone()))?;
            self.run.sync()?;
            run
        };
        let prompt = Prompt {
            agent: self.run.plan.prompt.agent.clone(),
            system: task.system,
            model: self.run.plan.prompt.model.clone(),
            params: self.run.plan.prompt.params.clone(),
            ..Prompt::of_text(&task.text)
        };
        let left = self.run.time_left()?;
        let arguments = agent::to_start(&self.run.plan, &run, &names, &share, left, context);
        self.shares.insert(at, share);
        Agent::start(run, &arguments, Some(&prompt)).map(Ok)
    }

    /// Resumes an agent that was started before; `None` if it did not start.
    fn rejoin(
        &mut self,
        at: usize,
        run: &str,
        share: Share,
        context: &Context,
    ) -> Result<Option<std::result::Result<Agent, String>>> {
        let Ok(files) = RunFiles::find(run, context) else { return Ok(None) };
        if let Some(ended) = Ended::kept(&files, context)? {
            return Ok(Some(Ok(Agent::over(run.to_owned(), ended))));
        }
        if files.state().exists() {
            let decisions = self.decisions_for(run, context);
            let left = self.run.time_left()?;
            let arguments = agent::to_resume(&self.run.plan, run, decisions, &share, left, context);
            self.shares.insert(at, share);
            return Agent::start(run.to_owned(), &arguments, None).map(|agent| Some(Ok(agent)));
        }
        let summary = summary(&files)?;
        if summary.status == Status::Cancelled {
            let spent = summary.tally.as_ref().map(Spent::from).unwrap_or_default();
            self.run.step(Step::Spent(at, spent))?;
            return Ok(Some(Err(format!("the agent was cancelled ({run})"))));
        }
        Ok(None)
    }

    /// Half of the remaining budget, without the shares of other agents.
    fn share(&self, asked: Option<u64>) -> std::result::Result<Share, String> {
        let (tally, limits) = (&self.run.conversation.tally, &self.run.conversation.limits);
        let given = self.shares.values();
        let iterations = given.clone().map(|share| share.iterations).sum::<u64>() + tally.all_iterations();
        let tokens = given.clone().filter_map(|share| share.tokens).sum::<u64>() + tally.tokens();
        let usd = given.filter_map(|share| share.usd).sum::<f64>() + tally.usage.cost_usd.unwrap_or(0.0);
        let iterations = limits.max_iterations.saturating_sub(iterations) / 2;
        let share = Share {
            iterations: asked.map_or(iterations, |asked| asked.min(iterations)),
            tokens: limits.tokens.map(|limit| limit.saturating_sub(tokens) / 2),
            usd: self.run.usd_limit().map(|limit| (limit - usd) / 2.0),
        };
        if share.iterations == 0 || share.tokens == Some(0) || share.usd.is_some_and(|usd| usd <= 0.0) {
            return Err("not enough of the budget is left for an agent".to_owned());
        }
        Ok(share)
    }

    /// The decisions about calls of a run and its agents, as options.
    fn decisions_for(&self, run: &str, context: &Context) -> Vec<String> {
        let there = waiting(run, context);
        let meant = self.forwarded.iter().filter(|(named, _)| there.iter().any(|waiting| waiting.is(named)));
        meant
            .flat_map(|(named, decision)| match decision {
                Decision::Approved(grant) => {
                    let always = (grant.scope == Scope::Run).then(|| "--always".to_owned());
                    [format!("--approve={named}")].into_iter().chain(always).collect()
                }
                Decision::Denied(reason) => vec![format!("--deny={named}"), format!("--message={reason}")],
            })
            .collect()
    }

    /// Waits for an agent. An approval that it requires becomes an approval of this run.
    pub(super) fn returned(&mut self, pending: &Pending, agent: Agent, context: &Context) -> Result<ToolResult> {
        let run = agent.run.clone();
        let ended = agent.ended(self.run.deadline.map(|deadline| deadline + REPORT_TIME), &mut |_| Ok(()));
        self.shares.remove(&pending.at);
        let Some(Ended { text, tally, failure }) = ended? else { return Err(self.run.out_of_time()) };
        if let Some(failure) = &failure {
            match failure.code() {
                Code::HumanRequired => return Err(self.human_below(&run, failure)),
                Code::Interrupted => signals::check()?,
                Code::BudgetExhausted if failure.details().get("budget").is_some_and(|budget| budget == "time") => {
                    return Err(self.run.out_of_time());
                }
                // Another process runs the agent, so its result is not known yet.
                Code::Conflict => return Err(Error::new(Code::Conflict, failure.message()).with("agent", run)),
                _ => {}
            }
        }
        self.run.step(Step::Spent(pending.at, Spent::from(&tally)))?;
        let is_error = failure.is_some();
        let answer = match failure {
            None => text,
            Some(failure) => {
                let so_far = if text.is_empty() { String::new() } else { format!("\n\nSo far: {text}") };
                format!("{}: {} ({run}){so_far}", failure.code().row().name, failure.message())
            }
        };
        let receipt = RunFiles::find(&run, context).ok().and_then(|files| tip(&files.ledger));
        Ok(ToolResult { is_error, receipt, ..pending.failed(answer) })
    }

    /// The error of a run whose agent requires approval. The decision is passed on to the agent.
    fn human_below(&self, run: &str, failure: &Error) -> Error {
        let details = failure.details();
        let mut error = Error::new(Code::HumanRequired, failure.message()).with("agent", run);
        for name in ["action", "call", "questions", "approval", "approve", "hint"] {
            error = match (name, details.get(name).cloned()) {
                (_, None) => error,
                ("hint", Some(hint)) => error.hint(hint.as_str().unwrap_or_default()),
                ("call", Some(mut call)) => {
                    let id = call.get("id").and_then(|id| id.as_str()).unwrap_or_default();
                    let id = if details.contains_key("agent") { id.to_owned() } else { format!("{run}/{id}") };
                    call["id"] = json!(id);
                    error
                        .with("call", call)
                        .with("resume", self.run.resume_line(&format!(" --approve {id}")))
                        .with("otherwise", self.run.resume_line(&format!(" --deny {id} --message no")))
                }
                (_, Some(value)) => error.with(name, value),
            };
        }
        error.with("_untrusted", json!(["/call", "/questions", "/approval/shown"]))
    }
}

/// The newest entry of a ledger.
fn tip(ledger: &Path) -> Option<Receipt> {
    let mut lines = read::backward(ledger).ok()?;
    let line = lines.next().ok()??.stored()?;
    Some(receipt_of(ledger, &line))
}
