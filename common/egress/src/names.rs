//! Loopback addresses of names. A name gets its address with the first question about it.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::destination::Destination;

/// The most names that get an address in one run.
const MOST: usize = 128;

/// The allowed destinations, and the addresses of their names.
#[derive(Debug)]
pub(crate) struct Names {
    destinations: Vec<Destination>,
    /// The names with an address, in the order of their addresses.
    named: Vec<String>,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Known(Ipv4Addr),
    /// The name is allowed and gets this address with [`Names::add`]. Listeners at the address are needed before.
    New(Ipv4Addr),
    Unlisted,
    /// The name is allowed, but too many names have addresses.
    Full,
}

/// An allowed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub name: String,
    pub port: u16,
    /// The destination of the policy that allows it.
    pub rule: String,
    /// The address outside, if the policy gives it.
    pub target: Option<SocketAddr>,
}

/// The network of the addresses. The last part numbers the names from 1.
const NETWORK: [u8; 3] = [127, 64, 0];

impl Names {
    pub(crate) fn new(destinations: Vec<Destination>) -> Self {
        Self { destinations, named: Vec::new() }
    }

    /// Looks up a name in lower case.
    pub(crate) fn look_up(&self, name: &str) -> Lookup {
        if name == "localhost" || name.ends_with(".localhost") {
            return Lookup::Known(Ipv4Addr::LOCALHOST);
        }
        let known = self.named.iter().position(|known| known == name);
        if known.is_none() && self.ports(name).is_empty() {
            return Lookup::Unlisted;
        }
        let [a, b, c] = NETWORK;
        match (known, u8::try_from(known.unwrap_or(self.named.len()) + 1)) {
            (Some(_), Ok(number)) => Lookup::Known(Ipv4Addr::new(a, b, c, number)),
            (None, Ok(number)) if self.named.len() < MOST => Lookup::New(Ipv4Addr::new(a, b, c, number)),
            _ => Lookup::Full,
        }
    }

    /// Gives a name the address of its lookup.
    pub(crate) fn add(&mut self, name: &str) {
        self.named.push(name.to_owned());
    }

    /// The ports at which a name may be reached.
    pub(crate) fn ports(&self, name: &str) -> Vec<u16> {
        let allowed = self.destinations.iter().filter(|destination| destination.contains(name));
        let mut ports: Vec<u16> = allowed.flat_map(Destination::ports).copied().collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The route of a connection that arrived at a local address.
    pub(crate) fn route(&self, local: SocketAddrV4) -> Option<Route> {
        let (address, port) = (*local.ip(), local.port());
        let [network @ .., number] = address.octets();
        let name = usize::from(number).checked_sub(1).filter(|_| network == NETWORK).and_then(|at| self.named.get(at));
        let applies = |destination: &&Destination| {
            let is_named = match name {
                Some(name) => destination.contains(name),
                None => destination.address() == Some(address),
            };
            is_named && destination.ports().contains(&port)
        };
        let destination = self.destinations.iter().find(applies)?;
        Some(Route {
            name: name.map_or_else(|| address.to_string(), String::clone),
            port,
            rule: destination.to_string(),
            target: destination.target(port),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(texts: &[&str]) -> Names {
        Names::new(texts.iter().map(|text| Destination::parse(text).unwrap()).collect())
    }

    fn allocate(names: &mut Names, name: &str) -> Ipv4Addr {
        match names.look_up(name) {
            Lookup::New(address) => {
                names.add(name);
                address
            }
            Lookup::Known(address) => address,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn name_keeps_its_address_and_has_ports_of_all_its_destinations() {
        let mut names = names(&["*.test", "a.test:22=10.0.0.1", "10.0.0.5:5432"]);
        let address = allocate(&mut names, "a.test");
        assert_eq!(address, allocate(&mut names, "a.test"));
        assert_ne!(address, allocate(&mut names, "b.test"));
        assert_eq!(names.ports("a.test"), [22, 80, 443]);
        let route = names.route(SocketAddrV4::new(address, 22)).unwrap();
        assert_eq!((route.rule.as_str(), route.target), ("a.test:22=10.0.0.1", Some("10.0.0.1:22".parse().unwrap())));
        assert_eq!(names.route(SocketAddrV4::new(address, 443)).unwrap().rule, "*.test");
        assert_eq!(names.route(SocketAddrV4::new(address, 8080)), None);
        assert_eq!(names.route("10.0.0.5:5432".parse().unwrap()).unwrap().name, "10.0.0.5");
        assert_eq!(names.route("10.0.0.6:5432".parse().unwrap()), None);
        assert_eq!(names.look_up("a.org"), Lookup::Unlisted);
    }

    #[test]
    fn number_of_names_is_bounded() {
        let mut names = names(&["*.test"]);
        for number in 0..MOST {
            allocate(&mut names, &format!("n{number}.test"));
        }
        assert_eq!(names.look_up("more.test"), Lookup::Full);
        assert!(matches!(names.look_up("n0.test"), Lookup::Known(_)));
    }

    proptest! {
        #[test]
        fn addresses_of_names_are_distinct(asked in prop::collection::vec("[a-d]{1,3}", 1..60)) {
            let mut names = names(&["*.test"]);
            for label in asked {
                let name = format!("{label}.test");
                let address = allocate(&mut names, &name);
                prop_assert_eq!(names.route(SocketAddrV4::new(address, 443)).unwrap().name, name);
            }
        }
    }
}
