//! One connection: resolves its name outside of the sandbox, checks the addresses, connects and copies.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::address::is_public;
use crate::names::Route;
use crate::pump::{Patience, pump};
use crate::record::{Connection, Decision, Recorder};

/// The time for a connection to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// The most addresses of a name that are tried.
const ADDRESSES: usize = 4;

/// The outcome of a connection.
#[derive(Default)]
struct Outcome {
    address: Option<SocketAddr>,
    bytes_in: u64,
    bytes_out: u64,
    is_private: bool,
    error: Option<String>,
}

impl Outcome {
    fn failed(address: Option<SocketAddr>, error: &io::Error) -> Self {
        Self { address, error: Some(error.to_string()), ..Self::default() }
    }
}

/// Registers an accepted connection, and returns its number.
pub(crate) fn register(route: &Route, recorder: &Recorder) -> u64 {
    recorder.open(Connection {
        decision: Decision::Allow,
        ..Connection::refused(Some(route.name.clone()), Some(route.port), None, &route.rule)
    })
}

/// Serves an accepted connection until it ends.
pub(crate) fn forward(client: &TcpStream, route: &Route, ending: &OwnedFd, number: u64, recorder: &Recorder) {
    let outcome = connect_and_copy(client, route, ending);
    if outcome.error.is_some() || outcome.is_private {
        reset(client);
    }
    recorder.close(number, |connection| {
        if outcome.is_private {
            connection.decision = Decision::Deny;
            "private_address".clone_into(&mut connection.rule);
        }
        connection.address = outcome.address;
        connection.bytes_in = outcome.bytes_in;
        connection.bytes_out = outcome.bytes_out;
        connection.error = outcome.error;
    });
}

/// Makes the end of a connection an error for the program.
pub(crate) fn reset(client: &TcpStream) {
    let _ = sockopt::set_socket_linger(client, Some(Duration::ZERO));
}

fn connect_and_copy(client: &TcpStream, route: &Route, ending: &OwnedFd) -> Outcome {
    let addresses = match resolve(route) {
        Ok(addresses) => addresses,
        Err(e) => return Outcome::failed(None, &e),
    };
    let allowed = match check(route, addresses) {
        Ok(allowed) => allowed,
        Err(private) => return Outcome { address: private, is_private: true, ..Outcome::default() },
    };
    let mut patience = Patience::new(ending.as_fd());
    let mut outcome = Outcome::default();
    for address in allowed {
        patience.limit(Some(CONNECT));
        match connect(address, &mut patience) {
            Ok(peer) => {
                let (bytes_in, bytes_out, ended) = pump(client, &peer, patience);
                if ended.is_err() {
                    reset(&peer);
                }
                let error = ended.err().map(|e| e.to_string());
                return Outcome { address: Some(address), bytes_in, bytes_out, is_private: false, error };
            }
            Err(e) => outcome = Outcome::failed(Some(address), &e),
        }
    }
    outcome
}

/// The addresses of a name outside of the sandbox.
fn resolve(route: &Route) -> io::Result<Vec<SocketAddr>> {
    match route.target {
        Some(address) => Ok(vec![address]),
        // As other programs of this machine resolve it: a final dot would skip its `hosts` file.
        None => (route.name.as_str(), route.port).to_socket_addrs().map(Iterator::collect),
    }
}

/// The addresses that may be connected to: the one of the policy, or those that are public. Fails with the first
/// private address if there are only such.
fn check(route: &Route, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Option<SocketAddr>> {
    let first = addresses.first().copied();
    let is_allowed = |address: &SocketAddr| route.target == Some(*address) || is_public(address.ip());
    let allowed: Vec<SocketAddr> = addresses.into_iter().filter(is_allowed).take(ADDRESSES).collect();
    if allowed.is_empty() { Err(first) } else { Ok(allowed) }
}

/// Connects without blocking the end of the run.
fn connect(address: SocketAddr, patience: &mut Patience<'_>) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let peer = |socket: &OwnedFd| rustix::net::getpeername(socket).is_ok();
            while !peer(&socket) {
                patience.wait(&[(socket.as_fd(), PollFlags::OUT)])?;
                sockopt::socket_error(&socket)??;
            }
        }
        Err(e) => return Err(e.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn route(target: Option<&str>) -> Route {
        let target = target.map(|target| target.parse().unwrap());
        Route { name: "a.test".to_owned(), port: 80, rule: "a.test".to_owned(), target }
    }

    #[test]
    fn private_address_is_refused_unless_policy_gives_it() {
        let private: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let public: SocketAddr = "1.1.1.1:80".parse().unwrap();
        assert_eq!(check(&route(None), vec![private]), Err(Some(private)));
        assert_eq!(check(&route(None), vec![private, public]), Ok(vec![public]));
        assert_eq!(check(&route(Some("127.0.0.1:80")), vec![private]), Ok(vec![private]));
        assert_eq!(check(&route(Some("127.0.0.1:81")), vec![private]), Err(Some(private)));
    }

    proptest! {
        #[test]
        fn resolved_addresses_that_are_allowed_are_public(addresses in prop::collection::vec(any::<u32>(), 0..20)) {
            let addresses = addresses.into_iter().map(|bits| (IpAddr::V4(Ipv4Addr::from(bits)), 80).into()).collect();
            for address in check(&route(None), addresses).unwrap_or_default() {
                prop_assert!(is_public(address.ip()));
            }
        }
    }
}
