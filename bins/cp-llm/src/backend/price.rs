//! What a million tokens cost, in US dollars.

use cp_common::wire::Usage;
use serde::Deserialize;

/// The share of its price that a request in a batch costs where nothing else is said.
const BATCH: f64 = 0.5;

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    /// The share of these prices that a request in a batch costs.
    batch: Option<f64>,
}

impl Price {
    /// Whether a budget can be counted with it.
    pub(crate) fn is_sound(&self) -> bool {
        let all = [Some(self.input), Some(self.output), self.cache_read, self.cache_write, self.batch];
        all.into_iter().flatten().all(|dollars| dollars.is_finite() && dollars >= 0.0)
    }

    /// What a use cost that was part of a provider's batch.
    pub(crate) fn of_batch(&self, usage: &Usage) -> f64 {
        (self.of(usage) * self.batch.unwrap_or(BATCH) * 1e9).round() / 1e9
    }

    /// What a use cost.
    pub(crate) fn of(&self, usage: &Usage) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let share = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        let cost = share(usage.input_tokens, self.input)
            + share(usage.output_tokens, self.output)
            + share(usage.cache_read_tokens, self.cache_read.unwrap_or(self.input))
            + share(usage.cache_write_tokens, self.cache_write.unwrap_or(self.input));
        // Sums of dollars with six more digits than cents have are what a reader can add up.
        (cost * 1e9).round() / 1e9
    }
}
