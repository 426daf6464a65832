//! Which backend answers, and what it needs: a flag, a setting, or the one key that is there decides.

use std::path::Path;

use cp_common::program::{CredentialSource, Credentials};
use cp_common::{Code, Context, Error, Result};

use crate::exchange::Server;
use crate::http::client::{Client, Waits};
use crate::llm::Llm;
use crate::program::Speaker;
use crate::secret;
use crate::stub::Stub;
use crate::wire::Wire;
use crate::wire::anthropic::Anthropic;
use crate::wire::gemini::Gemini;
use crate::wire::openai::OpenAi;
use crate::wire::responses::Responses;

/// What answers.
pub(crate) enum Backend {
    /// A model that counts.
    Stub(Stub),
    /// A server.
    Server(Server),
    /// An executable that speaks records, and the path it was named by.
    Speaker(Speaker, String),
    /// The `llm` program.
    Llm(Llm),
}

/// A provider with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provider {
    /// The name of the backend.
    pub name: &'static str,
    key: &'static str,
    base: &'static str,
    default_base: &'static str,
    /// How the names of its models begin.
    models: &'static [&'static str],
}

const RESPONSES: &str = "openai-responses";

/// Every provider.
pub(crate) const PROVIDERS: [Provider; 4] = [
    Provider {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        base: "ANTHROPIC_BASE_URL",
        default_base: "https://api.anthropic.com",
        models: &["claude"],
    },
    Provider {
        name: "openai",
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        default_base: "https://api.openai.com/v1",
        models: &["gpt-", "o1", "o3", "o4", "chatgpt"],
    },
    // The same server and key in its other dialect: only when it is named.
    Provider {
        name: RESPONSES,
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        default_base: "https://api.openai.com/v1",
        models: &[],
    },
    Provider {
        name: "gemini",
        key: "GEMINI_API_KEY",
        base: "GEMINI_BASE_URL",
        default_base: "https://generativelanguage.googleapis.com/v1beta",
        models: &["gemini"],
    },
];

impl Provider {
    /// Whether the environment names its key or its server.
    fn is_configured(&self) -> bool {
        secret::source_of(self.key, variable).is_some() || variable(self.base).is_some()
    }

    fn wire(&self, base: &str) -> Box<dyn Wire> {
        match self.name {
            "anthropic" => Box::new(Anthropic),
            "gemini" => Box::new(Gemini),
            RESPONSES => Box::new(Responses),
            _ => Box::new(OpenAi { original: base == self.default_base }),
        }
    }

    /// The provider's server, ready to be asked.
    pub(crate) fn server(&self, waits: Waits, connections: usize, needs_key: bool) -> Result<Server> {
        let given = variable(self.base);
        let base = given.as_deref().unwrap_or(self.default_base).trim_end_matches('/');
        let base = if self.name == "anthropic" { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        let key = secret::key(self.key, variable)?;
        if needs_key && key.is_none() && given.is_none() {
            return Err(Error::new(Code::Auth, format!("{}: no key is set", self.name))
                .with("backend", self.name)
                .with("missing", self.key)
                .hint(format!("set {0}, or {0}_FILE to a file that holds it; --backend stub needs none", self.key))
                .fatal());
        }
        let client = Client::new(base, waits, connections, variable)?;
        Ok(Server { name: self.name, wire: self.wire(base), base: base.to_owned(), key, client })
    }
}

/// An environment variable that is not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name of the backend that is meant: the flag, else the setting, else the provider that is configured.
pub(crate) fn name_of(flag: Option<&str>, model: Option<&str>, context: &Context) -> Result<String> {
    if let Some(name) = context.config.text("backend", flag) {
        return Ok(name);
    }
    let configured: Vec<&Provider> =
        PROVIDERS.iter().filter(|provider| provider.name != RESPONSES && provider.is_configured()).collect();
    if let [only] = configured.as_slice() {
        return Ok(only.name.to_owned());
    }
    let speaks =
        |provider: &&&Provider| model.is_some_and(|m| provider.models.iter().any(|prefix| m.starts_with(prefix)));
    if let Some(provider) = configured.iter().find(speaks) {
        return Ok(provider.name.to_owned());
    }
    if configured.is_empty() {
        return Err(Error::config("no backend is configured")
            .hint("set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY (or OPENAI_BASE_URL for a server of your own), or give --backend stub to try without one")
            .fatal());
    }
    let names: Vec<&str> = configured.iter().map(|provider| provider.name).collect();
    Err(Error::config(format!("{} are all configured", names.join(", ")))
        .hint("choose with --backend or CP_BACKEND")
        .fatal())
}

impl Backend {
    /// The backend of this name.
    pub(crate) fn of(
        name: &str,
        script: Option<&Path>,
        waits: Waits,
        connections: usize,
        needs_key: bool,
    ) -> Result<Self> {
        if name == "stub" {
            return Ok(Self::Stub(script.map(Stub::with_script).transpose()?.unwrap_or_default()));
        }
        if name == "llm" {
            return Ok(Self::Llm(Llm::on_path(waits.total)?));
        }
        if name.contains('/') {
            return Ok(Self::Speaker(Speaker::at(name, waits.total)?, name.to_owned()));
        }
        match PROVIDERS.iter().find(|provider| provider.name == name) {
            Some(provider) => Ok(Self::Server(provider.server(waits, connections, needs_key)?)),
            None => Err(unknown(name)),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Stub(_) => "stub",
            Self::Llm(_) => "llm",
            Self::Speaker(_, name) => name,
            Self::Server(server) => server.name,
        }
    }
}

fn unknown(name: &str) -> Error {
    let known: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).chain(["llm", "stub"]).collect();
    let error = Error::config(format!("there is no backend `{name}`")).with("known", known.clone()).fatal();
    match cp_common::spelling::nearest(name, known.iter().copied()) {
        Some(nearest) => error.hint(format!("did you mean `{nearest}`?")),
        None => error.hint(format!("it is one of {}, or the path of an executable", known.join(", "))),
    }
}

/// Which keys are there, and where; never what they are.
pub(crate) fn credentials(_: &Context) -> Credentials {
    let found = PROVIDERS
        .iter()
        .filter(|provider| provider.name != RESPONSES)
        .filter_map(|provider| Some((provider.name, secret::source_of(provider.key, variable)?)));
    let sources: Vec<CredentialSource> =
        found.map(|(provider, source)| CredentialSource { provider: provider.to_owned(), source }).collect();
    Credentials { configured: !sources.is_empty(), sources }
}
