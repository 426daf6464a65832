//! Giving a call to an agent: with which share of the budget, in which run, and what its end means for ours.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::wire::{Prompt, Receipt, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::read;
use serde_json::json;

use crate::agent::{self, Agent, Ended, Failure, Share, Task};
use crate::builtin::AGENT_NAME;
use crate::conversation::Conversation;
use crate::dispatch::answer;
use crate::engine::Engine;
use crate::journal::{self, Decision, Step};
use crate::place::{self, Place, Status};
use crate::plan;
use crate::tally::Spent;
use crate::tool::{Origin, Tool};

/// How much longer than its own deadline an agent may take to say that it is over.
const PATIENCE: Duration = Duration::from_secs(3);

/// A call that waits for a word, somewhere below a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The run whose call it is.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
}

impl Waiting {
    /// Whether a person who wrote `named` means this call.
    pub(crate) fn is(&self, named: &str) -> bool {
        named == self.call || named.split_once('/').is_some_and(|(run, call)| run == self.run && call == self.call)
    }
}

/// Whether a tool is the one that gives a task to an agent.
pub(crate) fn is_agent(tool: &Tool) -> bool {
    tool.origin == Origin::Builtin && tool.name == AGENT_NAME
}

/// The calls that wait in a run, and in the runs of its agents.
pub(crate) fn waiting(run: &str, context: &Context) -> Vec<Waiting> {
    let Ok(conversation) = place::find(run, context).and_then(|place| journal::standing(&place.ledger)) else {
        return Vec::new();
    };
    waiting_in(run, &conversation, context)
}

/// The calls that wait in a run that stands there, and in the runs of its agents.
pub(crate) fn waiting_in(run: &str, conversation: &Conversation, context: &Context) -> Vec<Waiting> {
    let calls = conversation.calls.iter().filter(|call| call.result.is_none());
    calls
        .flat_map(|call| match &call.agent {
            Some(agent) => waiting(agent, context),
            None => vec![Waiting { run: run.to_owned(), call: call.asked.id.clone() }],
        })
        .collect()
}

impl Engine {
    /// Gives a call to an agent, or goes on with the one that works on it. `Err` in the answer: why there is none, for the model.
    pub(crate) fn delegate(
        &mut self,
        at: usize,
        call: &ToolCall,
        context: &Context,
    ) -> Result<std::result::Result<Agent, String>> {
        let task: Task = match serde_json::from_str(call.input.get()) {
            Ok(task) => task,
            Err(e) => return Ok(Err(format!("the task cannot be understood: {e}"))),
        };
        let offered = |name: &String| self.plan.tools.iter().any(|tool| tool.name == *name);
        let names = match task.tools.clone() {
            Some(names) => names,
            None => self.plan.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        if let Some(unknown) = names.iter().find(|name| !offered(name)) {
            return Ok(Err(format!("Tool not permitted: {unknown}")));
        }
        let share = match self.share(task.max_iterations) {
            Ok(share) => share,
            Err(words) => return Ok(Err(words)),
        };
        let before = self.conversation.calls[at].agent.clone();
        let left = self.time_left()?;
        if let Some(run) = &before
            && let Ok(place) = place::find(run, context)
        {
            if let Some(ended) = kept(&place, context)? {
                return Ok(Ok(Agent::over(run.clone(), ended)));
            }
            if journal::path_of(&place.ledger).exists() {
                let words = self.words_for(run, context);
                let arguments = agent::to_resume(&self.plan, run, words, &share, left, context);
                self.shares.insert(at, share);
                return Agent::start(run.clone(), &arguments, None).map(Ok);
            }
            if place::summary(&place)?.status == Status::Cancelled {
                return Ok(Err(format!("the agent was cancelled ({run})")));
            }
        }
        let run = if let Some(run) = before {
            // The same one again: of two that were started under one name, one cannot begin.
            run
        } else {
            let run = plan::new_id()?;
            let turn = self.conversation.tally.iterations;
            self.note(|book| book.delegated(turn, &call.id, &run))?;
            self.step(Step::Delegated(at, run.clone()))?;
            self.sync()?;
            run
        };
        let prompt = Prompt {
            agent: self.plan.prompt.agent.clone(),
            system: task.system,
            model: self.plan.prompt.model.clone(),
            params: self.plan.prompt.params.clone(),
            ..Prompt::of_text(&task.text)
        };
        let arguments = agent::to_start(&self.plan, &run, &names, &share, left, context);
        self.shares.insert(at, share);
        Agent::start(run, &arguments, Some(&prompt)).map(Ok)
    }

    /// Half of what is left, what other agents were given taken away.
    fn share(&self, asked: Option<u64>) -> std::result::Result<Share, String> {
        let (tally, limits) = (&self.conversation.tally, &self.conversation.limits);
        let given = self.shares.values();
        let iterations = given.clone().map(|share| share.iterations).sum::<u64>() + tally.all_iterations();
        let tokens = given.clone().filter_map(|share| share.tokens).sum::<u64>() + tally.tokens();
        let usd = given.filter_map(|share| share.usd).sum::<f64>() + tally.usage.cost_usd.unwrap_or(0.0);
        let iterations = limits.max_iterations.saturating_sub(iterations) / 2;
        let share = Share {
            iterations: asked.map_or(iterations, |asked| asked.min(iterations)),
            tokens: limits.tokens.map(|limit| limit.saturating_sub(tokens) / 2),
            usd: limits.usd.map(|limit| (limit - usd) / 2.0),
        };
        if share.iterations == 0 || share.tokens == Some(0) || share.usd.is_some_and(|usd| usd <= 0.0) {
            return Err("not enough of the budget is left for an agent".to_owned());
        }
        Ok(share)
    }

    /// What people said about calls below a run, as options.
    fn words_for(&self, run: &str, context: &Context) -> Vec<String> {
        let there = waiting(run, context);
        let meant = self.forwarded.iter().filter(|(named, _)| there.iter().any(|waiting| waiting.is(named)));
        meant
            .flat_map(|(named, decision)| match decision {
                Decision::Approved => vec![format!("--approve={named}")],
                Decision::Denied(words) => vec![format!("--deny={named}"), format!("--message={words}")],
            })
            .collect()
    }

    /// Waits for an agent. What only a person can decide there, only a person can decide here.
    pub(crate) fn returned(
        &mut self,
        at: usize,
        call: &ToolCall,
        agent: Agent,
        began: Instant,
        context: &Context,
    ) -> Result<ToolResult> {
        let run = agent.run.clone();
        let ended = agent.ended(self.deadline.map(|deadline| deadline + PATIENCE));
        self.shares.remove(&at);
        let Some(ended) = ended? else { return Err(self.out_of_time()) };
        if let Some(failure) = &ended.failure {
            match failure.code {
                Code::HumanRequired => return Err(self.human_below(&run, failure)),
                Code::Interrupted => cp_common::signals::check()?,
                Code::BudgetExhausted if failure.details.get("budget").is_some_and(|budget| budget == "time") => {
                    return Err(self.out_of_time());
                }
                // Another process has it: what it will come to is not known yet.
                Code::Conflict => return Err(Error::new(Code::Conflict, failure.message.clone()).with("agent", run)),
                _ => {}
            }
        }
        self.step(Step::Spent(at, ended.spent))?;
        let words = match &ended.failure {
            None => ended.words,
            Some(failure) => {
                let said = if ended.words.is_empty() { String::new() } else { format!("\n\nSo far: {}", ended.words) };
                format!("{}: {} ({run}){said}", failure.code.row().name, failure.message)
            }
        };
        let receipt = place::find(&run, context).ok().and_then(|place| tip(&place.ledger));
        Ok(ToolResult { content: words, is_error: ended.failure.is_some(), receipt, ..answer(call, "", began) })
    }

    /// A person's word is needed below this run. It is said to this run, which hands it on.
    fn human_below(&self, run: &str, failure: &Failure) -> Error {
        let mut error = Error::new(Code::HumanRequired, failure.message.clone()).with("agent", run);
        for name in ["action", "call", "questions", "hint"] {
            error = match (name, failure.details.get(name).cloned()) {
                (_, None) => error,
                ("hint", Some(hint)) => error.hint(hint.as_str().unwrap_or_default()),
                ("call", Some(mut call)) => {
                    let id = call.get("id").and_then(|id| id.as_str()).unwrap_or_default();
                    let id = if failure.details.contains_key("agent") { id.to_owned() } else { format!("{run}/{id}") };
                    call["id"] = json!(id);
                    error
                        .with("call", call)
                        .with("resume", self.resume_line(&format!(" --approve {id}")))
                        .with("otherwise", self.resume_line(&format!(" --deny {id} --message no")))
                }
                (_, Some(value)) => error.with(name, value),
            };
        }
        error.with("_untrusted", json!(["/call", "/questions"]))
    }
}

/// What an agent came to that ended while nobody listened.
fn kept(place: &Place, context: &Context) -> Result<Option<Ended>> {
    let recording = journal::recording_of(&place.ledger);
    let Ok(text) = std::fs::read(&recording) else { return Ok(None) };
    let (steps, _) =
        journal::steps_of(&text, Some(&journal::key(&context.home)?)).map_err(|e| e.in_file(&recording))?;
    let (_, conversation) = Conversation::of_steps(steps)?;
    let words = conversation.last_words.as_ref().map(|message| message.content.text()).unwrap_or_default();
    Ok(Some(Ended { words, spent: Spent::from(&conversation.tally), failure: None }))
}

/// The newest entry of a ledger.
fn tip(ledger: &Path) -> Option<Receipt> {
    let mut lines = read::backward(ledger).ok()?;
    let line = lines.next().ok()??.stored()?;
    Some(Receipt { ledger: ledger.display().to_string(), seq: line.seq(), hash: line.hash().to_string() })
}
