//! A client for one server, perhaps through a proxy. It does not follow redirects, returns every status, and has a time
//! limit for every wait.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use cp_common::program::VERSION;
use cp_common::{Code, Error, Result, signals};
use ureq::config::Config;
use ureq::http::HeaderMap;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};
use ureq::{AsSendBody, Proxy, RequestBuilder};

use crate::net;
use crate::tls::{authorities, certificate_error};

/// The time limit for resolving a name, and for opening a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The time to wait for the end of a body after the last event, so that the connection can be reused.
const LINGER: Duration = Duration::from_millis(100);
/// The largest body that is read into memory.
pub const LIMIT: u64 = 64 << 20;

/// The hint for a failed proxy.
const PROXY: &str = "HTTPS_PROXY, http_proxy or ALL_PROXY names the proxy; NO_PROXY exempts a host from it";

/// Timeouts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the request to the end of the response.
    pub total: Duration,
    /// The longest pause in a stream.
    pub idle: Option<Duration>,
}

/// A client for one server. Connections are kept open and reused.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    host: String,
    /// The host and port of the proxy, without its password.
    route: Option<String>,
    timeouts: Timeouts,
}

/// Parses the URL of a server: http or https, with a host.
pub fn address(base: &str) -> Result<ureq::http::Uri> {
    let is_server = |uri: &ureq::http::Uri| {
        let authority = uri.authority().filter(|_| matches!(uri.scheme_str(), Some("http" | "https")));
        // A port that is not valid is no port.
        authority
            .is_some_and(|all| !all.host().is_empty() && (all.port().is_some() || all.as_str().ends_with(all.host())))
    };
    let uri = base.parse().ok().filter(is_server);
    uri.ok_or_else(|| Error::config(format!("{base} is not a valid http or https URL")).fatal())
}

impl Client {
    /// A client for the URLs under `base`. Built-in certificates are loaded with the first connection that needs them.
    pub fn new(
        program: &str,
        base: &str,
        timeouts: Timeouts,
        connections: usize,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let uri = address(base)?;
        let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
        let proxy = proxy_for(scheme, host, &variable)?;
        let route = proxy.as_ref().map(|proxy| format!("{}:{}", proxy.host(), proxy.port()));
        let file = variable("SSL_CERT_FILE").filter(|file| !file.is_empty() && scheme == "https");
        let roots = file.map(|file| authorities(Path::new(&file))).transpose()?.unwrap_or(RootCerts::WebPki);
        let config = Config::builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(format!("{program}/{VERSION}"))
            .proxy(proxy)
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT));
        let sockets = ().chain(ConnectProxyConnector::default()).chain(net::Sockets);
        let agent =
            ureq::Agent::with_parts(config.build(), sockets.chain(RustlsConnector::default()), net::Names::default());
        Ok(Self {
            agent,
            host: uri.authority().map_or(host, |a| a.as_str().rsplit('@').next().unwrap_or(host)).to_owned(),
            route,
            timeouts,
        })
    }

    /// A client with the same connections, another time limit.
    #[must_use]
    pub fn within(&self, total: Duration) -> Self {
        Self { timeouts: Timeouts { total, idle: None }, ..self.clone() }
    }

    /// Posts a body: bytes, or a reader with its length in a header.
    pub fn post(&self, url: &str, headers: &[(String, String)], body: impl AsSendBody) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.post(url), headers).send(body), LIMIT)
    }

    /// Gets a resource. `limit` may be larger than [`LIMIT`] if the size of the resource is known to be bounded.
    pub fn get(&self, url: &str, headers: &[(String, String)], limit: u64) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.get(url), headers).call(), limit)
    }

    /// Deletes a resource.
    pub fn delete(&self, url: &str, headers: &[(String, String)]) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.delete(url), headers).call(), LIMIT)
    }

    fn request<B>(&self, request: RequestBuilder<B>, headers: &[(String, String)]) -> RequestBuilder<B> {
        let Timeouts { total, idle } = self.timeouts;
        let request = request.config().timeout_global(Some(total)).timeout_per_read(idle).build();
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    fn reply(&self, outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>, limit: u64) -> Result<Reply<'_>> {
        net::limit_waits(None);
        let (head, body) = outcome.map_err(|e| self.failure(e))?.into_parts();
        let reader = body.into_with_config().limit(limit).reader();
        Ok(Reply { client: self, status: head.status.as_u16(), headers: head.headers, reader })
    }

    /// Converts an error of the transport.
    fn failure(&self, e: ureq::Error) -> Error {
        if signals::interrupted() {
            return Error::new(Code::Interrupted, "interrupted");
        }
        let error = certificate_error(&self.host, &e).unwrap_or_else(|| self.transport_error(e));
        let error = error.with("origin", "transport").with("host", self.host.as_str());
        let Some(route) = &self.route else { return error };
        let error = error.with("proxy", route.as_str());
        if error.hint_text().is_none() { error.hint(PROXY) } else { error }
    }

    fn transport_error(&self, e: ureq::Error) -> Error {
        let host = match &self.route {
            Some(route) => format!("{} through the proxy {route}", self.host),
            None => self.host.clone(),
        };
        let failed = |code, why: &str| Error::new(code, format!("{host}: {why}"));
        let late = |phase: &str, why: &str, limit: Duration| {
            failed(Code::Timeout, &format!("{why} {} s", limit.as_secs_f64())).with("phase", phase)
        };
        // Nothing was sent on a connection that was not opened.
        let unconnected = |why: &str| failed(Code::Network, why).with("phase", "connect");
        match e {
            ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
                late("connect", "no connection within", CONNECT)
            }
            ureq::Error::Timeout(kind) => match self.timeouts.idle.filter(|_| kind == ureq::Timeout::PerRead) {
                Some(idle) => late("idle", "silent for", idle).hint("raise --idle-timeout to allow for longer pauses"),
                None => late("total", "no complete answer within", self.timeouts.total)
                    .hint("raise --timeout to allow for longer answers"),
            },
            ureq::Error::ConnectProxyFailed(why) if why.contains("407") || why.contains("401") => {
                failed(Code::Auth, "the proxy refused its user name or password").hint(PROXY).fatal()
            }
            ureq::Error::ConnectProxyFailed(why) => unconnected(&why),
            ureq::Error::HostNotFound => unconnected("the name does not resolve"),
            ureq::Error::Http(_) => Error::config("a header has characters that HTTP does not allow")
                .hint("check the key for line breaks")
                .fatal(),
            ureq::Error::BadUri(uri) => Error::config(format!("{uri} is not a valid URL")).fatal(),
            ureq::Error::LargeResponseHeader(..) => failed(Code::Server, "the response header is too large"),
            ureq::Error::BodyExceedsLimit(_) => {
                failed(Code::Server, &format!("the response is larger than {} MiB", LIMIT >> 20))
            }
            e if e.to_string().contains("corrupt message") => failed(Code::Config, "the server does not use TLS")
                .hint("if the server has no TLS, begin the base URL with http://")
                .fatal(),
            ureq::Error::Io(e) => {
                let kinds = [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
                let is_unconnected = kinds.contains(&e.kind());
                let why = Error::from(e);
                if is_unconnected { unconnected(why.message()) } else { failed(Code::Network, why.message()) }
            }
            e => failed(Code::Network, &e.to_string()),
        }
    }
}

/// A response: its head, and its body as it arrives.
pub struct Reply<'a> {
    client: &'a Client,
    /// The HTTP status.
    pub status: u16,
    headers: HeaderMap,
    reader: ureq::BodyReader<'static>,
}

impl Reply<'_> {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name)?.to_str().ok().map(str::to_owned)
    }

    /// Reads the next bytes of the body; empty at its end.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let length = self.reader.read(buffer).map_err(|e| self.client.failure(ureq::Error::from(e)))?;
        Ok(&buffer[..length])
    }

    /// Appends the rest of the body. Bytes before a failure are kept.
    pub fn read_all(&mut self, body: &mut Vec<u8>) -> Result<()> {
        let read = self.reader.read_to_end(body);
        // Some servers begin JSON with a byte order mark, which parsers refuse.
        if body.starts_with(b"\xEF\xBB\xBF") {
            body.drain(..3);
        }
        read.map(drop).map_err(|e| self.client.failure(ureq::Error::from(e)))
    }

    /// Reads the end of the body if it has arrived, so that the connection can be reused.
    pub fn linger(mut self) {
        net::limit_waits(Some(LINGER));
        let mut rest = [0; 1024];
        while self.reader.read(&mut rest).is_ok_and(|length| length > 0) {}
        net::limit_waits(None);
    }
}

/// True for a name or an address of this machine's loopback interface.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The proxy for a target, from the environment. No proxy reaches the loopback interface of this machine.
fn proxy_for(scheme: &str, host: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>> {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
    if is_loopback(host) || first(&["no_proxy", "NO_PROXY"]).is_some_and(|list| is_exempt(&list, host)) {
        return Ok(None);
    }
    let own: &[&str] = match scheme {
        "https" => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        // HTTP_PROXY is ignored, as in curl, because a CGI server sets it from a header of the request.
        _ => &["http_proxy", "all_proxy", "ALL_PROXY"],
    };
    let Some(address) = first(own) else { return Ok(None) };
    // The URL may have a password, so messages never contain it.
    let proxy =
        Proxy::new(&address).map_err(|_| Error::config("the proxy in the environment is not a valid URL").fatal())?;
    if !matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https) {
        return Err(Error::config("a SOCKS proxy is not supported")
            .hint("use an HTTP proxy, or exempt the host with NO_PROXY")
            .fatal());
    }
    Ok(Some(proxy))
}

/// True if a `NO_PROXY` list has the host: `*`, the host itself, or its domain.
fn is_exempt(list: &str, host: &str) -> bool {
    let bare = |name: &str| name.trim_matches(['[', ']', '.']).to_ascii_lowercase();
    let (host, mut entries) = (format!(".{}", bare(host)), list.split([',', ' ']).map(bare));
    entries.any(|entry| entry == "*" || !entry.is_empty() && host.ends_with(&format!(".{entry}")))
}

/// The error code for the status of a response that is no success.
pub const fn code_of(status: u16) -> Code {
    match status {
        // Redirects are not followed, because requests have a key.
        300..400 => Code::Config,
        401 => Code::Auth,
        402 | 403 => Code::Forbidden,
        404 => Code::NotFound,
        408 => Code::Timeout,
        409 => Code::Conflict,
        429 => Code::RateLimited,
        // 400, 413, 422 and other errors of the request.
        400..500 => Code::Validation,
        _ => Code::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(scheme: &str, host: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        proxy_for(scheme, host, variable).unwrap().map(|proxy| proxy.host().to_owned())
    }

    #[test]
    fn proxy_is_selected_by_scheme() {
        let variables =
            [("HTTPS_PROXY", "http://secure:1"), ("http_proxy", "http://plain:1"), ("HTTP_PROXY", "http://cgi:1")];
        assert_eq!(proxied("https", "a.example", &variables).unwrap(), "secure");
        assert_eq!(proxied("http", "a.example", &variables).unwrap(), "plain");
        assert_eq!(proxied("http", "a.example", &variables[2..]), None);
    }

    #[test]
    fn no_proxy_exempts_hosts_and_domains() {
        let with = |list| [("ALL_PROXY", "http://p:1"), ("NO_PROXY", list)];
        assert_eq!(proxied("https", "api.example.com", &with("other, .example.com")), None);
        assert_eq!(proxied("https", "badexample.com", &with("example.com")).unwrap(), "p");
        assert_eq!(proxied("https", "a", &with("*")), None);
        assert_eq!(proxied("http", "[2001:db8::1]", &with("2001:db8::1")), None);
        for host in ["localhost", "127.1.2.3", "[::1]"] {
            assert_eq!(proxied("http", host, &with("other")), None, "{host}");
        }
        assert_eq!(proxied("http", "localhost.example", &with("other")).unwrap(), "p");
    }
}
