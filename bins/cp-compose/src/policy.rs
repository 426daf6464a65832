//! What the policy of a home asks of a prompt: the table `[llm]` of `config/policy.toml`. No option and no variable widens it.

use cp_common::home::Home;
use cp_common::{Code, Error, Result};
use serde::Deserialize;

/// What this program reads of the policy; the rest is read by the programs that it is about.
#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    llm: Policy,
}

/// The policy.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Policy {
    governed_prompts: Governed,
    redact: Redact,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Governed {
    /// The hash of each system text goes on the ledger of who sends it.
    #[default]
    Log,
    /// The system text is made of registered texts only.
    Require,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Redact {
    /// `--no-redact` may be given.
    #[default]
    Default,
    /// It may not.
    Require,
}

impl Policy {
    /// Reads the policy of a home. A policy that cannot be read or understood is an error, not an open door.
    pub(crate) fn load(home: &Home) -> Result<Self> {
        let file = home.policy_file();
        match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str::<File>(&text).map(|file| file.llm).map_err(|e| {
                let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
                Error::config(e.message().to_owned()).at_line(line as u64).in_file(&file)
            }),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                Ok(Self::default())
            }
            Err(e) => Err(Error::config(format!("cannot read: {e}")).in_file(&file)),
        }
    }

    /// Whether the system text may hold nothing but registered texts.
    pub(crate) fn requires_governed(self) -> bool {
        self.governed_prompts == Governed::Require
    }

    /// Refuses a command line that policy does not let through.
    pub(crate) fn permit(self, has_governed: bool, has_system: bool, no_redact: bool) -> Result<()> {
        if no_redact && self.redact == Redact::Require {
            return Err(Error::new(Code::Forbidden, "policy does not let --no-redact through")
                .with("rule", "llm.redact")
                .hint("leave --no-redact away"));
        }
        if !self.requires_governed() {
            return Ok(());
        }
        if !has_governed {
            return Err(ungoverned("policy requires a governed prompt").hint("name one with --prompt PRM-ID"));
        }
        if has_system {
            return Err(ungoverned("policy requires governed prompts, and the text of -s is none")
                .hint("register the text as a prompt, or leave -s away"));
        }
        Ok(())
    }
}

/// A system text that policy does not let through.
pub(crate) fn ungoverned(why: &str) -> Error {
    Error::new(Code::Forbidden, why).with("rule", "llm.governed_prompts")
}
