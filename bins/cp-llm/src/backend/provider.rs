//! The providers that have a server, and what their environment variables say.

use cp_common::program::{CredentialSource, Credentials};
use cp_common::{Code, Context, Error, Result};

use super::secret;
use super::server::Server;
use crate::dialect::Dialect;
use crate::dialect::anthropic::Anthropic;
use crate::dialect::gemini::Gemini;
use crate::dialect::openai::OpenAi;
use crate::dialect::responses::Responses;
use crate::environment::variable;
use crate::http::client::{Client, Timeouts};

/// A provider with a server.
pub(super) struct Provider {
    /// The name of the backend.
    pub name: &'static str,
    /// The variable that holds the key.
    key: &'static str,
    /// The variable that holds the base URL.
    base: &'static str,
    default_base: &'static str,
    /// Whether only its name chooses it, and not its variables.
    pub only_by_name: bool,
    /// How the names of its models begin.
    pub models: &'static [&'static str],
    /// Its dialect, as the server at this base URL uses it.
    dialect: fn(&Provider, &str) -> Box<dyn Dialect>,
}

/// Every provider.
pub(super) static PROVIDERS: [Provider; 4] = [
    Provider {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        base: "ANTHROPIC_BASE_URL",
        default_base: "https://api.anthropic.com",
        only_by_name: false,
        models: &["claude"],
        dialect: |_, _| Box::new(Anthropic),
    },
    Provider {
        name: "openai",
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        default_base: "https://api.openai.com/v1",
        only_by_name: false,
        models: &["gpt-", "o1", "o3", "o4", "chatgpt"],
        dialect: |provider, base| Box::new(OpenAi { original: base == provider.default_base }),
    },
    // The same server and key in its other dialect.
    Provider {
        name: "openai-responses",
        key: "OPENAI_API_KEY",
        base: "OPENAI_BASE_URL",
        default_base: "https://api.openai.com/v1",
        only_by_name: true,
        models: &[],
        dialect: |_, _| Box::new(Responses),
    },
    Provider {
        name: "gemini",
        key: "GEMINI_API_KEY",
        base: "GEMINI_BASE_URL",
        default_base: "https://generativelanguage.googleapis.com/v1beta",
        only_by_name: false,
        models: &["gemini"],
        dialect: |_, _| Box::new(Gemini),
    },
];

impl Provider {
    /// Whether the environment names its key or its server.
    pub(super) fn is_configured(&self) -> bool {
        secret::source_of(self.key, variable).is_some() || variable(self.base).is_some()
    }

    /// The provider's server, ready to be asked.
    pub(super) fn server(&self, timeouts: Timeouts, connections: usize, needs_key: bool) -> Result<Server> {
        let given = variable(self.base);
        let base = given.as_deref().unwrap_or(self.default_base).trim_end_matches('/');
        let dialect = (self.dialect)(self, base);
        let base = dialect.base(base).to_owned();
        let key = secret::key(self.key, variable)?;
        if needs_key && key.is_none() && given.is_none() {
            return Err(Error::new(Code::Auth, format!("{}: no key is set", self.name))
                .with("backend", self.name)
                .with("missing", self.key)
                .hint(format!("set {0}, or {0}_FILE to a file that holds it; --backend stub needs none", self.key))
                .fatal());
        }
        let client = Client::new(&base, timeouts, connections, variable)?;
        Ok(Server { name: self.name, dialect, base, key, headers: Vec::new(), client })
    }
}

/// Which keys are there, and where; never what they are.
pub(crate) fn credentials(_: &Context) -> Credentials {
    let found = PROVIDERS
        .iter()
        .filter(|provider| !provider.only_by_name)
        .filter_map(|provider| Some((provider.name, secret::source_of(provider.key, variable)?)));
    let sources: Vec<CredentialSource> =
        found.map(|(provider, source)| CredentialSource { provider: provider.to_owned(), source }).collect();
    Credentials::found(sources)
}
