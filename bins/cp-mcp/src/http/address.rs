//! Which servers may be reached.

use std::net::IpAddr;

use cp_common::{Code, Error, Result};
use cp_http::client;
use cp_servers::{Network, Table, is_name};

/// The URL of a server.
#[derive(Debug)]
pub(crate) struct Address {
    /// As requests are sent to it.
    pub(crate) url: String,
    /// Whether it is on this machine.
    pub(crate) is_loopback: bool,
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
        let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !is_loopback && uri.scheme_str() == Some("http") {
            return Err(Error::new(Code::Forbidden, format!("{host} would be reached without encryption"))
                .with("rule", "mcp.encryption")
                .hint("begin the URL with https://; only this machine is reached over http"));
        }
        Ok(Self { url: uri.to_string(), is_loopback, host })
    }

    /// The name of the server where none is given.
    pub(crate) fn name(&self) -> Result<String> {
        let name = self.host.replace('.', "-");
        let usage = || Error::usage("the URL gives the server no name").hint("cp-mcp connect --name NAME URL");
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
            None if !self.is_loopback && table.network != Network::Host => {
                let message = format!("the policy does not let the server {name} be reached at {}", self.host);
                let hint = format!("url = \"{}\" in [mcp.{name}] of the policy permits this one", self.url);
                Err(Error::new(Code::Forbidden, message).with("rule", "mcp.network").hint(hint))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_reached_without_encryption_or_a_line_of_policy() {
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
}
