//! What policy requires of a command line: the table `[llm]` of `config/policy.toml`. No option and no variable widens it.

use cp_common::{Code, Error, Result};
use cp_policy::{GovernedPrompts, Llm, Redact};

use crate::options::Identity;

/// Refuses a command line that policy does not allow.
pub(crate) fn permit(policy: &Llm, identity: &Identity) -> Result<()> {
    if identity.no_redact && policy.redact == Redact::Require {
        return Err(Error::new(Code::Forbidden, "policy does not allow --no-redact")
            .with("rule", "llm.redact")
            .hint("remove --no-redact"));
    }
    if policy.governed_prompts == GovernedPrompts::Log {
        return Ok(());
    }
    if identity.prompt.is_none() {
        return Err(ungoverned("policy requires a governed prompt").hint("name one with --prompt PRM-ID"));
    }
    if identity.system.is_some() {
        return Err(ungoverned("policy requires governed prompts, and the text of -s is not one")
            .hint("register the text as a prompt, or remove -s"));
    }
    Ok(())
}

/// The error for a system text that policy does not allow.
pub(crate) fn ungoverned(message: &str) -> Error {
    Error::new(Code::Forbidden, message).with("rule", "llm.governed_prompts")
}
