//! The endpoints that need no table in `config/cp.toml`: the providers, as their environment variables say, and the servers that people
//! run on their own machines.

use super::endpoint::{DialectName, Endpoint, KeySource};
use super::local;
use super::secret;
use crate::environment::variable;

/// An endpoint that is known by its name.
pub(super) struct Provider {
    /// The name.
    pub name: &'static str,
    dialect: DialectName,
    /// The variable that holds the key; none for a server without keys.
    key: Option<&'static str>,
    /// The variable that holds the base URL, where it is not [`local()`].
    base: Option<&'static str>,
    /// Whether only its name chooses it, and not its variables.
    pub only_by_name: bool,
    /// How the names of its models begin.
    pub models: &'static [&'static str],
}

/// Every one.
pub(super) static PROVIDERS: [Provider; 8] = [
    Provider {
        name: "anthropic",
        dialect: DialectName::Anthropic,
        key: Some("ANTHROPIC_API_KEY"),
        base: Some("ANTHROPIC_BASE_URL"),
        only_by_name: false,
        models: &["claude"],
    },
    Provider {
        name: "openai",
        dialect: DialectName::Openai,
        key: Some("OPENAI_API_KEY"),
        base: Some("OPENAI_BASE_URL"),
        only_by_name: false,
        models: &["gpt-", "o1", "o3", "o4", "chatgpt"],
    },
    // The same server and key in its other dialect.
    Provider {
        name: "openai-responses",
        dialect: DialectName::OpenaiResponses,
        key: Some("OPENAI_API_KEY"),
        base: Some("OPENAI_BASE_URL"),
        only_by_name: true,
        models: &[],
    },
    Provider {
        name: "gemini",
        dialect: DialectName::Gemini,
        key: Some("GEMINI_API_KEY"),
        base: Some("GEMINI_BASE_URL"),
        only_by_name: false,
        models: &["gemini"],
    },
    local("ollama"),
    local("llamacpp"),
    local("vllm"),
    local("lmstudio"),
];

const fn local(name: &'static str) -> Provider {
    Provider { name, dialect: DialectName::Openai, key: None, base: None, only_by_name: true, models: &[] }
}

impl Provider {
    /// Whether the environment names its key or its server.
    pub(super) fn is_configured(&self) -> bool {
        self.key.is_some_and(|key| secret::source_of(key, variable).is_some()) || self.base.and_then(variable).is_some()
    }

    /// The endpoint, as the environment says.
    pub(super) fn endpoint(&self) -> Endpoint {
        let given = match self.base {
            Some(base) => variable(base),
            None => local::base_of(self.name, variable),
        };
        Endpoint {
            needs_key: given.is_none(),
            base: given.map(|base| base.trim_end_matches('/').to_owned()),
            key: self.key.map_or(KeySource::None, |name| KeySource::Variable(name.to_owned())),
            ..Endpoint::of(self.name, self.dialect)
        }
    }
}
