//! The usage of a run: its tally is the sum over its entries and its agents, and no turn began beyond a limit. A run that was killed may
//! have written one entry of each kind that it did not count.

use serde_json::{Map, Value};

use crate::audit::check::at;
use crate::audit::claim::{Entry, Verdict};

/// The members of a usage that count tokens.
const TOKENS: [&str; 4] = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];

/// The sums over the entries of a run.
#[derive(Clone, Default)]
pub(super) struct Budget {
    iterations: u64,
    tool_calls: u64,
    tool_errors: u64,
    agent_iterations: u64,
    tokens: [u64; TOKENS.len()],
    /// None if a price is not known.
    usd: Option<f64>,
    /// The largest usage of one entry.
    largest: [u64; TOKENS.len()],
    max_iterations: Option<u64>,
    max_tokens: Option<u64>,
    kills: u64,
}

impl Budget {
    pub(super) fn begin(data: &Map<String, Value>) -> Self {
        let mut this = Self { usd: Some(0.0), ..Self::default() };
        this.limit(data);
        this
    }

    fn limit(&mut self, data: &Map<String, Value>) {
        let limit = |name: &str| data.get("limits").and_then(|limits| limits.get(name)?.as_u64());
        (self.max_iterations, self.max_tokens) = (limit("max_iterations"), limit("tokens"));
    }

    pub(super) fn resume(&mut self, data: &Map<String, Value>, was_killed: bool) {
        self.kills += u64::from(was_killed);
        self.limit(data);
    }

    /// True if the run was killed, so that an entry may be there twice.
    pub(super) const fn was_killed(&self) -> bool {
        self.kills > 0
    }

    /// The limit that a turn exceeds, in words.
    pub(super) fn exceeded(&self, turn: u64) -> Option<String> {
        let tokens: u64 = self.tokens.iter().sum();
        match (self.max_iterations, self.max_tokens) {
            (Some(most), _) if turn > most => Some(format!("turn {turn} began, and {most} were allowed")),
            (_, Some(most)) if tokens >= most && !self.was_killed() => {
                Some(format!("turn {turn} began after {tokens} tokens, and {most} were allowed"))
            }
            _ => None,
        }
    }

    /// Adds the usage of an entry.
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        match entry.event.as_str() {
            "message" | "context_compacted" => {
                self.iterations += u64::from(entry.event == "message");
                if let Some(usage) = entry.data.get("usage") {
                    self.spend(usage);
                }
            }
            "tool_result" => {
                self.tool_calls += 1;
                self.tool_errors += u64::from(entry.data.get("is_error") == Some(&Value::Bool(true)));
            }
            _ => {}
        }
    }

    fn spend(&mut self, usage: &Value) {
        for (at, name) in TOKENS.into_iter().enumerate() {
            let tokens = usage.get(name).and_then(Value::as_u64).unwrap_or_default();
            self.tokens[at] += tokens;
            self.largest[at] = self.largest[at].max(tokens);
        }
        self.usd = self.usd.zip(usage.get("cost_usd").and_then(Value::as_f64)).map(|(sum, one)| sum + one);
    }

    /// Adds the tally of an agent.
    pub(super) fn delegate(&mut self, tally: &Value) {
        let number = |name: &str| tally.get(name).and_then(Value::as_u64).unwrap_or_default();
        let turns = number("iterations") + number("agent_iterations");
        if turns > 0 {
            self.agent_iterations += turns;
            self.spend(at(tally, &["usage"]));
        }
    }

    /// Compares the sums with a tally. `has_all` is false if the tally of an agent is not known.
    pub(super) fn judge(&self, tally: &Value, has_all: bool) -> Verdict {
        // A count that is absent is not that of the entries.
        let number = |name: &str| at(tally, &[name]).as_u64().unwrap_or(u64::MAX);
        let counts = [
            ("iterations", self.iterations, number("iterations"), 1),
            ("tool_calls", self.tool_calls, number("tool_calls"), 1),
            ("tool_errors", self.tool_errors, number("tool_errors"), 1),
        ];
        let agents = [("agent_iterations", self.agent_iterations, number("agent_iterations"), 0)];
        let tokens = TOKENS.into_iter().enumerate().map(|(place, name)| {
            let said = at(tally, &["usage", name]).as_u64().unwrap_or(u64::MAX);
            (name, self.tokens[place], said, self.largest[place])
        });
        let judged = counts.into_iter().chain(agents.into_iter().chain(tokens).filter(|_| has_all));
        for (name, sum, said, most) in judged {
            // Only what was written and not counted is excused.
            if sum < said || sum - said > self.kills * most {
                return Verdict::Broken(format!("the entries have {sum} {name}, the run says {said}"));
            }
        }
        let said = at(tally, &["usage", "cost_usd"]).as_f64();
        let differs = match (self.usd, said) {
            (Some(sum), Some(said)) => (sum - said).abs() > 1e-6 * sum.abs().max(1.0),
            (sum, said) => sum.is_some() != said.is_some() && self.iterations > 0,
        };
        match (has_all, differs && !self.was_killed()) {
            (false, _) => {
                Verdict::Unknown("the ledger of an agent is not there, so that its usage is not known".to_owned())
            }
            (true, true) => Verdict::Broken(format!("the entries cost {:?} dollars, the run says {said:?}", self.usd)),
            (true, false) => Verdict::Holds,
        }
    }
}
