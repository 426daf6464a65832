//! The table `[llm]`: the prompts that may be sent to a model, and the budget.

use cp_common::Result;
use cp_common::home::Home;
use serde::Deserialize;

use crate::file::table;

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

impl Llm {
    /// Loads the table of a home.
    pub fn load(home: &Home) -> Result<Self> {
        table(home, "llm")
    }
}
