//! All lines folded into what the page says above them. Names that lines make up are kept up to a number.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::entry::Entry;
use super::spans::{LANES, Span, Steps, thin};

/// The most names of one kind that are told apart; the others count as one.
const NAMES: usize = 1000;
const OTHERS: &str = "(all others)";

/// What was used and what happened.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Totals {
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
    /// What was not allowed.
    pub(crate) refusals: u64,
    /// What people allowed.
    pub(crate) approvals: u64,
    /// What failed.
    pub(crate) failures: u64,
    /// Tokens read.
    pub(crate) input_tokens: u64,
    /// Tokens written.
    pub(crate) output_tokens: u64,
    /// US dollars, as far as prices were known.
    pub(crate) cost_usd: f64,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// Its name.
    pub(crate) id: String,
    /// What was asked.
    pub(crate) task: String,
    /// How it stands.
    pub(crate) status: String,
    /// Who.
    pub(crate) agent: String,
    /// Where.
    pub(crate) base: String,
    /// The run that it is a part of.
    pub(crate) parent: Option<String>,
    /// The ledger that it is on, from 0.
    pub(crate) ledger: usize,
    /// Milliseconds since 1970.
    pub(crate) started: i64,
    /// The same, of its last line.
    pub(crate) ended: i64,
    /// What it used.
    pub(crate) totals: Totals,
    /// Each limit: its name, what was used, and the most.
    pub(crate) limits: Vec<(String, f64, f64)>,
}

/// Times that something took: how many, all together, the longest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) total_ms: f64,
    pub(crate) longest_ms: f64,
}

/// What all lines together say.
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
    pub(crate) sessions: BTreeMap<String, u64>,
    /// By day.
    pub(crate) days: BTreeMap<String, Totals>,
    /// By model.
    pub(crate) models: BTreeMap<String, Totals>,
    /// How often each rule refused.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// How often each code ended something.
    pub(crate) failures: BTreeMap<String, u64>,
    /// How long each tool took.
    pub(crate) tools: BTreeMap<String, Times>,
    /// How many answers took at most 2, 4, 8 … milliseconds.
    pub(crate) latencies: Vec<u64>,
    #[serde(skip)]
    pub(crate) lanes: [Vec<Span>; LANES.len()],
    #[serde(skip)]
    pub(crate) tokens: Steps,
    /// Runs that others have begun.
    #[serde(skip)]
    pub(crate) children: Vec<String>,
    #[serde(skip)]
    state: State,
}

#[derive(Default)]
struct State {
    runs: HashMap<String, usize>,
    /// When an approval was asked for.
    asked: HashMap<String, i64>,
    /// When a request to a model failed, by run.
    failed: HashMap<String, i64>,
    /// Used and cost as messages say it, where no line of the request does.
    of_messages: Totals,
}

/// The value of a name, or of all others.
fn named<'a, T: Default>(map: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    let name = if map.len() < NAMES || map.contains_key(name) { name } else { OTHERS };
    map.entry(name.to_owned()).or_default()
}

impl Totals {
    fn add_usage(&mut self, entry: &Entry<'_>) -> [u64; 2] {
        let count = |name: &str| entry.get(name).and_then(super::entry::Json::whole).unwrap_or(0);
        let cached = count("usage.cache_read_tokens").saturating_add(count("usage.cache_write_tokens"));
        let used = [count("usage.input_tokens").saturating_add(cached), count("usage.output_tokens")];
        self.input_tokens = self.input_tokens.saturating_add(used[0]);
        self.output_tokens = self.output_tokens.saturating_add(used[1]);
        self.cost_usd += entry.number("usage.cost_usd").unwrap_or(0.0);
        used
    }

    fn add(&mut self, entry: &Entry<'_>) {
        match &*entry.event {
            "iteration" => self.turns += 1,
            "llm.response" => {
                self.answers += u64::from(entry.get("code").is_none());
                self.retries += u64::from(entry.number("attempt").is_some_and(|attempt| attempt > 1.0));
                self.add_usage(entry);
            }
            "tool_call" => self.calls += 1,
            "exec.intent" => self.commands += 1,
            "exec.refused" => self.refusals += 1,
            "approval.granted" => self.approvals += 1,
            _ => {}
        }
        // The tool result of a command, and the last words of a program, say again what another line has said.
        self.failures += u64::from(matches!(&*entry.event, "exec.result" | "llm.response") && entry.is_failed());
    }
}

impl Overview {
    /// Adds a line of this ledger. Whether its run was not known before.
    pub(crate) fn add(&mut self, ledger: usize, entry: &Entry<'_>) {
        self.lines += 1;
        if self.from.as_deref().is_none_or(|from| entry.ts < from) {
            self.from = Some(entry.ts.to_owned());
        }
        if self.until.as_deref().is_none_or(|until| entry.ts > until) {
            self.until = Some(entry.ts.to_owned());
        }
        let time = entry.time();
        self.totals.add(entry);
        named(&mut self.days, entry.ts.get(..10).unwrap_or_default()).add(entry);
        if let Some(model) = entry.text("model").filter(|_| entry.event == "llm.response") {
            named(&mut self.models, &model).add(entry);
        }
        self.add_run(ledger, time, entry);
        self.add_span(ledger, time, entry);
        match &*entry.event {
            "llm.response" => {
                if !entry.is_failed() {
                    self.tokens.push(Totals::default().add_usage(entry));
                }
                let took = entry.number("duration_ms").unwrap_or(0.0).max(1.0);
                let step = (0..40).find(|step| took <= f64::from(2_u32.saturating_pow(step + 1))).unwrap_or(0) as usize;
                self.latencies.resize(self.latencies.len().max(step + 1), 0);
                self.latencies[step] += 1;
            }
            "message" => {
                self.state.of_messages.add_usage(entry);
                if let Some(session) = entry.session.as_deref().filter(|_| entry.run.is_none()) {
                    *named(&mut self.sessions, session) += 1;
                }
            }
            "exec.refused" => *named(&mut self.refusals, &entry.text("rule").unwrap_or("(none)".into())) += 1,
            "tool_result" => {
                let took = entry.number("duration_ms").unwrap_or(0.0);
                let times = named(&mut self.tools, &entry.text("name").unwrap_or_default());
                times.count += 1;
                times.total_ms += took;
                times.longest_ms = times.longest_ms.max(took);
            }
            "agent_start" if self.children.len() < NAMES => {
                self.children.extend(entry.text("run_id").map(std::borrow::Cow::into_owned));
            }
            _ => {}
        }
        if let Some(code) = entry.text("code").filter(|_| entry.event != "exec.refused") {
            *named(&mut self.failures, &code) += 1;
        }
    }

    fn add_run(&mut self, ledger: usize, time: i64, entry: &Entry<'_>) {
        let Some(id) = entry.run.as_deref() else { return };
        if entry.event == "run_start" && self.runs.len() < NAMES && !self.state.runs.contains_key(id) {
            self.state.runs.insert(id.to_owned(), self.runs.len());
            let text = |path: &str| entry.text(path).unwrap_or_default().into_owned();
            let task = entry.content.map(super::entry::Json::pretty).unwrap_or_default();
            self.runs.push(Run {
                id: id.to_owned(),
                task: task.chars().take(500).collect(),
                status: "not ended".to_owned(),
                agent: entry.agent.as_deref().unwrap_or_default().to_owned(),
                base: text("base"),
                parent: entry.text("parent").map(std::borrow::Cow::into_owned),
                ledger,
                started: time,
                ..Run::default()
            });
        }
        let Some(run) = self.state.runs.get(id).and_then(|at| self.runs.get_mut(*at)) else { return };
        run.ended = run.ended.max(time);
        run.totals.add(entry);
        match &*entry.event {
            "run_start" | "run_resumed" => {
                let limit = |name: &str| Some((name.to_owned(), 0.0, entry.number(&format!("limits.{name}"))?));
                run.limits = ["max_iterations", "tokens", "usd"].into_iter().filter_map(limit).collect();
            }
            "run_end" => run.status = entry.text("status").unwrap_or_default().into_owned(),
            "run_paused" => run.status = format!("paused: {}", entry.text("code").unwrap_or_default()),
            _ => {}
        }
    }

    fn add_span(&mut self, ledger: usize, time: i64, entry: &Entry<'_>) {
        #[expect(clippy::cast_possible_truncation, reason = "a duration in milliseconds")]
        let took = entry.number("duration_ms").map(|took| took as i64);
        let id = || entry.text("id").unwrap_or_default().into_owned();
        let run = || entry.run.as_deref().unwrap_or_default().to_owned();
        let (lane, start) = match &*entry.event {
            "llm.request" => match self.state.failed.remove(&run()) {
                Some(since) if entry.number("attempt").is_some_and(|attempt| attempt > 1.0) => (0, since),
                _ => return,
            },
            "llm.response" => {
                if entry.is_failed() && self.state.failed.len() < NAMES {
                    self.state.failed.insert(run(), time);
                }
                (0, time - took.unwrap_or(0))
            }
            "tool_result" => (1, time - took.unwrap_or(0)),
            "exec.result" => (2, time - took.unwrap_or(0)),
            "exec.refused" => (2, time),
            "approval.asked" => {
                if self.state.asked.len() < NAMES {
                    self.state.asked.insert(id(), time);
                }
                return;
            }
            "approval.granted" | "approval.denied" => (3, self.state.asked.remove(&id()).unwrap_or(time)),
            _ => return,
        };
        let tone = match (entry.is_refused(), entry.is_failed(), entry.event == "llm.request") {
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
            let of = &self.state.of_messages;
            self.totals.input_tokens = of.input_tokens;
            self.totals.output_tokens = of.output_tokens;
            self.totals.cost_usd = of.cost_usd;
        }
        for run in &mut self.runs {
            let totals = &run.totals;
            for (name, used, _) in &mut run.limits {
                #[expect(clippy::cast_precision_loss, reason = "these are shown as bars")]
                let spent = match name.as_str() {
                    "tokens" => (totals.input_tokens + totals.output_tokens) as f64,
                    "usd" => totals.cost_usd,
                    _ => totals.turns as f64,
                };
                *used = spent;
            }
        }
    }
}
