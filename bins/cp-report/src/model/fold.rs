//! The sums over all lines, which the page shows above them. The number of distinct names is limited.

use std::collections::{BTreeMap, HashMap};

use cp_ledger::usage::UsageTotals;
use serde::Serialize;

use super::entry::{Entry, Json};
use super::spans::{LANES, Place, Span, Step, push, spend, thin};

/// The most names of one kind that are counted apart; the others count as one.
const NAMES: usize = 1000;
const OTHERS: &str = "(all others)";

/// Counts and usage.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Totals {
    /// The first line that counts here.
    pub(crate) first: Option<Place>,
    /// Turns of loops.
    pub(crate) turns: u64,
    /// Requests to models that were answered.
    pub(crate) answers: u64,
    /// Requests that were made again.
    pub(crate) retries: u64,
    /// Calls of tools.
    pub(crate) calls: u64,
    /// Commands that were started.
    pub(crate) commands: u64,
    /// Actions that were not allowed.
    pub(crate) refusals: u64,
    /// Approvals by a person.
    pub(crate) approvals: u64,
    /// Failures.
    pub(crate) failures: u64,
    #[serde(flatten)]
    pub(crate) usage: UsageTotals,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// Its name.
    pub(crate) id: String,
    /// The task.
    pub(crate) task: String,
    /// Its status.
    pub(crate) status: String,
    /// The agent.
    pub(crate) agent: String,
    /// The directory.
    pub(crate) base: String,
    /// The ledger that it is on, from 0.
    pub(crate) ledger: usize,
    /// Milliseconds since 1970.
    pub(crate) started: i64,
    /// The same, of its last line.
    pub(crate) ended: i64,
    /// Counts and usage.
    pub(crate) totals: Totals,
    /// Each limit: its name, what was used, and the most.
    pub(crate) limits: Vec<(String, f64, f64)>,
    /// True if lines record the requests to the model; else the usage is that of the messages.
    #[serde(skip)]
    is_asked: bool,
    /// When its last turn began.
    #[serde(skip)]
    turn_began: i64,
}

/// Times that something took: how many, all together, the longest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) total_ms: f64,
    pub(crate) longest_ms: f64,
    /// The line of the longest.
    pub(crate) longest: Place,
}

/// How often, and where first.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Count {
    pub(crate) times: u64,
    pub(crate) first: Place,
}

impl Count {
    fn add(&mut self, place: Place) {
        if self.times == 0 {
            self.first = place;
        }
        self.times += 1;
    }
}

/// The sums over all lines.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Overview {
    /// The time of the first line.
    pub(crate) from: Option<String>,
    /// The time of the last line.
    pub(crate) until: Option<String>,
    /// How many lines there are.
    pub(crate) lines: u64,
    /// All of them together.
    pub(crate) totals: Totals,
    /// Runs, as they began.
    pub(crate) runs: Vec<Run>,
    /// Sessions: name and how many messages.
    pub(crate) sessions: BTreeMap<String, Count>,
    /// By day.
    pub(crate) days: BTreeMap<String, Totals>,
    /// By model.
    pub(crate) models: BTreeMap<String, Totals>,
    /// How often each rule refused.
    pub(crate) refusals: BTreeMap<String, Count>,
    /// How often each code ended something.
    pub(crate) failures: BTreeMap<String, Count>,
    /// How long each tool took.
    pub(crate) tools: BTreeMap<String, Times>,
    /// How many answers took at most 2, 4, 8 … milliseconds.
    pub(crate) latencies: Vec<u64>,
    /// Spans of time: a lane each for the model, tools, commands and people.
    pub(crate) lanes: [Vec<Span>; LANES.len()],
    /// The usage of each turn.
    pub(crate) turns: Vec<Step>,
    /// The first line of what the totals count.
    pub(crate) firsts: BTreeMap<&'static str, Place>,
    #[serde(skip)]
    state: State,
}

#[derive(Default)]
struct State {
    runs: HashMap<String, usize>,
    /// The time at which each approval was requested.
    asked: HashMap<String, i64>,
    /// When a request to a model failed, by run and request.
    failed: HashMap<String, i64>,
    /// The usage in messages outside of runs, for ledgers without lines of the requests.
    of_messages: UsageTotals,
    /// The ledger in which a turn has begun and the run has not ended.
    turn_of: Option<usize>,
}

/// The value of a name, or of all others.
fn named<'a, T: Default>(map: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    let name = if map.len() < NAMES || map.contains_key(name) { name } else { OTHERS };
    map.entry(name.to_owned()).or_default()
}

impl Totals {
    /// The counts that a page names first, where they are not zero.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("turns", self.turns),
            ("answers", self.answers),
            ("retries", self.retries),
            ("calls", self.calls),
            ("commands", self.commands),
            ("refusals", self.refusals),
            ("approvals", self.approvals),
            ("failures", self.failures),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    fn add(&mut self, entry: &Entry<'_>, place: Place, answer: Option<&Step>) {
        self.first.get_or_insert(place);
        if let Some(used) = answer {
            self.answers += u64::from(!entry.is_failed());
            self.usage.add(&used.usage);
        }
        match &*entry.event {
            "iteration" => self.turns += 1,
            "llm.response" => {
                self.retries += u64::from(entry.number("attempt").is_some_and(|attempt| attempt > 1.0));
            }
            "tool_call" => self.calls += 1,
            "exec.intent" => self.commands += 1,
            "exec.refused" | "exec.step" | "exec.connection" if entry.is_refused() => {
                self.refusals += 1;
            }
            "approval.granted" => self.approvals += 1,
            _ => {}
        }
        // The tool result of a command and the closing line of a program repeat a failure of another line.
        self.failures += u64::from(matches!(&*entry.event, "exec.result" | "llm.response") && entry.is_failed());
    }
}

/// The tokens and the cost of an answer.
fn step_of(entry: &Entry<'_>, place: Place) -> Step {
    Step { place, turn: None, count: 1, usage: usage_of(entry) }
}

fn usage_of(entry: &Entry<'_>) -> UsageTotals {
    entry.get("usage").and_then(Json::usage).unwrap_or_default()
}

impl Overview {
    /// Adds a line of this ledger. Whether its run was not known before.
    pub(crate) fn add(&mut self, ledger: usize, entry: &Entry<'_>) {
        self.lines += 1;
        if self.from.as_deref().is_none_or(|from| entry.ts < from) {
            self.from = Some(entry.ts.to_owned());
        }
        // A signature, or another file of the ledger, comes after what happened.
        let is_own = entry.event.starts_with("ledger.") || entry.event.starts_with("segment.");
        if self.until.as_deref().is_none_or(|until| entry.ts > until && !is_own) {
            self.until = Some(entry.ts.to_owned());
        }
        let (time, place) = (entry.time(), (ledger, entry.seq));
        let answer = self.add_run(time, entry, place);
        self.totals.add(entry, place, answer.as_ref());
        for (name, _) in self.totals.counts() {
            self.firsts.entry(name).or_insert(place);
        }
        named(&mut self.days, entry.ts.get(..10).unwrap_or_default()).add(entry, place, answer.as_ref());
        if let Some(model) = entry.text("model").filter(|_| answer.is_some()) {
            named(&mut self.models, &model).add(entry, place, answer.as_ref());
        }
        self.add_span(ledger, time, entry, answer.is_some());
        self.add_turn(entry, place, answer);
        match &*entry.event {
            "llm.response" => {
                let took = entry.number("duration_ms").unwrap_or(0.0).max(1.0);
                let step = (0..40).find(|step| took <= f64::from(2_u32.saturating_pow(step + 1))).unwrap_or(0) as usize;
                self.latencies.resize(self.latencies.len().max(step + 1), 0);
                self.latencies[step] += 1;
            }
            "message" => {
                if entry.run.is_none() {
                    self.state.of_messages.add(&usage_of(entry));
                }
                if let Some(session) = entry.session.as_deref().filter(|_| entry.run.is_none()) {
                    named(&mut self.sessions, session).add(place);
                }
            }
            "exec.refused" | "exec.step" | "exec.connection" if entry.is_refused() => {
                named(&mut self.refusals, &entry.text("rule").unwrap_or("(none)".into())).add(place);
            }
            "tool_result" => {
                let took = entry.number("duration_ms").unwrap_or(0.0);
                let times = named(&mut self.tools, &entry.text("name").unwrap_or_default());
                times.count += 1;
                times.total_ms += took;
                if times.count == 1 || took > times.longest_ms {
                    (times.longest_ms, times.longest) = (took, place);
                }
            }
            _ => {}
        }
        if let Some(code) = entry.text("code").filter(|_| entry.event != "exec.refused") {
            named(&mut self.failures, &code).add(place);
        }
    }

    fn add_turn(&mut self, entry: &Entry<'_>, place: Place, answer: Option<Step>) {
        match (&*entry.event, answer) {
            ("iteration", _) => {
                self.state.turn_of = Some(place.0);
                push(&mut self.turns, Step { place, turn: entry.turn, count: 1, ..Step::default() });
            }
            ("run_end", _) => self.state.turn_of = None,
            (_, Some(used)) if self.state.turn_of == Some(place.0) => spend(&mut self.turns, &used),
            (_, Some(used)) if !entry.is_failed() => push(&mut self.turns, used),
            _ => {}
        }
    }

    /// Adds the line to its run. Returns the usage, if the line is the response of a model.
    fn add_run(&mut self, time: i64, entry: &Entry<'_>, place: Place) -> Option<Step> {
        let said = || step_of(entry, place);
        let asked = (entry.event == "llm.response").then(said);
        let Some(id) = entry.run.as_deref() else { return asked };
        if entry.event == "run_start" && self.runs.len() < NAMES && !self.state.runs.contains_key(id) {
            self.state.runs.insert(id.to_owned(), self.runs.len());
            let text = |path: &str| entry.text(path).unwrap_or_default().into_owned();
            let task = entry.content.map(Json::pretty).unwrap_or_default();
            self.runs.push(Run {
                id: id.to_owned(),
                task: task.chars().take(500).collect(),
                status: "not ended".to_owned(),
                agent: entry.agent.as_deref().unwrap_or_default().to_owned(),
                base: text("base"),
                ledger: place.0,
                started: time,
                ..Run::default()
            });
        }
        let Some(run) = self.state.runs.get(id).and_then(|at| self.runs.get_mut(*at)) else { return asked };
        run.ended = run.ended.max(time);
        run.is_asked |= entry.event.starts_with("llm.");
        // The answer of a program that is not cp-llm is only in its message.
        let is_said = entry.event == "message" && !run.is_asked && entry.get("usage").is_some();
        let answer = asked.or_else(|| is_said.then(said));
        run.totals.add(entry, place, answer.as_ref());
        match &*entry.event {
            "run_start" | "run_resumed" => {
                let limit = |name: &str| Some((name.to_owned(), 0.0, entry.number(&format!("limits.{name}"))?));
                run.limits = ["max_iterations", "tokens", "usd", "deadline"].into_iter().filter_map(limit).collect();
            }
            "iteration" => run.turn_began = time,
            "run_end" => run.status = entry.text("status").unwrap_or_default().into_owned(),
            "run_paused" => run.status = format!("paused: {}", entry.text("code").unwrap_or_default()),
            _ => {}
        }
        answer
    }

    fn add_span(&mut self, ledger: usize, time: i64, entry: &Entry<'_>, is_answer: bool) {
        #[expect(clippy::cast_possible_truncation, reason = "a duration in milliseconds")]
        let took = entry.number("duration_ms").map(|took| took as i64);
        let id = || entry.text("id").unwrap_or_default().into_owned();
        let request = || {
            let run = entry.run.as_deref().unwrap_or_default();
            format!("{run} {}", entry.text("request_hash").unwrap_or_default())
        };
        let run = || self.runs.get(*self.state.runs.get(entry.run.as_deref()?)?);
        let (lane, start) = match &*entry.event {
            "llm.request" => match self.state.failed.remove(&request()) {
                Some(since) if entry.number("attempt").is_some_and(|attempt| attempt > 1.0) => (0, since),
                _ => return,
            },
            "llm.response" => {
                if entry.is_failed() && self.state.failed.len() < NAMES {
                    self.state.failed.insert(request(), time);
                }
                (0, time - took.unwrap_or(0))
            }
            "message" if is_answer => (0, run().map_or(time, |run| run.turn_began).min(time)),
            "tool_result" => (1, time - took.unwrap_or(0)),
            "exec.result" => (2, time - took.unwrap_or(0)),
            "exec.refused" | "exec.step" | "exec.connection" if entry.is_refused() => (2, time),
            "approval.asked" => {
                if self.state.asked.len() < NAMES {
                    self.state.asked.insert(id(), time);
                }
                return;
            }
            "approval.granted" | "approval.denied" => (3, self.state.asked.remove(&id()).unwrap_or(time)),
            _ => return,
        };
        // A person who is asked, and a request that waits for the next attempt, do nothing.
        let tone = match (entry.is_refused(), entry.is_failed(), lane == 3 || entry.event == "llm.request") {
            (true, _, _) => 2,
            (_, true, _) => 1,
            (_, _, true) => 3,
            _ => 0,
        };
        let spans = &mut self.lanes[lane];
        spans.push(Span { lane, tone, start, end: time, place: (ledger, entry.seq), count: 1 });
        if spans.len() > 4000 {
            thin(spans);
        }
    }

    /// Completes the sums, when all lines are there.
    pub(crate) fn finish(&mut self) {
        self.lanes.iter_mut().for_each(thin);
        if self.totals.answers == 0 {
            self.totals.usage = self.state.of_messages;
        }
        for run in &mut self.runs {
            let Totals { turns, usage, .. } = &run.totals;
            for (name, used, _) in &mut run.limits {
                #[expect(clippy::cast_precision_loss, reason = "these are shown as bars")]
                let spent = match name.as_str() {
                    "tokens" => usage.input_tokens.saturating_add(usage.output_tokens) as f64,
                    "usd" => usage.dollars(),
                    "deadline" => (run.ended - run.started) as f64 / 1000.0,
                    _ => *turns as f64,
                };
                *used = spent;
            }
        }
    }
}
