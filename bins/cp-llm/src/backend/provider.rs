//! Endpoints that need no table in `config/cp.toml`: the providers, configured by environment variables, and the
//! servers that people run on their own machines.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

use cp_common::home::config::variable;
use serde::Deserialize;

use super::table::{ApiName, Table};

/// A row of `providers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    pub name: String,
    pub endpoint: Table,
    base_env: Option<String>,
    #[serde(default)]
    pub only_by_name: bool,
    #[serde(default)]
    models: Vec<String>,
    /// The model of requests that name none. A server in its place has models of its own.
    pub default_model: Option<String>,
}

/// The providers in their order.
pub(super) static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let rows = toml::from_str::<BTreeMap<String, Vec<Provider>>>(include_str!("providers.toml"));
    rows.ok().and_then(|mut rows| rows.remove("provider")).unwrap_or_default()
});

/// The provider of this name.
pub(super) fn named(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

impl Provider {
    /// The wire API.
    pub(super) fn api(&self) -> ApiName {
        self.endpoint.dialect.unwrap_or(ApiName::Openai)
    }

    /// True if it has a key, which is for this base URL.
    pub(super) fn has_key_for(&self, base: Option<&str>) -> bool {
        self.endpoint.key_env.is_some() && self.endpoint.base_url.as_deref() == base
    }

    /// True if a model has one of its prefixes.
    pub(super) fn has_model(&self, model: &str) -> bool {
        self.models.iter().any(|prefix| model.starts_with(prefix))
    }

    /// The base URL that the environment names.
    pub(super) fn base_of_environment(&self) -> Option<String> {
        let base = self.base_env.as_deref().and_then(variable)?;
        Some(if self.name == "ollama" { ollama(&base) } else { base })
    }
}

/// The base URL for a value of `OLLAMA_HOST`: a URL, or a host and a port, of which each is optional, as for Ollama.
fn ollama(given: &str) -> String {
    // A server that listens on all addresses is asked on loopback.
    let given = given.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    if given.contains("://") {
        return format!("{}/v1", given.replacen("://0.0.0.0", "://127.0.0.1", 1));
    }
    let is_bare = given.parse::<Ipv6Addr>().is_ok();
    let authority = if is_bare { format!("[{given}]") } else { given.to_owned() };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let parts = authority.rsplit_once(':').filter(|(_, port)| is_port(port));
    let (name, port) = match parts.unwrap_or((&authority, "11434")) {
        ("" | "0.0.0.0", port) => ("127.0.0.1", port),
        ("[::]", port) => ("[::1]", port),
        parts => parts,
    };
    format!("http://{name}:{port}/v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_rows() {
        assert_eq!(PROVIDERS.len(), include_str!("providers.toml").matches("[[provider]]").count());
        for api in [ApiName::Anthropic, ApiName::Openai, ApiName::OpenaiResponses, ApiName::Gemini] {
            let base = named(api.name()).unwrap().endpoint.base_url.as_deref();
            assert!(base.unwrap().starts_with("https://"), "{}", api.name());
        }
    }

    #[test]
    fn ollama_host_is_parsed() {
        for (host, base) in [
            ("", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":9000", "http://127.0.0.1:9000/v1"),
            ("box", "http://box:11434/v1"),
            (" \"box:12\" ", "http://box:12/v1"),
            ("http://box", "http://box/v1"),
            ("http://0.0.0.0:12", "http://127.0.0.1:12/v1"),
            ("https://box/models/", "https://box/models/v1"),
            ("::1", "http://[::1]:11434/v1"),
            ("[::1]:12", "http://[::1]:12/v1"),
        ] {
            assert_eq!(ollama(host), base, "{host}");
        }
    }
}
