//! `config/policy.toml`. Each program reads its own tables. No option and no variable extends the permissions.

use std::io::ErrorKind;

use cp_common::home::Home;
use cp_common::home::config::explain;
use cp_common::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, ValueDeserializer};

/// Returns a table of the policy. A missing file or table gives the default; a malformed one is an error, so that it
/// never grants permissions.
pub fn table<T: DeserializeOwned + Default>(home: &Home, name: &str) -> Result<T> {
    let file = home.policy_file();
    match std::fs::read_to_string(&file) {
        Ok(text) => parse(&text, name).map_err(|e| e.in_file(&file).fatal()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(T::default()),
        Err(e) => Err(Error::config(format!("cannot read: {}", Error::from(e).message())).in_file(&file).fatal()),
    }
}

pub(crate) fn parse<T: DeserializeOwned + Default>(text: &str, name: &str) -> Result<T> {
    let found = DeTable::parse(text).and_then(|whole| match whole.into_inner().remove(name) {
        Some(table) => T::deserialize(ValueDeserializer::from(table)),
        None => Ok(T::default()),
    });
    found.map_err(|e| explain(text, &e))
}

/// The policy for prompts. Both cp-compose and cp-llm read it, so that neither bypasses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Llm {
    /// The system texts that may be sent.
    pub governed_prompts: GovernedPrompts,
    /// The permission to use `--no-redact`.
    pub redact: Redact,
    /// The permission to use the network.
    pub network: Network,
    /// True if the ledger also records prompts and answers outside of sessions and runs.
    pub log_content: bool,
    /// The budget of one command line, in US dollars.
    pub budget_usd: Option<f64>,
}

/// The system texts that may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GovernedPrompts {
    /// Any text; the ledger records its hash.
    #[default]
    Log,
    /// Only texts that consist of registered prompts.
    Require,
}

/// The permission to use `--no-redact`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redact {
    /// Allowed.
    #[default]
    Default,
    /// Forbidden.
    Require,
}

/// The permission to use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Allowed without a token.
    #[default]
    Allow,
    /// Allowed with a token.
    Token,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_fails_with_line_and_other_tables_are_ignored() {
        let e = parse::<Llm>("[exec]\nanything = 1\n[llm]\nnetwrk = \"token\"\n", "llm").unwrap_err();
        assert!(e.message().contains("line 4") && e.message().contains("netwrk"), "{e}");
        assert_eq!(e.details()["nearest"], "network");
        let e = parse::<Llm>("[llm]\nnetwork = \"tokens\"\n", "llm").unwrap_err();
        assert_eq!(e.details()["nearest"], "token");
        assert_eq!(parse::<Llm>("[exec]\nanything = 1\n", "llm").unwrap().network, Network::Allow);
    }
}
