//! Data that is part of this program: texts in TOML, which the tests parse.

use serde::de::DeserializeOwned;

/// Parses such a text.
pub(crate) fn parsed<T: DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| unreachable!("data of this program: {error}"))
}
