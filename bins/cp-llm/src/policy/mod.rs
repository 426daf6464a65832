//! What the policy of a home permits: the table `[llm]` of `config/policy.toml`, see cp-policy(5). No option and no variable widens it.

mod governed;

use cp_common::home::Home;
use cp_common::wire::Turn;
use cp_common::{Code, Error, Result};
use cp_policy::{GovernedPrompts, Llm, Network};

use self::governed::Governed;
use crate::engine::fetch::{self, Fetch};
use crate::environment::variable;

/// The variable that holds the token of a program that may use the network.
const TOKEN: &str = "CAPABILITY_NETWORK";

/// The policy of a home.
pub(crate) struct Policy {
    table: Llm,
    governed: Governed,
}

impl Policy {
    /// Reads the policy. Without a file any system text may be sent, and its hash is on the ledger.
    pub(crate) fn load(home: &Home) -> Result<Self> {
        Ok(Self { table: Llm::load(home)?, governed: Governed::of(home) })
    }

    /// Whether the text of prompts and answers goes on the ledger outside of sessions and runs too.
    pub(crate) fn logs_content(&self) -> bool {
        self.table.log_content
    }

    /// The most dollars that one command line may spend, whatever it was given.
    pub(crate) fn budget_usd(&self) -> Option<f64> {
        self.table.budget_usd
    }

    /// Why the network may be used, for the ledger. Fails where that requires a token and there is none.
    pub(crate) fn permission(&self) -> impl Fn() -> Result<&'static str> + Copy + Send + Sync + use<> {
        let needs_token = self.table.network == Network::Token;
        move || match needs_token {
            false => Ok("allow"),
            true if variable(TOKEN).is_some() => Ok("token"),
            true => Err(Error::new(Code::Forbidden, "policy allows the network only with a token")
                .with("rule", "llm.network")
                .with("missing", TOKEN)
                .hint(format!("set {TOKEN}, or use --backend stub or --replay, which need no network"))
                .fatal()),
        }
    }

    /// How attachments are fetched.
    pub(crate) fn fetch(&self) -> Fetch {
        Fetch { table: self.table.clone(), refused: self.permission()().err() }
    }

    /// Refuses turns with attachments that may not be fetched.
    pub(crate) fn permit_attachments(&self, turns: &[Turn]) -> Result<()> {
        fetch::permit_all(&self.table, turns)
    }

    /// Refuses a prompt that is not governed where it must be.
    pub(crate) fn permit(&self, prompt_id: Option<&str>, system: &str) -> Result<()> {
        if self.table.governed_prompts == GovernedPrompts::Log {
            return Ok(());
        }
        let refused = |why: String| {
            Error::new(Code::Forbidden, why)
                .with("rule", "llm.governed_prompts")
                .hint("compose it: cp-compose --prompt PRM-ID … | cp-llm, without -s")
        };
        let Some(id) = prompt_id else { return Err(refused("policy requires a governed prompt".to_owned())) };
        if self.governed.begins(id, system)? {
            return Ok(());
        }
        Err(refused(format!("the system text does not begin with the prompt `{id}`")).with("prompt_id", id))
    }
}
