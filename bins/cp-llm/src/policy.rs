//! The policy of a home: the table `[llm]` of `config/policy.toml`, see cp-policy(5). No option and no environment
//! variable extends it.

use std::path::PathBuf;

use cp_common::home::config::variable;
use cp_common::{Code, Context, Error, Result};
use cp_policy::prompts::Prompts;
use cp_policy::template::begins_with;
use cp_policy::{Demand, Llm, table};

/// The variable with the token that permits use of the network.
const TOKEN: &str = "CAPABILITY_NETWORK";

/// The policy of a home.
pub(crate) struct Policy {
    pub table: Llm,
    /// The place of the registered prompts.
    prompts: PathBuf,
}

impl Policy {
    /// Reads the policy. Without a file any system text may be sent.
    pub(crate) fn load(context: &Context) -> Result<Self> {
        let (table, prompts) = (table::<Llm>(&context.home, "llm")?, Prompts::place(context)?);
        Ok(Self { table, prompts })
    }

    /// The reason that permits the use of the network, for the ledger. Fails if a token is required and missing.
    pub(crate) fn permission(&self) -> Result<&'static str> {
        match self.table.network == Demand::Required {
            false => Ok("allow"),
            true if variable(TOKEN).is_some() => Ok("token"),
            true => Err(Error::new(Code::Forbidden, "policy allows the network only with a token")
                .with("rule", "llm.network")
                .with("missing", TOKEN)
                .hint(format!("set {TOKEN}, or use --backend stub or --replay, which need no network"))
                .fatal()),
        }
    }

    /// Fails if a governed prompt is required and this one is not.
    pub(crate) fn permit(&self, prompt_id: Option<&str>, system: &str) -> Result<()> {
        if self.table.governed_prompts == Demand::Nothing {
            return Ok(());
        }
        let refused = |why: String| {
            Error::new(Code::Forbidden, why)
                .with("rule", "llm.governed_prompts")
                .hint("compose it: cp-compose --prompt PRM-ID … | cp-llm, without -s")
        };
        let Some(id) = prompt_id else { return Err(refused("policy requires a governed prompt".to_owned())) };
        // Fails if the prompt is not registered, not active, or was changed after its registration.
        if begins_with(system, Prompts::below(&self.prompts)?.text(id)?.trim_end()) {
            return Ok(());
        }
        Err(refused(format!("the system text does not begin with the prompt `{id}`")).with("prompt_id", id))
    }
}
