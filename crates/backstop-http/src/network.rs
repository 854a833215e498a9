//! Networks in CIDR notation, and which addresses are in them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What is read as one.
pub(crate) const RULE: &str = "a network such as 10.0.0.0/8 or fd00::/8, or an address";

/// A range of addresses such as `10.0.0.0/8` or `fd00::/8`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    base: IpAddr,
    prefix: u32,
}

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differing = u32::from(base) ^ u32::from(address);
                differing.checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differing = u128::from(base) ^ u128::from(address);
                differing.checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            // An IPv4 address written as IPv6 is an IPv6 address: it is allowed as such or not at all.
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// `address/prefix`, or a single address.
impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = || format!("must be {RULE}");
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(base, prefix)| (base, Some(prefix)));
        let base: IpAddr = address.parse().map_err(|_| rule())?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) => digits.parse().ok().filter(|prefix| *prefix <= longest).ok_or_else(rule)?,
            None => longest,
        };
        Ok(Self { base, prefix })
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_ends_where_its_prefix_says() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("172.16.0.0/12", "172.31.255.255", "172.32.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("fe80::/10", "febf::1", "fec0::1"),
            ("::1/128", "::1", "::2"),
        ] {
            assert!(contains(network, inside) && !contains(network, outside), "{network}");
        }
        assert!(contains("0.0.0.0/0", "255.255.255.255") && contains("::/0", "ffff::1"));
    }

    #[test]
    fn the_two_families_never_meet() {
        assert!(!contains("0.0.0.0/0", "::ffff:127.0.0.1"));
        assert!(!contains("::/0", "127.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "localhost", "10.0.0.0/-1", "10.0.0.0/8/8"] {
            assert!(text.parse::<Network>().unwrap_err().contains("must be a network"), "{text}");
        }
    }
}
