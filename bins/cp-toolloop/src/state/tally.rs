//! What a run has used so far.

use cp_common::output::Output;
use cp_common::wire::Usage;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tally {
    /// Turns of the model.
    pub(crate) iterations: u64,
    /// Calls that have a result.
    pub(crate) tool_calls: u64,
    /// Those of them that failed, or were not permitted.
    pub(crate) tool_errors: u64,
    /// Turns of the models of agents, in runs of their own.
    #[serde(default)]
    pub(crate) agent_iterations: u64,
    /// Tokens and dollars, those of agents included. Dollars are unknown as soon as one answer has no price.
    pub(crate) usage: Usage,
}

/// What the run of an agent used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Turns of its model, and of the models of its own agents.
    pub(crate) iterations: u64,
    /// Tokens and dollars.
    pub(crate) usage: Usage,
}

impl From<&Tally> for Spent {
    fn from(tally: &Tally) -> Self {
        Self { iterations: tally.all_iterations(), usage: tally.usage }
    }
}

impl Tally {
    /// Adds what an answer cost.
    pub(crate) fn answered(&mut self, usage: &Usage) {
        if self.iterations == 0 {
            self.usage.cost_usd = Some(0.0);
        }
        self.iterations += 1;
        self.add(usage);
    }

    /// Adds what was used beside the turns.
    pub(crate) fn add(&mut self, usage: &Usage) {
        self.usage.input_tokens += usage.input_tokens;
        self.usage.output_tokens += usage.output_tokens;
        self.usage.cache_read_tokens += usage.cache_read_tokens;
        self.usage.cache_write_tokens += usage.cache_write_tokens;
        self.usage.cost_usd = self.usage.cost_usd.zip(usage.cost_usd).map(|(sum, one)| sum + one);
    }

    /// Adds what an agent used.
    pub(crate) fn delegated(&mut self, spent: &Spent) {
        // One that could not begin has no price, and needs none.
        if spent.iterations > 0 {
            self.agent_iterations += spent.iterations;
            self.add(&spent.usage);
        }
    }

    /// Adds a result.
    pub(crate) fn returned(&mut self, is_error: bool) {
        self.tool_calls += 1;
        self.tool_errors += u64::from(is_error);
    }

    /// All turns, those of agents included.
    pub(crate) fn all_iterations(&self) -> u64 {
        self.iterations + self.agent_iterations
    }

    /// All tokens, however they were counted.
    pub(crate) fn tokens(&self) -> u64 {
        let usage = &self.usage;
        usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    }
}

/// What the runs of a command line used.
#[derive(Debug, Default)]
pub(crate) struct Total {
    runs: u64,
    /// The last of them.
    run: String,
    tally: Tally,
}

impl Total {
    /// Adds a run, whatever became of it.
    pub(crate) fn add(&mut self, run: &str, tally: &Tally) {
        let sum = &mut self.tally;
        if sum.iterations == 0 {
            *sum = *tally;
        } else if tally.iterations > 0 {
            // One that asked nobody has no price, and needs none.
            sum.add(&tally.usage);
            sum.iterations += tally.iterations;
            sum.agent_iterations += tally.agent_iterations;
            sum.tool_calls += tally.tool_calls;
            sum.tool_errors += tally.tool_errors;
        }
        self.runs += 1;
        run.clone_into(&mut self.run);
    }

    /// Puts the counts into the closing line, if there was a run.
    pub(crate) fn close(self, out: &mut Output) {
        match self.runs {
            0 => return,
            1 => out.extra("run_id", self.run),
            runs => out.extra("runs", runs),
        }
        out.extra("iterations", self.tally.iterations);
        out.extra("agent_iterations", self.tally.agent_iterations);
        out.extra("tool_calls", self.tally.tool_calls);
        out.extra("tool_errors", self.tally.tool_errors);
        out.extra("usage", json!(self.tally.usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_without_a_price_makes_the_sum_unknown() {
        let mut tally = Tally::default();
        tally.answered(&Usage { input_tokens: 3, cost_usd: Some(0.5), ..Usage::default() });
        assert_eq!((tally.tokens(), tally.usage.cost_usd), (3, Some(0.5)));
        tally.answered(&Usage { output_tokens: 4, cost_usd: None, ..Usage::default() });
        assert_eq!((tally.tokens(), tally.usage.cost_usd), (7, None));
        tally.answered(&Usage { cost_usd: Some(1.0), ..Usage::default() });
        assert_eq!(tally.usage.cost_usd, None);
    }
}
