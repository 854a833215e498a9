//! The guard against requests into your own network: which addresses a webhook may connect to.
//!
//! It is given the addresses that a name resolved to, and the connector connects only to those that it lets through.
//! Nothing is resolved twice, so a name cannot change its meaning in between.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use crate::network::Network;

/// Networks that are not the public internet. From IPv6 only `2000::/3` is public, so its list holds
/// the rest of the space in three pieces and what is special within.
static NOT_PUBLIC: LazyLock<Vec<Network>> = LazyLock::new(|| {
    let networks = [
        "0.0.0.0/8",       // this host
        "10.0.0.0/8",      // private
        "100.64.0.0/10",   // carrier-grade NAT
        "127.0.0.0/8",     // loopback
        "169.254.0.0/16",  // link-local, and the metadata services of clouds
        "172.16.0.0/12",   // private
        "192.0.0.0/24",    // protocol assignments
        "192.0.2.0/24",    // documentation
        "192.88.99.0/24",  // relays of 6to4
        "192.168.0.0/16",  // private
        "198.18.0.0/15",   // benchmarks
        "198.51.100.0/24", // documentation
        "203.0.113.0/24",  // documentation
        "224.0.0.0/4",     // multicast
        "240.0.0.0/4",     // reserved, and broadcast
        "::/3",            // unspecified, loopback, IPv4 in disguise (mapped, compatible, NAT64)
        "2001::/23",       // protocol assignments, among them Teredo
        "2001:db8::/32",   // documentation
        "2002::/16",       // 6to4
        "3fff::/20",       // documentation
        "4000::/2",        // not assigned
        "8000::/1",        // unique local, link-local, multicast, not assigned
    ];
    networks.into_iter().filter_map(|network| network.parse().ok()).collect()
});

/// Which addresses may be connected to: public ones, and those in the allowed networks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    allowed: Vec<Network>,
}

impl Guard {
    pub(crate) fn new(allowed: Vec<Network>) -> Self {
        Self { allowed }
    }

    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        let public = NOT_PUBLIC.iter().all(|network| !network.contains(address));
        public || self.allowed.iter().any(|network| network.contains(address))
    }

    /// The addresses that may be connected to, or the first that may not if there is no other.
    pub(crate) fn filter(&self, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Option<IpAddr>> {
        let allowed: Vec<_> = found.iter().copied().filter(|address| self.allows(address.ip())).collect();
        if allowed.is_empty() { Err(found.first().map(SocketAddr::ip)) } else { Ok(allowed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str]) -> Guard {
        Guard::new(allowed.iter().map(|network| network.parse().unwrap()).collect())
    }

    #[test]
    fn every_network_of_the_list_can_be_read() {
        assert_eq!(NOT_PUBLIC.len(), 22);
    }

    #[test]
    fn addresses_that_are_not_public_are_blocked() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!guard(&[]).allows(address.parse().unwrap()), "{address} was let through");
        }
    }

    #[test]
    fn public_addresses_pass_also_those_next_to_a_blocked_network() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
        ] {
            assert!(guard(&[]).allows(address.parse().unwrap()), "{address} was blocked");
        }
    }

    #[test]
    fn an_allowed_network_opens_itself_and_nothing_else() {
        let guard = guard(&["127.0.0.0/8", "fd00:1::/32"]);
        for (address, passes) in [
            ("127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("fd00:1::5", true),
            ("::1", false),
        ] {
            assert_eq!(guard.allows(address.parse().unwrap()), passes, "{address}");
        }
    }

    #[test]
    fn of_several_addresses_only_the_allowed_are_left() {
        let found: Vec<SocketAddr> =
            ["127.0.0.1:80", "1.1.1.1:80", "[::1]:80"].map(|it| it.parse().unwrap()).to_vec();
        assert_eq!(guard(&[]).filter(&found), Ok(vec![found[1]]));
        assert_eq!(guard(&[]).filter(&found[..1]), Err(Some(found[0].ip())));
        assert_eq!(guard(&[]).filter(&[]), Err(None));
    }
}
