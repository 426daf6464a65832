//! Requests to one server: no redirect is followed with a key, no status is hidden, every wait has an end.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use cp_common::{Code, Error, Result, signals};
use ureq::config::Config;
use ureq::http::HeaderMap;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};

use super::{net, proxy};

/// How long a name may take to resolve and a connection to open.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to wait for the end of a stream whose last event has come, so that the connection can be used again.
const LINGER: Duration = Duration::from_millis(100);
/// A whole answer longer than this is not the answer of a model.
const LIMIT: u64 = 64 << 20;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the start of the request to the end of the answer.
    pub total: Duration,
    /// The longest silence of a server that streams.
    pub idle: Option<Duration>,
}

/// A client for one endpoint. Connections are kept and used again.
pub(crate) struct Client {
    agent: ureq::Agent,
    host: String,
    timeouts: Timeouts,
}

impl Client {
    /// A client for the URLs under `base`. Certificates are not read before the first connection that needs them.
    pub(crate) fn new(
        base: &str,
        timeouts: Timeouts,
        connections: usize,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let bad = || Error::config(format!("{base} is not a valid http or https URL")).fatal();
        let uri: ureq::http::Uri = base.parse().map_err(|_| bad())?;
        let (Some(scheme @ ("http" | "https")), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(bad()) };
        let mut config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("cp-llm/", env!("CARGO_PKG_VERSION")))
            .proxy(proxy::proxy_for(scheme, host, &variable)?)
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(timeouts.total))
            .timeout_per_read(timeouts.idle);
        if scheme == "https"
            && let Some(file) = variable("SSL_CERT_FILE").filter(|file| !file.is_empty())
        {
            config = config.tls_config(TlsConfig::builder().root_certs(certificates(Path::new(&file))?).build());
        }
        let sockets = ().chain(ConnectProxyConnector::default()).chain(net::Sockets).chain(RustlsConnector::default());
        let agent = ureq::Agent::with_parts(config.build(), sockets, net::Names);
        Ok(Self {
            agent,
            host: uri.authority().map_or(host, |a| a.as_str().rsplit('@').next().unwrap_or(host)).to_owned(),
            timeouts,
        })
    }

    /// Sends a body and timeouts for the status line.
    pub(crate) fn post(&self, url: &str, headers: &[(String, String)], body: &[u8]) -> Result<Reply<'_>> {
        let mut request = self.agent.post(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.reply(request.send(body), LIMIT)
    }

    /// Sends a body that is read as it goes. A header says how long it is.
    pub(crate) fn upload(&self, url: &str, headers: &[(String, String)], body: &mut dyn Read) -> Result<Reply<'_>> {
        let mut request = self.agent.post(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.reply(request.send(ureq::SendBody::from_reader(body)), LIMIT)
    }

    /// Asks for a resource.
    pub(crate) fn get(&self, url: &str, headers: &[(String, String)]) -> Result<Reply<'_>> {
        self.resource(url, headers, LIMIT)
    }

    /// Asks for a resource of any size, which is not to be read into memory.
    pub(crate) fn get_large(&self, url: &str, headers: &[(String, String)]) -> Result<Reply<'_>> {
        self.resource(url, headers, u64::MAX)
    }

    fn resource(&self, url: &str, headers: &[(String, String)], limit: u64) -> Result<Reply<'_>> {
        let mut request = self.agent.get(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.reply(request.call(), limit)
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
        let host = &self.host;
        let error = match e {
            ureq::Error::Timeout(kind) => self.late(kind),
            ureq::Error::HostNotFound => Error::new(Code::Network, format!("{host}: the name does not resolve")),
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
            // A certificate does not get better by asking again.
            e if e.to_string().contains("certificate") => Error::config(format!("{host}: {e}"))
                .hint("name your own certificate authority with SSL_CERT_FILE")
                .fatal(),
            e if e.to_string().contains("corrupt message") => {
                Error::config(format!("{host}: the server does not use TLS"))
                    .hint("if the server has no TLS, begin the base URL with http://")
                    .fatal()
            }
            ureq::Error::Io(e) => Error::new(Code::Network, format!("{host}: {}", Error::from(e).message())),
            e => Error::new(Code::Network, format!("{host}: {e}")),
        };
        error.with("origin", "transport").with("host", host.as_str())
    }

    fn late(&self, kind: ureq::Timeout) -> Error {
        let host = &self.host;
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

fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs_f64())
}

/// The certificates of a PEM file.
fn certificates(file: &Path) -> Result<RootCerts> {
    let bad = |e: Error| e.in_file(file).fatal();
    let pem =
        std::fs::read(file).map_err(|e| bad(Error::config(format!("SSL_CERT_FILE: {}", Error::from(e).message()))))?;
    let found: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(bad(Error::config("SSL_CERT_FILE has no certificate")));
    }
    Ok(RootCerts::new_with_certs(&found))
}

/// The start of an answer, and its body as it comes.
pub(crate) struct Reply<'a> {
    client: &'a Client,
    /// The HTTP status.
    pub status: u16,
    headers: HeaderMap,
    reader: ureq::BodyReader<'static>,
}

impl Reply<'_> {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name)?.to_str().ok().map(str::to_owned)
    }

    /// The next bytes of the body; none at its end.
    pub(crate) fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let length = self.reader.read(buffer).map_err(|e| self.client.failure(ureq::Error::from(e)))?;
        Ok(&buffer[..length])
    }

    /// Appends the rest of the body. What came before a failure is kept.
    pub(crate) fn read_all(&mut self, body: &mut Vec<u8>) -> Result<()> {
        self.reader.read_to_end(body).map_err(|e| self.client.failure(ureq::Error::from(e)))?;
        Ok(())
    }

    /// Takes the end of the transfer off the connection, if it is there.
    pub(crate) fn linger(mut self) {
        net::hurry(Some(LINGER));
        let mut rest = [0; 1024];
        while self.reader.read(&mut rest).is_ok_and(|length| length > 0) {}
        net::hurry(None);
    }
}
