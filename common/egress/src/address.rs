//! Public addresses.

use std::net::IpAddr;

/// True for a public address: not of this host, a private network or a reserved range.
pub fn is_public(address: IpAddr) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
