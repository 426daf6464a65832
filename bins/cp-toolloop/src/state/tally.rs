//! What a run has used so far.

use cp_common::Context;
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
    /// Calls that failed or were not permitted.
    pub(crate) tool_errors: u64,
    /// Tokens and dollars. Dollars are unknown if any answer has no price.
    pub(crate) usage: Usage,
}

impl Tally {
    /// Adds the usage of an answer, which may have failed.
    pub(crate) fn billed(&mut self, usage: &Usage) {
        if self.usage.tokens() == 0 && self.iterations == 0 {
            self.usage.cost_usd = Some(0.0);
        }
        self.usage += usage;
    }
}

/// The usage of all runs of a command.
#[derive(Debug, Default)]
pub(crate) struct Total {
    runs: u64,
    /// The last run.
    run: String,
    tally: Tally,
}

impl Total {
    /// Adds a run, whatever its status.
    pub(crate) fn add(&mut self, run: &str, tally: &Tally) {
        let sum = &mut self.tally;
        if sum.iterations == 0 {
            *sum = *tally;
        } else if tally.iterations > 0 {
            // A run without a request has no cost.
            sum.usage += &tally.usage;
            sum.iterations += tally.iterations;
            sum.tool_calls += tally.tool_calls;
            sum.tool_errors += tally.tool_errors;
        }
        self.runs += 1;
        run.clone_into(&mut self.run);
    }

    /// Adds the counts to the closing record, if there was a run.
    pub(crate) fn close(self, context: &mut Context) {
        if self.tally.tool_calls > 0 && self.tally.tool_errors == self.tally.tool_calls {
            context.warn("no call of a tool succeeded; `cp-toolloop runs` lists the run, `cp-toolloop show` its steps");
        }
        let out = &mut context.out;
        match self.runs {
            0 => return,
            1 => out.extra("run_id", self.run),
            runs => out.extra("runs", runs),
        }
        out.extra("iterations", self.tally.iterations);
        out.extra("tool_calls", self.tally.tool_calls);
        out.extra("tool_errors", self.tally.tool_errors);
        out.extra("usage", json!(self.tally.usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_unknown_if_one_answer_has_no_price() {
        let mut tally = Tally::default();
        tally.billed(&Usage { input_tokens: 3, cost_usd: Some(0.5), ..Usage::default() });
        assert_eq!((tally.usage.tokens(), tally.usage.cost_usd), (3, Some(0.5)));
        tally.billed(&Usage { output_tokens: 4, cost_usd: None, ..Usage::default() });
        assert_eq!((tally.usage.tokens(), tally.usage.cost_usd), (7, None));
        tally.billed(&Usage { cost_usd: Some(1.0), ..Usage::default() });
        assert_eq!(tally.usage.cost_usd, None);
    }
}
