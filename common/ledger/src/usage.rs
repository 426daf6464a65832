//! The tokens and the cost of requests to models, as entries report them in `usage`, summed up.

use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};

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
        let Members { input, output, read, written, cost_usd } = serde_json::from_slice(usage).ok()?;
        let input = [input, read, written].into_iter().flatten().fold(0, u64::saturating_add);
        Some(Self { input_tokens: input, output_tokens: output.unwrap_or_default(), cost_usd })
    }

    /// Adds other totals to these.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd =
            self.cost_usd.zip(other.cost_usd).map(|(one, other)| one + other).or(self.cost_usd).or(other.cost_usd);
    }
}

#[derive(Deserialize)]
struct Members {
    #[serde(default, rename = "input_tokens", deserialize_with = "lenient")]
    input: Option<u64>,
    #[serde(default, rename = "output_tokens", deserialize_with = "lenient")]
    output: Option<u64>,
    #[serde(default, rename = "cache_read_tokens", deserialize_with = "lenient")]
    read: Option<u64>,
    #[serde(default, rename = "cache_write_tokens", deserialize_with = "lenient")]
    written: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    cost_usd: Option<f64>,
}

/// Deserializes a member that another program may use for something else; such a value is `None`.
pub fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value<T> {
        Expected(T),
        Other(IgnoredAny),
    }
    Ok(match Value::deserialize(deserializer)? {
        Value::Expected(value) => Some(value),
        Value::Other(_) => None,
    })
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
