//! Endpoints that need no table in `config/cp.toml`: the providers, configured by environment variables, and the servers that people run on their
//! own machines.

use std::net::IpAddr;
use std::time::Duration;

use super::endpoint::{DialectName, Endpoint, KeySource};
use super::server::Server;
use super::{ModelList as _, secret};
use crate::dialect::openai::OpenAi;
use crate::variable;
use cp_http::client::{Client, Timeouts};

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
            None => base_of(self.name, variable),
        };
        Endpoint {
            needs_key: given.is_none(),
            base: given.map(|base| base.trim_end_matches('/').to_owned()),
            key: self.key.map_or(KeySource::None, |name| KeySource::Variable(name.to_owned())),
            ..Endpoint::of(self.name, self.dialect)
        }
    }
}

/// Each server that is known, and its usual address.
pub(crate) const SERVERS: [(&str, &str); 4] = [
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("llamacpp", "http://127.0.0.1:8080/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
];

/// The base URL of a server that is known by this name.
pub(super) fn base_of(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (_, usual) = SERVERS.iter().find(|(known, _)| *known == name)?;
    let host = variable("OLLAMA_HOST").filter(|_| name == "ollama");
    Some(host.map_or_else(|| (*usual).to_owned(), |host| ollama(&host)))
}

/// The base URL that `OLLAMA_HOST` means, as Ollama reads it: the port may be absent, and the host, and the scheme.
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
        // A server that listens everywhere is asked here.
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        name if name.contains(':') => format!("[{name}]"),
        name => name.to_owned(),
    };
    let path = path.trim_end_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{name}:{port}{slash}{path}/v1")
}

/// A server of this machine that answers.
pub(crate) struct Found {
    /// The name of its endpoint.
    pub name: &'static str,
    /// Its base URL.
    pub base: String,
    /// Its models.
    pub models: Vec<String>,
}

impl Found {
    /// The model to ask it for, as it can be typed.
    pub(crate) fn model(&self) -> Option<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
        let model = self.models.iter().find(|model| !model.is_empty() && model.chars().all(is_plain))?;
        Some(format!("{}/{model}", self.name))
    }
}

/// The servers of this machine that answer within this time, each with its models. Where nothing listens that is said at once.
pub(crate) fn answering(limit: Duration) -> Vec<Found> {
    std::thread::scope(|scope| {
        let asked = SERVERS.map(|(name, _)| scope.spawn(move || found(name, limit)));
        asked.into_iter().filter_map(|asked| asked.join().ok()?).collect()
    })
}

fn found(name: &'static str, limit: Duration) -> Option<Found> {
    let base = base_of(name, variable).filter(|base| is_of_this_machine(base))?;
    // No proxy stands before them.
    let client = Client::new("cp-llm", &base, Timeouts { total: limit, idle: None }, 1, |_| None, None).ok()?;
    let dialect = Box::new(OpenAi { original: false });
    let (headers, given) = (Vec::new(), Vec::new());
    let endpoint = name.to_owned();
    let server = Server { endpoint, name: "openai", dialect, base: base.clone(), key: None, headers, given, client };
    Some(Found { name, base, models: server.models().ok()? })
}

/// Whether a base URL names a loopback address: nobody else is asked without being named.
fn is_of_this_machine(base: &str) -> bool {
    let authority = base.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_as_ollama_reads_it() {
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
    fn only_loopback_is_this_machine() {
        for host in ["", "0.0.0.0", "::", "localhost:1", "[::1]:12", "127.1.2.3"] {
            assert!(is_of_this_machine(&ollama(host)), "{host}");
        }
        for host in ["box", "192.168.1.2", "127.0.0.1.example.com", "https://localhost.example.com", "[fe80::1]:12"] {
            assert!(!is_of_this_machine(&ollama(host)), "{host}");
        }
    }
}
