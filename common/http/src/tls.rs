//! TLS with the authorities of `SSL_CERT_FILE`, and errors that explain an invalid certificate.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use cp_common::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use ureq::tls::{PemItem, parse_pem};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// The error of webpki for a server with the certificate of an authority.
const AUTHORITY_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Secures connections with the authorities of a file. Without a file the next connector does so with the built-in ones.
#[derive(Debug, Default)]
pub(super) struct OwnAuthorities(Option<Arc<ClientConfig>>);

impl OwnAuthorities {
    /// Loads the authorities of a PEM file.
    pub(super) fn of(file: &Path) -> Result<Self> {
        let bad = |what: &dyn fmt::Display| Error::config(format!("SSL_CERT_FILE: {what}")).in_file(file).fatal();
        let pem = std::fs::read(file).map_err(|e| bad(&Error::from(e).message()))?;
        let items = parse_pem(&pem).filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(CertificateDer::from(certificate.der().to_vec())),
            _ => None,
        });
        let named: Vec<_> = items.collect();
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(named.iter().cloned()).0 == 0 {
            return Err(bad(&"the file has no certificate"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let webpki = webpki.build().map_err(|e| bad(&e))?;
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let verifier = Arc::new(Verifier { webpki, named });
        let builder = builder.map_err(|e| bad(&e))?.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Self(Some(Arc::new(builder.with_no_client_auth()))))
    }
}

impl<In: Transport> Connector<In> for OwnAuthorities {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(below) = chained else { return Ok(None) };
        let Some(config) = self.0.as_ref().filter(|_| details.needs_tls() && !below.is_tls()) else {
            return Ok(Some(Either::A(below)));
        };
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| ureq::Error::BadUri(details.uri.to_string()))?;
        let connection = ClientConnection::new(Arc::clone(config), name)?;
        let mut stream = rustls::StreamOwned::new(
            connection,
            TransportAdapter::new(below.boxed(), Arc::clone(&details.current_time)),
        );
        stream.sock.set_timeout(details.timeout);
        stream.conn.complete_io(&mut stream.sock)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { stream, buffers })))
    }
}

/// A connection with TLS.
pub(super) struct TlsTransport {
    stream: rustls::StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// Trusts certificates that an authority of the file has signed, and the certificates in the file. Most self-signed certificates are marked
/// as authorities, which webpki does not accept from a server.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.webpki.verify_server_cert(server, others, name, status, now) {
            // webpki has checked the validity before this error, but not the names.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(e)))
                if e.to_string() == AUTHORITY_AS_SERVER && self.named.contains(server) =>
            {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Explains an invalid certificate; `None` for other errors.
pub(super) fn certificate_error(host: &str, e: &ureq::Error) -> Option<Error> {
    let e = match e {
        ureq::Error::Rustls(e) => e,
        ureq::Error::Io(e) => e.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    let rustls::Error::InvalidCertificate(e) = e else { return None };
    let (what, hint) = match e {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired".to_owned(), "renew it on the server; if it is valid, set the clock of this computer")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet".to_owned(), "set the clock of this computer, or of the computer that created it")
        }
        CertificateError::NotValidForName => ("is for another name".to_owned(), NAMES),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            ("names no host".to_owned(), "create it again with a subjectAltName, because the common name is ignored")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            (format!("is for another name: {}", names.join(", ")), NAMES)
        }
        CertificateError::UnknownIssuer => (
            "is signed by an authority that is not trusted".to_owned(),
            "name the file with the certificate of that authority in SSL_CERT_FILE",
        ),
        CertificateError::Other(e) if e.to_string() == AUTHORITY_AS_SERVER => {
            ("is self-signed".to_owned(), "name the file with this certificate in SSL_CERT_FILE")
        }
        e => (format!("is not accepted: {e}"), "inspect it: openssl s_client -connect HOST:PORT"),
    };
    Some(Error::config(format!("{host}: the server's certificate {what}")).hint(hint).fatal())
}

/// The name inside `DnsName("localhost")`, as rustls prints it.
fn bare(name: &str) -> &str {
    name.split(['(', ')', '"']).filter(|part| !part.is_empty()).nth(1).unwrap_or(name)
}

const NAMES: &str = "use the host name of the certificate in the base URL, or create a certificate for this host";
