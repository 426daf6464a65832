//! The network of a command in a policy.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::destination::Destination;

/// The network that a command may use: `none`, `loopback`, `host`, or a list of destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Local sockets only.
    #[default]
    None,
    /// A private loopback interface.
    Loopback,
    /// The network of this machine.
    Host,
    /// These destinations, by name.
    Names(Vec<Destination>),
}

/// The values that are words.
const WORDS: [&str; 3] = ["none", "loopback", "host"];

impl Network {
    /// The destinations; empty for the other networks.
    pub fn destinations(&self) -> &[Destination] {
        match self {
            Self::None | Self::Loopback | Self::Host => &[],
            Self::Names(destinations) => destinations,
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str(WORDS[0]),
            Self::Loopback => serializer.serialize_str(WORDS[1]),
            Self::Host => serializer.serialize_str(WORDS[2]),
            Self::Names(destinations) => destinations.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Network;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"none\", \"loopback\", \"host\" or a list of names")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Network, E> {
        match word {
            "none" => Ok(Network::None),
            "loopback" => Ok(Network::Loopback),
            "host" => Ok(Network::Host),
            name if name.contains('.') => Err(E::custom(format!("network: names are a list: network = [\"{name}\"]"))),
            other => Err(E::unknown_variant(other, &WORDS)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Network, A::Error> {
        let mut destinations = Vec::new();
        while let Some(destination) = items.next_element()? {
            destinations.push(destination);
        }
        Ok(Network::Names(destinations))
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
    }

    #[test]
    fn invalid_network_error_names_valid_form() {
        assert!(read("\"pypi.org\"").unwrap_err().contains("network = [\"pypi.org\"]"));
        assert!(read("\"hots\"").unwrap_err().contains("unknown variant `hots`"));
        assert!(read("[\"https://pypi.org\"]").unwrap_err().contains("only the name"));
        assert!(read("3").unwrap_err().contains("list of names"));
    }
}
