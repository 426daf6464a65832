//! What tokens cost: `config/prices.toml`, which the user keeps. A model that it does not name is unpriced, and not free.
//!
//! ```toml
//! ["claude-sonnet-4"]        # US dollars for a million tokens; a name also stands for those that continue it with `-` or `@`
//! input = 3.0
//! output = 15.0
//! cache_read = 0.3
//! cache_write = 3.75
//! batch = 0.5                # the share of these prices that a request in a batch costs: a half unless named
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::{Error, Result};

use crate::backend::price::Price;

/// The prices of one home.
#[derive(Debug, Default)]
pub(crate) struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Reads the file. One that is not there prices nothing.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.kind() == std::io::ErrorKind::NotADirectory => {
                return Ok(Self::default());
            }
            Err(e) => return Err(Error::config(Error::from(e).message()).in_file(file).fatal()),
        };
        let table: BTreeMap<String, Price> =
            toml::from_str(&text).map_err(|e| Error::config(e.message()).in_file(file).fatal())?;
        // A budget is counted with them.
        if let Some((model, _)) = table.iter().find(|(_, price)| !price.is_sound()) {
            return Err(Error::config(format!("the price of {model} is not a valid amount")).in_file(file).fatal());
        }
        Ok(Self(table))
    }

    /// Whether a model has a price.
    pub(crate) fn knows(&self, model: &str) -> bool {
        self.price(&[model]).is_some()
    }

    /// The price of the first of these models that has one: that of the longest name that the model's is or continues.
    pub(super) fn price(&self, models: &[&str]) -> Option<Price> {
        models.iter().find_map(|model| self.price_of(model))
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        let names = self.0.iter().filter(|(name, _)| {
            model.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']))
        });
        names.max_by_key(|(name, _)| name.len()).map(|(_, price)| *price)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cp_common::wire::Usage;

    const FILE: &str = "[m]\ninput = 1.0\noutput = 10.0\n[m-large]\ninput = 2.0\noutput = 20.0\ncache_read = 0.2\n";

    #[test]
    fn the_longest_name_that_fits_prices_and_the_unknown_stays_unpriced() {
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
    fn without_a_file_nothing_is_priced_and_a_mistake_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices.toml");
        assert!(!Prices::load(&file).unwrap().knows("m"));
        std::fs::write(&file, "[m]\ninptu = 1\n").unwrap();
        assert!(Prices::load(&file).unwrap_err().message().contains("inptu"));
        for amount in ["-1.0", "nan", "inf"] {
            std::fs::write(&file, format!("[m]\ninput = {amount}\noutput = 1.0\n")).unwrap();
            assert!(Prices::load(&file).unwrap_err().message().contains("price of m"), "{amount}");
        }
    }
}
