//! One connection: resolves its name outside of the sandbox, checks the addresses, connects and copies.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::names::Route;
use crate::pump::{Patience, pump};
use crate::record::{Connection, Decision};

/// The time for a connection to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// The most addresses of a name that are tried.
const ADDRESSES: usize = 4;

/// Serves an accepted connection until it ends, and completes its record.
pub(crate) fn forward(client: &TcpStream, route: &Route, ending: &OwnedFd, record: &mut Connection) {
    record.error = connect_and_copy(client, route, ending, record).err().map(|e| e.to_string());
    if record.error.is_some() || record.decision == Decision::Deny {
        reset(client);
    }
}

/// Makes the end of a connection an error for the program.
pub(crate) fn reset(client: &TcpStream) {
    let _ = sockopt::set_socket_linger(client, Some(Duration::ZERO));
}

fn connect_and_copy(client: &TcpStream, route: &Route, ending: &OwnedFd, record: &mut Connection) -> io::Result<()> {
    let allowed = match check(route, resolve(route)?) {
        Ok(allowed) => allowed,
        Err(private) => {
            (record.address, record.decision) = (private, Decision::Deny);
            "private_address".clone_into(&mut record.rule);
            return Ok(());
        }
    };
    let mut patience = Patience::new(ending.as_fd());
    let mut failed = Ok(());
    for address in allowed {
        patience.limit(Some(CONNECT));
        record.address = Some(address);
        match connect(address, &mut patience) {
            Ok(peer) => {
                let (bytes_in, bytes_out, ended) = pump(client, &peer, patience);
                (record.bytes_in, record.bytes_out) = (bytes_in, bytes_out);
                if ended.is_err() {
                    reset(&peer);
                }
                return ended;
            }
            Err(e) => failed = Err(e),
        }
    }
    failed
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

/// True for a public address: not of this host, a private network or a reserved range.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let is_set_aside = a == 0 || a >= 224 || (a, b & 0xc0) == (100, 64) || (a, b & 0xfe) == (198, 18);
            let is_special = v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_documentation();
            !(is_set_aside || is_special || (a, b, c) == (192, 0, 0))
        }
        // 2000::/3 is the only assigned range. Addresses that embed an IPv4 address are excluded.
        IpAddr::V6(v6) => {
            let [a, b, ..] = v6.segments();
            let is_documentation = (a, b) == (0x2001, 0x0db8) || (a, b & 0xf000) == (0x3fff, 0);
            a & 0xe000 == 0x2000 && a != 0x2002 && (a, b & 0xfe00) != (0x2001, 0) && !is_documentation
        }
    }
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
    use std::net::Ipv4Addr;

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

    #[test]
    fn address_of_private_or_reserved_range_is_not_public() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::127.0.0.1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "2002:a00:1::1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "198.20.0.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
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
