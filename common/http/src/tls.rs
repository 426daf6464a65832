//! The authorities of `SSL_CERT_FILE`, and errors that explain an invalid certificate.

use std::fmt;
use std::path::Path;

use cp_common::{Error, Result};
use rustls::CertificateError;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// The certificates of a PEM file.
pub(super) fn authorities(file: &Path) -> Result<RootCerts> {
    let bad = |what: &dyn fmt::Display| Error::config(format!("SSL_CERT_FILE: {what}")).in_file(file).fatal();
    let pem = std::fs::read(file).map_err(|e| bad(&Error::from(e).message()))?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<Certificate<'static>> = items.collect();
    if found.is_empty() { Err(bad(&"the file has no certificate")) } else { Ok(RootCerts::from(found)) }
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
            "is self-signed or signed by an authority that is not trusted".to_owned(),
            "name the file with the certificate of that authority, or with this one, in SSL_CERT_FILE",
        ),
        // An error of webpki.
        CertificateError::Other(e) if e.to_string() == "CaUsedAsEndEntity" => (
            "is the certificate of an authority".to_owned(),
            "create it again with basicConstraints=CA:FALSE, and name its file in SSL_CERT_FILE",
        ),
        e => (format!("is not accepted: {e}"), "inspect it: openssl s_client -connect HOST:PORT"),
    };
    Some(Error::config(format!("{host}: the server's certificate {what}")).hint(hint).fatal())
}

/// The name inside `DnsName("localhost")`, as rustls prints it.
fn bare(name: &str) -> &str {
    name.split(['(', ')', '"']).filter(|part| !part.is_empty()).nth(1).unwrap_or(name)
}

const NAMES: &str = "use the host name of the certificate in the base URL, or create a certificate for this host";
