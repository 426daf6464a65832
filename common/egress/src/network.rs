//! The network of a command in a policy.

use serde::{Deserialize, Serialize};

use crate::destination::Destination;

/// The network that a command may use: `loopback`, `host`, or a list of destinations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "Given")]
pub enum Network {
    /// A private loopback interface.
    Loopback,
    /// The network of this machine.
    Host,
    /// A private loopback interface, and these destinations by name.
    #[serde(untagged)]
    Names(Vec<Destination>),
}

impl Default for Network {
    /// No destination.
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Network {
    /// The destinations; empty for the other networks.
    pub fn destinations(&self) -> &[Destination] {
        match self {
            Self::Loopback | Self::Host => &[],
            Self::Names(destinations) => destinations,
        }
    }

    /// The network with more destinations. That of the machine reaches all of them already.
    #[must_use]
    pub fn with(&self, more: &[Destination]) -> Self {
        match self {
            Self::Host => Self::Host,
            own if more.is_empty() => own.clone(),
            own => Self::Names([own.destinations(), more].concat()),
        }
    }

    /// True if nothing outside of the sandbox can be reached.
    pub fn is_closed(&self) -> bool {
        *self != Self::Host && self.destinations().is_empty()
    }
}

/// A network as it is written.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"loopback\", \"host\" or a list of names")]
enum Given {
    Word(String),
    List(Vec<String>),
}

impl TryFrom<Given> for Network {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        match given {
            Given::Word(word) if word == "loopback" => Ok(Self::Loopback),
            Given::Word(word) if word == "host" => Ok(Self::Host),
            Given::Word(name) if name.contains('.') => {
                Err(format!("network: names are a list: network = [\"{name}\"]"))
            }
            Given::Word(other) => Err(format!("unknown variant `{other}`, expected `loopback` or `host`")),
            Given::List(names) => {
                names.iter().map(|name| Destination::parse(name)).collect::<Result<_, _>>().map(Self::Names)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Table {
        network: Network,
    }

    fn read(value: &str) -> Result<Network, String> {
        toml::from_str::<Table>(&format!("network = {value}\n"))
            .map(|table| table.network)
            .map_err(|e| e.message().to_owned())
    }

    #[test]
    fn network_is_word_or_list_of_destinations() {
        assert_eq!(read("\"loopback\""), Ok(Network::Loopback));
        let names = read("[\"pypi.org\", \"github.com:22\"]").unwrap();
        assert_eq!(serde_json::to_string(&names).unwrap(), "[\"pypi.org\",\"github.com:22\"]");
        assert_eq!(names.destinations().len(), 2);
        assert_eq!((names.with(names.destinations()).destinations().len(), names.is_closed()), (4, false));
        assert_eq!(Network::Loopback.with(names.destinations()), names);
        assert_eq!(
            (Network::Host.with(names.destinations()), Network::Loopback.with(&[])),
            (Network::Host, Network::Loopback)
        );
        assert!(Network::default().is_closed() && Network::Loopback.is_closed() && !Network::Host.is_closed());
    }

    #[test]
    fn invalid_network_error_names_valid_form() {
        assert!(read("\"pypi.org\"").unwrap_err().contains("network = [\"pypi.org\"]"));
        assert!(read("\"hots\"").unwrap_err().contains("unknown variant `hots`"));
        assert!(read("\"none\"").unwrap_err().contains("unknown variant `none`"));
        assert!(read("[\"https://pypi.org\"]").unwrap_err().contains("only the name"));
        assert!(read("3").unwrap_err().contains("list of names"));
    }
}
