//! Endpoints that need no table in `config/cp.toml`: the providers, configured by environment variables, and the servers that people run on their
//! own machines.

use std::net::IpAddr;
use std::time::Duration;

use cp_http::client::{Client, Timeouts};

use super::endpoint::{ApiName, Endpoint, KeySource};
use super::server::Server;
use super::{Backend as _, secret};
use crate::variable;
use crate::wire_api::openai::OpenAi;

/// An endpoint that exists without a table in `config/cp.toml`.
pub(super) struct Provider {
    pub name: &'static str,
    api: ApiName,
    /// The environment variables of the key and of the base URL; none for a local server.
    variables: Option<(&'static str, &'static str)>,
    /// The base URL that a local server has by default.
    local: Option<&'static str>,
    /// True if the endpoint is used only where it is named, even if its variables are set.
    pub only_by_name: bool,
    /// Prefixes of the names of its models.
    pub models: &'static [&'static str],
}

pub(super) static PROVIDERS: [Provider; 8] = [
    remote("anthropic", ApiName::Anthropic, ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), &["claude"]),
    remote("openai", ApiName::Openai, OPENAI, &["gpt-", "o1", "o3", "o4", "chatgpt"]),
    Provider { only_by_name: true, ..remote("openai-responses", ApiName::OpenaiResponses, OPENAI, &[]) },
    remote("gemini", ApiName::Gemini, ("GEMINI_API_KEY", "GEMINI_BASE_URL"), &["gemini"]),
    local("ollama", "http://127.0.0.1:11434/v1"),
    local("llamacpp", "http://127.0.0.1:8080/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
    local("lmstudio", "http://127.0.0.1:1234/v1"),
];

const OPENAI: (&str, &str) = ("OPENAI_API_KEY", "OPENAI_BASE_URL");

const fn remote(
    name: &'static str,
    api: ApiName,
    variables: (&'static str, &'static str),
    models: &'static [&'static str],
) -> Provider {
    Provider { name, api, variables: Some(variables), local: None, only_by_name: false, models }
}

const fn local(name: &'static str, base: &'static str) -> Provider {
    Provider { name, api: ApiName::Openai, variables: None, local: Some(base), only_by_name: true, models: &[] }
}

impl Provider {
    /// True if the environment has its key or its base URL.
    pub(super) fn is_configured(&self) -> bool {
        self.variables.is_some_and(|(key, base)| secret::source_of(key, variable).is_some() || variable(base).is_some())
    }

    /// True if it has a key.
    pub(super) fn has_key(&self) -> bool {
        self.variables.is_some()
    }

    /// The endpoint that the environment configures.
    pub(super) fn endpoint(&self) -> Endpoint {
        let base = self.base();
        Endpoint {
            needs_key: base.is_none(),
            base: base.map(|base| base.trim_end_matches('/').to_owned()),
            key: self.variables.map_or(KeySource::None, |(key, _)| KeySource::Variable(key.to_owned())),
            ..Endpoint::of(self.name, self.api)
        }
    }

    fn base(&self) -> Option<String> {
        match self.local {
            None => self.variables.and_then(|(_, base)| variable(base)),
            Some(usual) => {
                let host = variable("OLLAMA_HOST").filter(|_| self.name == "ollama");
                Some(host.map_or_else(|| usual.to_owned(), |host| ollama(&host)))
            }
        }
    }
}

/// The base URL for a value of `OLLAMA_HOST`, read as Ollama reads it: the scheme, the host and the port are optional.
fn ollama(host: &str) -> String {
    let host = host.trim().trim_matches(['"', '\'']);
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let usual = match (host.contains("://"), scheme) {
        (true, "http") => "80",
        (true, "https") => "443",
        _ => "11434",
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, port) = match authority.rsplit_once(':') {
        // Colons without brackets are an IPv6 address without a port.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
        _ => (authority, usual),
    };
    let port = if port.parse::<u16>().is_ok() { port } else { usual };
    let name = match name.trim_matches(['[', ']']) {
        // A server that listens on all addresses is asked on loopback.
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        name if name.contains(':') => format!("[{name}]"),
        name => name.to_owned(),
    };
    let path = path.trim_end_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{name}:{port}{slash}{path}/v1")
}

/// A server on this machine that answers.
pub(crate) struct LocalServer {
    /// The name of its endpoint.
    pub name: &'static str,
    /// Its base URL.
    pub base: String,
    /// Its models.
    pub models: Vec<String>,
}

impl LocalServer {
    /// The first model whose name needs no quotes in a shell, as `-m` takes it.
    pub(crate) fn model(&self) -> Option<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
        let model = self.models.iter().find(|model| !model.is_empty() && model.chars().all(is_plain))?;
        Some(format!("{}/{model}", self.name))
    }
}

/// The servers on this machine that answer within the limit, each with its models. A port without a listener fails at once.
pub(crate) fn running_servers(limit: Duration) -> Vec<LocalServer> {
    std::thread::scope(|scope| {
        let local = PROVIDERS.iter().filter(|provider| provider.local.is_some());
        let probes: Vec<_> = local.map(|provider| scope.spawn(move || probe(provider, limit))).collect();
        probes.into_iter().filter_map(|probe| probe.join().ok()?).collect()
    })
}

fn probe(provider: &Provider, limit: Duration) -> Option<LocalServer> {
    let (name, base) = (provider.name, provider.base().filter(|base| is_of_this_machine(base))?);
    // A proxy cannot reach this machine's loopback.
    let client = Client::new("cp-llm", &base, Timeouts { total: limit, idle: None }, 1, |_| None).ok()?;
    let api = Box::new(OpenAi { original: false });
    let (headers, command_line_headers) = (Vec::new(), Vec::new());
    let endpoint = name.to_owned();
    let server =
        Server { endpoint, name: "openai", api, base: base.clone(), key: None, headers, command_line_headers, client };
    Some(LocalServer { name, base, models: server.models()?.ok()? })
}

/// True if a base URL has a loopback address. Other hosts are asked only if the user names them.
fn is_of_this_machine(base: &str) -> bool {
    let authority = base.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_is_parsed() {
        for (host, base) in [
            ("", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":9000", "http://127.0.0.1:9000/v1"),
            ("box", "http://box:11434/v1"),
            (" \"box:12\" ", "http://box:12/v1"),
            ("box:99999", "http://box:11434/v1"),
            ("http://box", "http://box:80/v1"),
            ("https://box/models/", "https://box:443/models/v1"),
            ("::1", "http://[::1]:11434/v1"),
            ("[::1]:12", "http://[::1]:12/v1"),
        ] {
            assert_eq!(ollama(host), base, "{host}");
        }
    }

    #[test]
    fn only_loopback_is_local() {
        for host in ["", "0.0.0.0", "::", "localhost:1", "[::1]:12", "127.1.2.3"] {
            assert!(is_of_this_machine(&ollama(host)), "{host}");
        }
        for host in ["box", "192.168.1.2", "127.0.0.1.example.com", "https://localhost.example.com", "[fe80::1]:12"] {
            assert!(!is_of_this_machine(&ollama(host)), "{host}");
        }
    }
}
