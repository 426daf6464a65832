//! The endpoint of a server: its URL, whether the policy permits it, and the headers of `--header-file`.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cp_common::{Code, Error, Result};
use cp_http::client;
use cp_servers::{Network, Table, is_name};

/// The URL of a server.
#[derive(Debug)]
pub(crate) struct Address {
    /// The URL of requests.
    pub(crate) url: String,
    host: String,
}

impl Address {
    /// Reads a URL.
    pub(crate) fn of(text: &str) -> Result<Self> {
        let uri = client::address(text).map_err(|e| Error::usage(e.message()))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(Error::usage("the URL holds a name or a password").hint("put them into a file: --header-file"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if !client::is_loopback(&host) && uri.scheme_str() == Some("http") {
            return Err(Error::new(Code::Forbidden, format!("{host} would be reached without encryption"))
                .with("rule", "mcp.encryption")
                .hint("begin the URL with https://; only this machine is reached over http"));
        }
        Ok(Self { url: uri.to_string(), host })
    }

    /// The default name of the server.
    pub(crate) fn name(&self) -> Result<String> {
        let name = self.host.replace('.', "-");
        let usage = || Error::usage("the URL gives the server no name").hint("cp-mcp connect --server NAME URL");
        if is_name(&name) { Ok(name) } else { Err(usage()) }
    }

    /// Refuses a server that the policy does not permit.
    pub(crate) fn permit(&self, name: &str, table: &Table) -> Result<()> {
        let listed = table.url.as_deref().map(Self::of).transpose()?;
        match listed {
            Some(listed) if listed.url != self.url => {
                Err(Error::new(Code::Forbidden, format!("the policy has another URL for the server {name}"))
                    .with("rule", "mcp.url")
                    .with("url", listed.url)
                    .hint("connect to that one, or choose another name"))
            }
            None if !client::is_loopback(&self.host) && table.network != Network::Host => {
                let message = format!("the policy does not let the server {name} be reached at {}", self.host);
                let hint = format!("url = \"{}\" in [mcp.{name}] of the policy permits this one", self.url);
                Err(Error::new(Code::Forbidden, message).with("rule", "mcp.network").hint(hint))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The shortest secret, because shorter words occur in many texts.
const SHORTEST: usize = 8;
/// The headers that the transport writes itself.
const OURS: &str = " accept connection content-length content-type expect host transfer-encoding upgrade ";

/// Headers and their secrets. It has no `Debug` and no `Display`.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    /// The headers by name.
    pub(crate) list: Vec<(String, String)>,
    /// The values and each of their words, as text and as escaped JSON, longest first.
    secrets: Vec<String>,
}

impl Headers {
    /// Reads the headers of a file, one `Name: value` a line.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::config(Error::from(e).message()).in_file(path))?;
        let mode = path.metadata()?.mode();
        if mode & 0o027 != 0 {
            let fix = format!("chmod 600 {}", path.display());
            return Err(Error::config("others can read or write the headers").in_file(path).hint(fix));
        }
        let mut headers = Self::default();
        let lines =
            (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines {
            let wrong = |what: &str| Error::config(what).at_line(number).in_file(path).hint("write Name: value");
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("not a header"))?;
            let (name, value) = (name.trim_end(), value.trim());
            if !is_token(name) || value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
                return Err(wrong("not a header"));
            }
            let lower = name.to_ascii_lowercase();
            if OURS.contains(&format!(" {lower} ")) || lower.starts_with("mcp-") {
                return Err(wrong(&format!("the header {name} is written by the connection itself")));
            }
            for secret in value.split(' ').chain([value]).filter(|secret| secret.len() >= SHORTEST) {
                let escaped = serde_json::Value::from(secret).to_string();
                headers.secrets.extend([secret.to_owned(), escaped[1..escaped.len() - 1].to_owned()]);
            }
            headers.list.push((name.to_owned(), value.to_owned()));
        }
        headers.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(headers)
    }

    /// Redacts the secrets in a text, because servers repeat them in errors.
    pub(crate) fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[REDACTED]"))
    }
}

/// True if this is a valid header name.
fn is_token(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_server_requires_encryption_and_policy() {
        for url in ["http://127.0.0.1:1/mcp", "http://localhost/mcp", "http://[::1]:8/", "https://127.9.9.9/"] {
            Address::of(url).unwrap().permit("x", &Table::default()).unwrap();
        }
        for url in ["http://example.com/", "http://127.0.0.1.example.com/", "http://localhost.example.com/"] {
            assert_eq!(Address::of(url).unwrap_err().code(), Code::Forbidden, "{url}");
        }
        for url in ["ftp://localhost/", "/mcp", "https://", "http://me:word@localhost/"] {
            assert_eq!(Address::of(url).unwrap_err().code(), Code::Usage, "{url}");
        }
        let far = Address::of("https://mcp.example.com/v1?a=b#c").unwrap();
        assert_eq!(
            (far.url.as_str(), far.name().unwrap().as_str()),
            ("https://mcp.example.com/v1?a=b", "mcp-example-com")
        );
        assert_eq!(far.permit("x", &Table::default()).unwrap_err().code(), Code::Forbidden);
        let loopback = Table { network: Network::Loopback, ..Table::default() };
        assert!(far.permit("x", &loopback).is_err());
        far.permit("x", &Table { network: Network::Host, ..Table::default() }).unwrap();
        let listed = |url: &str| Table { url: Some(url.to_owned()), ..Table::default() };
        far.permit("x", &listed("https://mcp.example.com/v1?a=b")).unwrap();
        let other = Table { network: Network::Host, ..listed("https://mcp.example.com/v2") };
        assert_eq!(far.permit("x", &other).unwrap_err().details()["rule"], "mcp.url");
        assert!(Address::of("http://[::1]/").unwrap().name().is_err());
    }

    use cp_testkit::Place;

    #[test]
    fn header_values_are_redacted() {
        let place = Place::new();
        let file = |text: &str| place.work.write("headers", text);
        let private = |text: &str| {
            let path = file(text);
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            Headers::of_file(&path)
        };
        let headers = private("# mine\n\nAuthorization: Bearer tok\"en-12345\nX-Team:a\n").unwrap();
        assert_eq!(headers.list[1], ("X-Team".to_owned(), "a".to_owned()));
        let scrubbed = headers.scrub(r#"Bearer tok"en-12345, {"a":"tok\"en-12345"}, a Bearer"#);
        assert_eq!(scrubbed, r#"[REDACTED], {"a":"[REDACTED]"}, a Bearer"#);
        for wrong in ["secret-secret", ": x", "A B: x", "A: x\u{7f}", "Host: x", "Mcp-Session-Id: x"] {
            let error = private(wrong).err().unwrap();
            assert!(error.message().contains("line 1") && !error.message().contains("secret"), "{}", error.message());
        }
        for (mode, is_fine) in [(0o600, true), (0o400, true), (0o640, true), (0o604, false), (0o620, false)] {
            let path = file("A: b");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(Headers::of_file(&path).is_ok(), is_fine, "{mode:o}");
        }
    }
}
