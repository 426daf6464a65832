//! Requests to one server: no redirect is followed with a key, no status is hidden, every wait has an end.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use cp_common::program::VERSION;
use cp_common::{Code, Error, Result, signals};
use ureq::config::Config;
use ureq::http::HeaderMap;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};
use ureq::{AsSendBody, RequestBuilder};

use crate::tls::{OwnAuthorities, untrusted};
use crate::{net, proxy};

/// How long a name may take to resolve and a connection to open.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to wait for the end of a stream whose last event has come, so that the connection can be used again.
const LINGER: Duration = Duration::from_millis(100);
/// A whole answer longer than this is not the answer of a model.
pub const LIMIT: u64 = 64 << 20;

/// What helps where a proxy fails.
const PROXY: &str = "HTTPS_PROXY, http_proxy or ALL_PROXY names the proxy; NO_PROXY exempts a host from it";

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the request to the end of the answer.
    pub total: Duration,
    /// The longest silence of a server that streams.
    pub idle: Option<Duration>,
}

/// A client for one endpoint. Connections are kept and used again.
pub struct Client {
    agent: ureq::Agent,
    host: String,
    /// The proxy that requests go through: its host and port, never its password.
    route: Option<String>,
    timeouts: Timeouts,
    /// How long a body may be.
    limit: u64,
}

/// The URL of a server, which has a scheme that can be asked and a host.
pub fn address(base: &str) -> Result<ureq::http::Uri> {
    let uri = base.parse::<ureq::http::Uri>().ok();
    let asked = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
    asked.ok_or_else(|| Error::config(format!("{base} is not a valid http or https URL")).fatal())
}

impl Client {
    /// A client of this program for the URLs under `base`. Certificates are not read before the first connection that needs them. With `but_public` it
    /// connects to no address that is not public but those; where there is a proxy, that decides.
    pub fn new(
        program: &str,
        base: &str,
        timeouts: Timeouts,
        connections: usize,
        variable: impl Fn(&str) -> Option<String>,
        but_public: Option<Vec<IpAddr>>,
    ) -> Result<Self> {
        let uri = address(base)?;
        let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
        let proxy = proxy::proxy_for(scheme, host, &variable)?;
        let route = proxy.as_ref().map(|proxy| format!("{}:{}", proxy.host(), proxy.port()));
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(format!("{program}/{VERSION}"))
            .proxy(proxy)
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT));
        let file = variable("SSL_CERT_FILE").filter(|file| !file.is_empty() && scheme == "https");
        let own = file.map(|file| OwnAuthorities::of(Path::new(&file))).transpose()?.unwrap_or_default();
        let sockets = ().chain(ConnectProxyConnector::default()).chain(net::Sockets);
        let secured = sockets.chain(own).chain(RustlsConnector::default());
        let names = net::Names { but_public: but_public.filter(|_| route.is_none()) };
        let agent = ureq::Agent::with_parts(config.build(), secured, names);
        Ok(Self {
            agent,
            host: uri.authority().map_or(host, |a| a.as_str().rsplit('@').next().unwrap_or(host)).to_owned(),
            route,
            timeouts,
            limit: LIMIT,
        })
    }

    /// The same connections for one that has so long, and whose body may have any length: whoever reads it bounds what is kept.
    #[must_use]
    pub fn within(&self, total: Duration) -> Self {
        let (agent, host, route) = (self.agent.clone(), self.host.clone(), self.route.clone());
        Self { agent, host, route, timeouts: Timeouts { total, idle: None }, limit: u64::MAX }
    }

    /// Sends a body: bytes, or what is read as it goes, whose length a header says.
    pub fn post(&self, url: &str, headers: &[(String, String)], body: impl AsSendBody) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.post(url), headers).send(body), self.limit)
    }

    /// Asks for a resource. One that is not read into memory may be larger than [`LIMIT`].
    pub fn get(&self, url: &str, headers: &[(String, String)], limit: u64) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.get(url), headers).call(), limit)
    }

    /// Has a resource removed.
    pub fn delete(&self, url: &str, headers: &[(String, String)]) -> Result<Reply<'_>> {
        self.reply(self.request(self.agent.delete(url), headers).call(), self.limit)
    }

    fn request<B>(&self, request: RequestBuilder<B>, headers: &[(String, String)]) -> RequestBuilder<B> {
        let Timeouts { total, idle } = self.timeouts;
        let request = request.config().timeout_global(Some(total)).timeout_per_read(idle).build();
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    fn reply(&self, outcome: Result<ureq::http::Response<ureq::Body>, ureq::Error>, limit: u64) -> Result<Reply<'_>> {
        net::hurry(None);
        let (head, body) = outcome.map_err(|e| self.failure(e))?.into_parts();
        let reader = body.into_with_config().limit(limit).reader();
        Ok(Reply { client: self, status: head.status.as_u16(), headers: head.headers, reader })
    }

    /// The failure that an error of the transport is.
    fn failure(&self, e: ureq::Error) -> Error {
        if signals::interrupted() {
            return Error::new(Code::Interrupted, "interrupted");
        }
        let error = untrusted(&self.host, &e).unwrap_or_else(|| self.explained(e));
        let error = error.with("origin", "transport").with("host", self.host.as_str());
        let Some(route) = &self.route else { return error };
        let error = error.with("proxy", route.as_str());
        if error.hint_text().is_none() { error.hint(PROXY) } else { error }
    }

    fn explained(&self, e: ureq::Error) -> Error {
        let host = &self.place();
        match e {
            ureq::Error::Timeout(kind) => self.late(kind),
            ureq::Error::ConnectProxyFailed(why) => unopened(format!("{host}: {why}")),
            ureq::Error::HostNotFound => unopened(format!("{host}: the name does not resolve")),
            ureq::Error::Http(_) => Error::config("a header has characters that HTTP does not allow")
                .hint("check the key for line breaks")
                .fatal(),
            ureq::Error::BadUri(uri) => Error::config(format!("{uri} is not a valid URL")).fatal(),
            ureq::Error::LargeResponseHeader(..) => {
                Error::new(Code::Server, format!("{host}: the header of the answer is too large"))
            }
            ureq::Error::BodyExceedsLimit(_) => {
                Error::new(Code::Server, format!("{host}: the answer is larger than {} MiB", LIMIT >> 20))
            }
            e if e.to_string().contains("corrupt message") => {
                Error::config(format!("{host}: the server does not use TLS"))
                    .hint("if the server has no TLS, begin the base URL with http://")
                    .fatal()
            }
            // Not the system says that, but the resolver.
            ureq::Error::Io(e) if e.kind() == ErrorKind::PermissionDenied && e.raw_os_error().is_none() => {
                Error::new(Code::Forbidden, format!("{host}: {e}"))
                    .with("rule", "llm.fetch")
                    .hint("name the address itself in [llm] of config/policy.toml: fetch")
            }
            ureq::Error::Io(e) if was_not_opened(e.kind()) => unopened(format!("{host}: {}", Error::from(e).message())),
            ureq::Error::Io(e) => Error::new(Code::Network, format!("{host}: {}", Error::from(e).message())),
            e => Error::new(Code::Network, format!("{host}: {e}")),
        }
    }

    /// Where requests go, in words.
    fn place(&self) -> String {
        match &self.route {
            Some(route) => format!("{} through the proxy {route}", self.host),
            None => self.host.clone(),
        }
    }

    fn late(&self, kind: ureq::Timeout) -> Error {
        let host = &self.place();
        match (kind, self.timeouts.idle) {
            (ureq::Timeout::Resolve | ureq::Timeout::Connect, _) => {
                Error::new(Code::Timeout, format!("{host}: no connection within {}", seconds(CONNECT)))
                    .with("phase", "connect")
            }
            (ureq::Timeout::PerRead, Some(idle)) => {
                Error::new(Code::Timeout, format!("{host}: silent for {}", seconds(idle)))
                    .with("phase", "idle")
                    .hint("raise --idle-timeout to allow for longer silence")
            }
            _ => {
                Error::new(Code::Timeout, format!("{host}: no complete answer within {}", seconds(self.timeouts.total)))
                    .with("phase", "total")
                    .hint("raise --timeout to allow for longer answers")
            }
        }
    }
}

/// The failure of a connection that was not made: nothing was sent.
fn unopened(message: String) -> Error {
    Error::new(Code::Network, message).with("phase", "connect")
}

/// Whether only opening a connection fails so.
fn was_not_opened(kind: ErrorKind) -> bool {
    let kinds = [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
    kinds.contains(&kind)
}

fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs_f64())
}

/// The start of an answer, and its body as it comes.
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

    /// The next bytes of the body; none at its end.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let length = self.reader.read(buffer).map_err(|e| self.client.failure(ureq::Error::from(e)))?;
        Ok(&buffer[..length])
    }

    /// Appends the rest of the body. What came before a failure is kept.
    pub fn read_all(&mut self, body: &mut Vec<u8>) -> Result<()> {
        self.reader.read_to_end(body).map_err(|e| self.client.failure(ureq::Error::from(e)))?;
        Ok(())
    }

    /// Takes the end of the transfer off the connection, if it is there.
    pub fn linger(mut self) {
        net::hurry(Some(LINGER));
        let mut rest = [0; 1024];
        while self.reader.read(&mut rest).is_ok_and(|length| length > 0) {}
        net::hurry(None);
    }
}
