//! Destinations of a policy: `NAME`, `*.NAME` or an IPv4 address, with an optional port, and after `=` the address
//! outside that replaces the resolution of the name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The ports of a destination that names no port.
pub const PORTS: [u16; 2] = [443, 80];

/// The longest name of the domain name system.
const LONGEST_NAME: usize = 253;

/// An allowed destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    text: String,
    host: Host,
    port: Option<u16>,
    target: Option<(IpAddr, Option<u16>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Name(String),
    /// The names below this one, at any depth, but not the name itself.
    Below(String),
    Address(Ipv4Addr),
}

impl Destination {
    /// Parses a destination. The error names the text and a valid form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("network: `{text}`: {why}");
        let (place, target) = text.split_once('=').map_or((text, None), |(place, target)| (place, Some(target)));
        if place.contains(['/', '@']) {
            return Err(wrong("write only the name and the port, as in `pypi.org` or `github.com:22`".to_owned()));
        }
        if place.starts_with('[') || place.matches(':').count() > 1 {
            let form = "an IPv6 address cannot be listed; give it a name, as in `db.internal:5432=[2001:db8::5]`";
            return Err(wrong(form.to_owned()));
        }
        let (host, port) = match place.split_once(':') {
            Some((host, number)) => (host, Some(port(number).map_err(wrong)?)),
            None => (place, None),
        };
        let host = Host::parse(host).map_err(wrong)?;
        let target = target.map(parse_target).transpose().map_err(wrong)?;
        if target.is_some() && matches!(host, Host::Address(_)) {
            return Err(wrong("only a name can have an address after `=`".to_owned()));
        }
        Ok(Self { text: text.to_owned(), host, port, target })
    }

    /// The ports that may be reached.
    pub fn ports(&self) -> &[u16] {
        self.port.as_ref().map_or(PORTS.as_slice(), std::slice::from_ref)
    }

    /// The address, if the destination is an address instead of a name.
    pub fn address(&self) -> Option<Ipv4Addr> {
        match self.host {
            Host::Address(address) => Some(address),
            Host::Name(_) | Host::Below(_) => None,
        }
    }

    /// True if the destination contains a name in lower case.
    pub fn contains(&self, name: &str) -> bool {
        match &self.host {
            Host::Name(own) => own == name,
            Host::Below(own) => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            Host::Address(_) => false,
        }
    }

    /// The address outside that the policy gives for a port.
    pub(crate) fn target(&self, port: u16) -> Option<SocketAddr> {
        match (&self.host, self.target) {
            (Host::Address(address), _) => Some((*address, port).into()),
            (_, Some((address, other))) => Some((address, other.unwrap_or(port)).into()),
            (_, None) => None,
        }
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            let is_special = address.is_loopback() || address.octets()[0] == 0 || address.octets()[0] >= 224;
            return if is_special {
                Err(format!(
                    "{address} cannot be reached from the sandbox; give it a name, as in `registry.test={address}:8080`"
                ))
            } else {
                Ok(Self::Address(address))
            };
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let (below, own) = name.strip_prefix("*.").map_or((false, name.as_str()), |own| (true, own));
        if own.contains('*') {
            let form = "`*` stands only for the first part of a name, as in `*.npmjs.org`; network = \"host\" allows all names";
            return Err(form.to_owned());
        }
        if !own.is_ascii() {
            return Err("write the name in its ASCII form, which begins with `xn--`".to_owned());
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_number = own.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if own.len() > LONGEST_NAME || is_number || !own.split('.').all(is_label) {
            return Err("this is not a name, such as `pypi.org`, and not an IPv4 address".to_owned());
        }
        if own == "localhost" {
            return Err(
                "localhost is the sandbox itself; give the service another name, as in `registry.test=127.0.0.1:8080`"
                    .to_owned(),
            );
        }
        Ok(if below { Self::Below(own.to_owned()) } else { Self::Name(own.to_owned()) })
    }
}

fn port(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| *number != 0 && !text.starts_with('+'));
    number.ok_or_else(|| format!("`{text}` is not a port from 1 to 65535"))
}

/// Parses an address with an optional port. An IPv6 address with a port is in brackets.
fn parse_target(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok((address, None));
    }
    match text.parse::<SocketAddr>() {
        Ok(target) if target.port() != 0 => Ok((target.ip(), Some(target.port()))),
        _ => Err(format!("`{text}` after `=` is not an address, such as `127.0.0.1:8080`")),
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Destination {
        Destination::parse(text).unwrap()
    }

    #[test]
    fn name_without_port_has_ports_of_web() {
        assert_eq!(parsed("PyPI.org.").ports(), [443, 80]);
        assert_eq!(parsed("github.com:22").ports(), [22]);
        assert!(parsed("PyPI.org.").contains("pypi.org"));
    }

    #[test]
    fn wildcard_contains_subdomains_only() {
        let wildcard = parsed("*.npmjs.org");
        assert!(wildcard.contains("registry.npmjs.org") && wildcard.contains("a.b.npmjs.org"));
        for other in ["npmjs.org", ".npmjs.org", "evilnpmjs.org", "npmjs.org.evil.com", ""] {
            assert!(!wildcard.contains(other), "{other}");
        }
    }

    #[test]
    fn target_replaces_resolution_and_keeps_port_unless_given() {
        assert_eq!(parsed("r.test=127.0.0.1:8080").target(443), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(parsed("r.test:22=10.0.0.5").target(22), Some("10.0.0.5:22".parse().unwrap()));
        assert_eq!(parsed("r.test=[::1]:8").target(80), Some("[::1]:8".parse().unwrap()));
        assert_eq!(parsed("r.test=::1").target(80), Some("[::1]:80".parse().unwrap()));
        assert_eq!(parsed("10.0.0.5:5432").target(5432), Some("10.0.0.5:5432".parse().unwrap()));
        assert_eq!(parsed("pypi.org").target(443), None);
    }

    #[test]
    fn invalid_destination_error_names_text_and_hint() {
        for (text, hint) in [
            ("https://pypi.org", "only the name"),
            ("user@host", "only the name"),
            ("", "not a name"),
            ("*", "network = \"host\""),
            ("*.*.org", "network = \"host\""),
            ("a*.org", "network = \"host\""),
            ("bücher.de", "xn--"),
            ("a..b", "not a name"),
            ("-a.org", "not a name"),
            ("10.0.0", "not a name"),
            ("0x7f.1", "not a name"),
            ("pypi.org:0", "not a port"),
            ("pypi.org:+8", "not a port"),
            ("pypi.org:65536", "not a port"),
            ("127.0.0.1:80", "registry.test=127.0.0.1:8080"),
            ("224.0.0.1", "give it a name"),
            ("[::1]:80", "IPv6"),
            ("localhost:80", "another name"),
            ("a.test=b.test", "not an address"),
            ("a.test=127.0.0.1:0", "not an address"),
            ("10.0.0.5=10.0.0.6", "only a name"),
        ] {
            let error = Destination::parse(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains(hint), "{error}");
        }
    }

    proptest! {
        #[test]
        fn destination_of_any_text_survives_serialization(text in "[a-c*.:=\\[\\]0-9-]{0,24}|\\PC{0,30}") {
            if let Ok(destination) = Destination::parse(&text) {
                prop_assert_eq!(destination.to_string(), text.clone());
                let json = serde_json::to_string(&destination).unwrap();
                prop_assert_eq!(serde_json::from_str::<Destination>(&json).unwrap(), destination.clone());
                prop_assert!(!destination.ports().is_empty() && !destination.ports().contains(&0));
            }
        }

        #[test]
        fn wildcard_never_contains_name_outside_its_domain(name in "[a-z.-]{0,40}") {
            let wildcard = parsed("*.example.org");
            prop_assert_eq!(wildcard.contains(&name), name.len() > 12 && name.ends_with(".example.org"));
        }
    }
}
