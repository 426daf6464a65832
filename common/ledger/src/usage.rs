//! The tokens and the cost of requests to models, as entries report them in `usage`, summed up.

use serde::Serialize;
use serde_json::{Map, Value};

/// Tokens and cost, summed over entries. Sums of tokens saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageTotals {
    /// Tokens read, those from and into a cache included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// US dollars, as far as prices were known; null if none was.
    pub cost_usd: Option<f64>,
}

impl UsageTotals {
    /// Parses the `usage` member of an entry's data. A member that is missing or has another type counts as zero.
    pub fn parse(usage: &[u8]) -> Option<Self> {
        let usage: Map<String, Value> = serde_json::from_slice(usage).ok()?;
        let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
        let input = ["input_tokens", "cache_read_tokens", "cache_write_tokens"].map(tokens);
        Some(Self {
            input_tokens: input.into_iter().fold(0, u64::saturating_add),
            output_tokens: tokens("output_tokens"),
            cost_usd: usage.get("cost_usd").and_then(Value::as_f64),
        })
    }

    /// Adds other totals to these.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd =
            self.cost_usd.zip(other.cost_usd).map(|(one, other)| one + other).or(self.cost_usd).or(other.cost_usd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_counts_cached_input_and_skips_members_of_another_type() {
        let usage =
            UsageTotals::parse(br#"{"input_tokens":1,"cache_read_tokens":2,"output_tokens":"x","cost_usd":0.5}"#);
        assert_eq!(usage, Some(UsageTotals { input_tokens: 3, output_tokens: 0, cost_usd: Some(0.5) }));
        assert_eq!(UsageTotals::parse(b"\"none\""), None);
    }
}
