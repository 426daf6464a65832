//! Endpoints that need no table in `config/cp.toml`: the providers, configured by environment variables, and the
//! servers that people run on their own machines.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

use cp_common::home::config::variable;

use super::table::Table;

/// Their tables, by name.
pub(super) static PROVIDERS: LazyLock<BTreeMap<String, Table>> =
    LazyLock::new(|| toml::from_str(include_str!("providers.toml")).unwrap_or_default());

/// The base URL of a provider that the environment names, in a variable beside that of its key.
pub(super) fn base_of_environment(name: &str, provider: &Table) -> Option<String> {
    if name == "ollama" {
        return variable("OLLAMA_HOST").map(|host| ollama(&host));
    }
    variable(&provider.key_env.as_ref()?.replace("_API_KEY", "_BASE_URL"))
}

/// The base URL for a value of `OLLAMA_HOST`: a URL, or a host and a port, of which each is optional, as for Ollama.
fn ollama(given: &str) -> String {
    // A server that listens on all addresses is asked on loopback.
    let given = given.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    if given.contains("://") {
        return format!("{}/v1", given.replacen("://0.0.0.0", "://127.0.0.1", 1));
    }
    let (given, path) = given.split_at(given.find('/').unwrap_or(given.len()));
    let is_bare = given.parse::<Ipv6Addr>().is_ok();
    let authority = if is_bare { format!("[{given}]") } else { given.to_owned() };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let parts = authority.rsplit_once(':').filter(|(_, port)| is_port(port));
    let (name, port) = match parts.unwrap_or((&authority, "11434")) {
        ("" | "0.0.0.0", port) => ("127.0.0.1", port),
        ("[::]", port) => ("[::1]", port),
        parts => parts,
    };
    format!("http://{name}:{port}{path}/v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_rows() {
        assert_eq!(PROVIDERS.len(), include_str!("providers.toml").matches("\n[").count());
        for api in ["anthropic", "openai", "openai-responses", "gemini"] {
            assert!(PROVIDERS[api].base_url.as_ref().unwrap().starts_with("https://"), "{api}");
        }
    }

    #[test]
    fn ollama_host_is_parsed() {
        for (host, base) in [
            ("", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":9000", "http://127.0.0.1:9000/v1"),
            ("127.0.0.1:9000/ollama/", "http://127.0.0.1:9000/ollama/v1"),
            ("gateway/ollama", "http://gateway:11434/ollama/v1"),
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
