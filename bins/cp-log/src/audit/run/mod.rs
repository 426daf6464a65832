//! The model of a run: request → answer → call → decision → effect → result → next request. Every edge is checked by content, and the runs
//! of agents are joined with the calls that began them.
//!
//! `approvals.rs` joins requests for approval, grants and their use, also outside of runs; `calls.rs` joins messages, calls and results;
//! `effects.rs` compares commands and changes with the calls; `budget.rs` adds up the usage; `agents.rs` compares calls with agents.

mod agents;
mod approvals;
mod budget;
mod calls;
mod effects;
mod form;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use cp_common::Result;
use serde_json::Value;

use self::agents::Links;
use self::approvals::Approvals;
use self::budget::Budget;
use self::calls::{Answer, Call, Given};
use super::check::{Check, at};
use super::claim::{Claims, Entry, Source, Verdict};

/// The events of a run that are joined.
const EVENTS: &str = "run_start run_resumed run_paused run_end iteration context_compacted llm.request llm.response message tool_screened \
                      tool_sifted tool_call tool_result agent_start approval.asked approval.granted approval.denied approval.spent \
                      exec.intent exec.step exec.result exec.evidence exec.changes exec.operation exec.refused";

const ENDED: &str = "the run has ended before: it was killed at its end, or its state was restored";

/// The runs of all ledgers that are read.
#[derive(Default)]
pub(super) struct Runs {
    begun: BTreeMap<(PathBuf, String), Run>,
    approvals: Approvals,
    links: Links,
}

/// The state of a run after the entries that were read.
#[derive(Default)]
struct Run {
    agent: Option<String>,
    session: Option<String>,
    /// The agent and the session in the entries of other programs.
    of_programs: HashMap<String, (Option<String>, Option<String>)>,
    base: String,
    /// The tools: true if each call of it requires approval, and the end of the path of an executable one.
    tools: HashMap<String, (bool, Option<String>)>,
    /// True if the model is cp-llm, which records each request on this ledger.
    records_requests: bool,
    question: Value,
    messages: u64,
    state: State,
    /// True if the run was resumed after the last iteration.
    is_resumed: bool,
    turn: u64,
    /// The turn of the last message.
    answered: u64,
    /// The last response of the model in this turn, and the request that waits for one.
    answer: Option<Answer>,
    request: Option<Value>,
    calls: Vec<Call>,
    /// The results that the next request has to show.
    given: Vec<Given>,
    was_compacted: bool,
    budget: Budget,
    /// The command of each intent: its call, the hash of its executable, and what is known of its end.
    commands: BTreeMap<u64, effects::Command>,
    /// The operation of each entry without a process, with its call.
    operations: HashMap<u64, Option<String>>,
    last: Option<Source>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Active,
    Paused,
    Ended,
}

impl Runs {
    /// Judges an entry. `agents` receives the runs that it began, whose ledgers are to be read too.
    pub(super) fn judge(
        &mut self,
        entry: &Entry<'_>,
        agents: &mut Vec<PathBuf>,
        claims: &mut Claims<'_>,
    ) -> Result<()> {
        if !EVENTS.split_whitespace().any(|event| event == entry.event) {
            return Ok(());
        }
        let Some(name) = entry.run.clone() else {
            self.foreign(entry, claims)?;
            return self.approvals.judge(entry, None, claims);
        };
        let key = (entry.ledger.to_owned(), name.clone());
        if entry.event == "run_start" {
            let mut check = Check::of(entry);
            check.that(!self.begun.contains_key(&key), || "the run has begun before".to_owned());
            form::judge(entry, &mut check);
            claims.record(entry.source(), "order", check.verdict())?;
            self.links.begin(&name, entry);
            self.begun.insert(key, Run::begin(entry));
            return Ok(());
        }
        let Some(run) = self.begun.get_mut(&key) else {
            self.foreign(entry, claims)?;
            return self.approvals.judge(entry, None, claims);
        };
        run.order(entry, claims)?;
        self.approvals.judge(entry, Some(run), claims)?;
        match entry.event.as_str() {
            "llm.request" => run.request(entry, claims)?,
            "llm.response" => run.response(entry, claims)?,
            "message" => run.message(entry, claims)?,
            "tool_screened" => run.screened(entry),
            "tool_sifted" => run.sifted(entry),
            "tool_call" => run.call(entry, claims)?,
            "tool_result" => run.result(entry, claims)?,
            "context_compacted" => run.was_compacted = true,
            "agent_start" => agents.extend(self.links.start(&name, run, entry, claims)?),
            _ => run.effect(entry, claims)?,
        }
        self.links.follow(&name, entry);
        run.budget.add(entry);
        let Some(tally) = entry.data.get("tally") else { return Ok(()) };
        let sum = run.budget.clone();
        match self.links.tally(&name, entry, tally, sum) {
            Some(verdict) => claims.record(entry.source(), "budget", verdict),
            None => Ok(()),
        }
    }

    /// Judges an entry of no run that has begun: the ledger of a run has only entries of that run.
    fn foreign(&self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let mut begun = self.begun.range((entry.ledger.to_owned(), String::new())..);
        if begun.next().is_none_or(|((ledger, _), _)| ledger != entry.ledger) {
            return Ok(());
        }
        claims.record(entry.source(), "order", Verdict::Broken("it belongs to no run that has begun here".to_owned()))
    }

    /// Judges what could not be before all entries were seen.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for run in self.begun.into_values() {
            run.finish(claims)?;
        }
        self.approvals.finish(claims)?;
        self.links.finish(claims)
    }
}

impl Run {
    fn begin(entry: &Entry<'_>) -> Self {
        let data = &entry.data;
        let list = data.get("tools").and_then(Value::as_array).into_iter().flatten();
        let tool = |tool: &Value| {
            let name = at(tool, &["name"]).as_str()?.to_owned();
            let path = match at(tool, &["link"]).as_str() {
                // The program is a link in the home, which has this name.
                Some(link) => Some(format!("/{}", link.rsplit('/').next().unwrap_or_default())),
                None => at(tool, &["path"]).as_str().map(str::to_owned),
            };
            Some((name, (at(tool, &["approve"]) == true, path)))
        };
        let model = data.get("model_command").and_then(|argv| argv.get(0)?.as_str()).unwrap_or_default();
        Self {
            agent: entry.agent.clone(),
            session: entry.session.clone(),
            base: entry.text("base").unwrap_or_default().to_owned(),
            tools: list.filter_map(tool).collect(),
            records_requests: model.rsplit('/').next() == Some("cp-llm"),
            question: entry.content.clone(),
            messages: entry.number("messages").unwrap_or_default(),
            budget: Budget::begin(data),
            last: Some(entry.source()),
            ..Self::default()
        }
    }

    /// Judges the place of an entry in its run.
    fn order(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let mut check = Check::of(entry);
        self.last = Some(entry.source());
        let turn = entry.turn.unwrap_or_default();
        match entry.event.as_str() {
            "iteration" => {
                let is_next = turn == self.turn + 1 || self.is_resumed && turn == self.turn;
                check.that(is_next, || format!("turn {turn} does not follow turn {}", self.turn));
                check.that(self.calls.iter().all(|call| call.is_answered), || "a call has no result".to_owned());
                (self.turn, self.is_resumed, self.answer, self.request) = (turn, false, None, None);
                self.commands.retain(|_, command| command.is_open());
                self.operations.clear();
                if let Some(why) = self.budget.exceeded(self.turn) {
                    check.that(false, || why);
                }
            }
            "message" | "tool_call" | "tool_result" | "agent_start" | "tool_screened" | "tool_sifted" => {
                check.that(turn == self.turn, || {
                    format!("it belongs to turn {turn}, and turn {} is under way", self.turn)
                });
            }
            "context_compacted" => {
                check.that(turn == self.turn + 1, || format!("it does not follow turn {}", self.turn));
            }
            "run_resumed" => {
                let was_killed = self.state == State::Active;
                self.budget.resume(&entry.data, was_killed);
                if self.state == State::Ended {
                    check.unknown(ENDED);
                }
                (self.state, self.is_resumed) = (State::Active, true);
            }
            _ => {}
        }
        // The changes of a run are undone after its end.
        let is_undo = entry.text("operation") == Some("filesystem.restore_files") || entry.event == "exec.refused";
        if self.state == State::Ended && !is_undo {
            // A run that is killed after its end and before its state is removed can be resumed or cancelled.
            let is_again = entry.event == "run_end" && entry.text("status") == Some("cancelled");
            check.that(is_again, || "the run has ended before".to_owned()).unknown(ENDED);
        }
        let may_be_paused =
            entry.event.starts_with("approval.") || entry.event.starts_with("exec.") || entry.event == "run_end";
        check.that(self.state != State::Paused || may_be_paused, || "the run is paused".to_owned());
        let own = (self.agent.clone(), self.session.clone());
        let found = (entry.agent.clone(), entry.session.clone());
        // The other programs take the agent and the session from their command line, which is the same for all entries of one.
        let program = entry.event.split_once('.').map_or("", |(program, _)| program);
        let holds = match program {
            "exec" | "llm" => *self.of_programs.entry(program.to_owned()).or_insert_with(|| found.clone()) == found,
            "approval" => found == own || self.of_programs.get("exec").is_none_or(|exec| *exec == found),
            _ => found == own,
        };
        check.that(holds, || "the agent or the session is another than in the run".to_owned());
        form::judge(entry, &mut check);
        self.stop(entry, &mut check);
        claims.record(entry.source(), "order", check.verdict())
    }

    /// Judges the stop of a run.
    fn stop(&mut self, entry: &Entry<'_>, check: &mut Check) {
        match entry.event.as_str() {
            "run_paused" => {
                let code = entry.text("code").and_then(cp_common::Code::from_name);
                check.that(code.is_some(), || format!("{} is not an error code", entry.text("code").unwrap_or("null")));
                self.state = State::Paused;
            }
            "run_end" => {
                let is_completed = entry.text("status") == Some("completed");
                check.that(is_completed || entry.text("status") == Some("cancelled"), || {
                    "its status is not one".to_owned()
                });
                check.that(!is_completed || self.answered == self.turn, || "the last turn has no message".to_owned());
                check.that(!is_completed || self.calls.is_empty(), || "the last message has calls".to_owned());
                self.state = State::Ended;
            }
            _ => {}
        }
    }

    fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for (source, why) in self.unfinished() {
            claims.record(source, "finished", Verdict::Unknown(why))?;
        }
        self.commands.into_values().try_for_each(|command| command.finish(claims))?;
        match self.last.filter(|_| self.state == State::Active) {
            Some(source) => {
                let why = "the run has neither an end nor a pause: it is under way, or was killed".to_owned();
                claims.record(source, "order", Verdict::Unknown(why))
            }
            None => Ok(()),
        }
    }
}
