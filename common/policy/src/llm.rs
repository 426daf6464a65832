//! The table `[llm]`: what may be sent to a model, and what it may cost.

use cp_common::Result;
use cp_common::home::Home;
use serde::Deserialize;

use crate::file::table;

/// The policy for prompts. cp-compose and cp-llm both read it, so that neither bypasses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Llm {
    /// Which system texts may be sent.
    pub governed_prompts: GovernedPrompts,
    /// Whether `--no-redact` may be given.
    pub redact: Redact,
    /// Who may use the network.
    pub network: Network,
    /// Whether prompts and answers go on the ledger outside of sessions and runs too.
    pub log_content: bool,
    /// The hosts that attachments may be fetched from: `name`, or `*.name` for those below it.
    pub fetch: Vec<String>,
    /// The most US dollars that one command line may spend.
    pub budget_usd: Option<f64>,
}

/// Which system texts may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GovernedPrompts {
    /// Any; the hash of each is on the ledger.
    #[default]
    Log,
    /// Those that are made of registered texts only.
    Require,
}

/// Whether `--no-redact` may be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redact {
    /// It may.
    #[default]
    Default,
    /// It may not.
    Require,
}

/// Who may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Everybody.
    #[default]
    Allow,
    /// Only who holds a token.
    Token,
}

impl Llm {
    /// The table of a home.
    pub fn load(home: &Home) -> Result<Self> {
        table(home, "llm")
    }

    /// Whether attachments may be fetched from a host, its name in lower case.
    pub fn fetches_from(&self, host: &str) -> bool {
        self.fetch.iter().map(|entry| entry.to_ascii_lowercase()).any(|entry| match entry.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => entry == host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_itself_or_lies_below_a_domain() {
        let table =
            Llm { fetch: vec!["A.example".into(), "*.b.example".into(), "*".into(), "*.".into()], ..Llm::default() };
        for (host, is_named) in [
            ("a.example", true),
            ("x.a.example", false),
            ("x.b.example", true),
            ("x.y.b.example", true),
            ("b.example", false),
            (".b.example", false),
            ("xb.example", false),
            ("b.example.evil", false),
        ] {
            assert_eq!(table.fetches_from(host), is_named, "{host}");
        }
    }
}
