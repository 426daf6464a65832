//! Prices of tokens, in US dollars for a million: those of an endpoint, and `config/prices.toml`, which the user keeps.
//! A model that is not in the file has no price, which is not the same as a price of zero.
//!
//! ```toml
//! ["claude-sonnet-4"]        # the name also matches models that continue it with `-` or `@`
//! input = 3.0
//! output = 15.0
//! cache_read = 0.3
//! cache_write = 3.75
//! batch = 0.5                # factor for requests in a batch; 0.5 by default
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use cp_common::wire::Usage;
use cp_common::{Error, Result};
use serde::Deserialize;

/// The default price of a request in a batch, as a factor.
const BATCH: f64 = 0.5;

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    /// The price of a request in a batch, as a factor.
    batch: Option<f64>,
}

impl Price {
    /// True if all amounts are finite and not negative.
    pub(crate) fn is_sound(&self) -> bool {
        let all = [Some(self.input), Some(self.output), self.cache_read, self.cache_write, self.batch];
        all.into_iter().flatten().all(|dollars| dollars.is_finite() && dollars >= 0.0)
    }

    /// The cost of a request that was part of a provider's batch.
    pub(crate) fn of_batch(&self, usage: &Usage) -> f64 {
        (self.of(usage) * self.batch.unwrap_or(BATCH) * 1e9).round() / 1e9
    }

    /// The cost of a request.
    pub(crate) fn of(&self, usage: &Usage) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let share = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        let cost = share(usage.input_tokens, self.input)
            + share(usage.output_tokens, self.output)
            + share(usage.cache_read_tokens, self.cache_read.unwrap_or(self.input))
            + share(usage.cache_write_tokens, self.cache_write.unwrap_or(self.input));
        // Rounding to nine digits keeps sums of dollars readable.
        (cost * 1e9).round() / 1e9
    }
}

/// The prices of one home.
#[derive(Debug, Default)]
pub(crate) struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Reads the file. Without a file no model has a price.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let wrong = |message: &str| Error::config(message).in_file(file).fatal();
        let text = match std::fs::read_to_string(file) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => String::new(),
            text => text.map_err(|e| wrong(Error::from(e).message()))?,
        };
        let table: BTreeMap<String, Price> = toml::from_str(&text).map_err(|e| wrong(e.message()))?;
        // An invalid amount would make a budget useless.
        if let Some((model, _)) = table.iter().find(|(_, price)| !price.is_sound()) {
            return Err(wrong(&format!("the price of {model} is not a valid amount")));
        }
        Ok(Self(table))
    }

    /// The price of the first of these models that has one. The longest matching name decides.
    pub(crate) fn price(&self, models: &[&str]) -> Option<Price> {
        models.iter().find_map(|model| {
            let names = self.0.iter().filter(|(name, _)| {
                let rest = model.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']))
            });
            names.max_by_key(|(name, _)| name.len()).map(|(_, price)| *price)
        })
    }
}

#[cfg(test)]
mod tests {
    use cp_common::wire::Usage;

    use super::*;

    const FILE: &str = "[m]\ninput = 1.0\noutput = 10.0\n[m-large]\ninput = 2.0\noutput = 20.0\ncache_read = 0.2\n";

    #[test]
    fn longest_matching_name_sets_price() {
        let prices = Prices(toml::from_str(FILE).unwrap());
        let usage =
            Usage { input_tokens: 1_000_000, output_tokens: 100_000, cache_read_tokens: 1_000_000, ..Usage::default() };
        let cost = |models: &[&str]| prices.price(models).map(|price| price.of(&usage));
        assert_eq!(cost(&["m"]), Some(3.0));
        assert_eq!(cost(&["m-large-2026"]), Some(4.2));
        assert_eq!(cost(&["x", "m"]), Some(3.0));
        assert_eq!(cost(&["mx"]), None);
    }

    #[test]
    fn missing_price_file_is_empty_and_invalid_file_is_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices.toml");
        assert!(Prices::load(&file).unwrap().price(&["m"]).is_none());
        std::fs::write(&file, "[m]\ninptu = 1\n").unwrap();
        assert!(Prices::load(&file).unwrap_err().message().contains("inptu"));
        for amount in ["-1.0", "nan", "inf"] {
            std::fs::write(&file, format!("[m]\ninput = {amount}\noutput = 1.0\n")).unwrap();
            assert!(Prices::load(&file).unwrap_err().message().contains("price of m"), "{amount}");
        }
    }
}
