//! Loopback ports: choosing a free one that stays free while its server is down.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Below every usual ephemeral range, above every usual service.
const LOWEST: u16 = 15_000;
const ATTEMPTS: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(5);

/// The address of a port on this machine, seen from this machine only.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Whether a server could listen there now.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind(local(port)).is_ok()
}

/// Waits a moment for a port to become free: a server that was just killed lets go of it last of all.
pub(super) fn becomes_free(port: u16) -> bool {
    let begun = Instant::now();
    while !is_free(port) {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A free port outside the kernel's ephemeral range.
///
/// Inside it, an outgoing connection may take the port while the server is stopped, and a client that keeps
/// dialling a closed port can even end up connected to itself: poison for tests that stop servers.
pub(super) fn choose() -> Result<u16> {
    let highest = first_ephemeral().unwrap_or(32_768);
    let span = u64::from(highest.saturating_sub(LOWEST).max(1));
    let seed = RandomState::new();
    (0..ATTEMPTS)
        .filter_map(|attempt| u16::try_from(u64::from(LOWEST) + seed.hash_one(attempt) % span).ok())
        .find(|port| is_free(*port))
        .context("no free loopback port was found; end programs that listen, then try again")
}

fn first_ephemeral() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok().filter(|first| *first > LOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_port_can_be_listened_on() {
        let port = choose().expect("a free port");
        // A process that another test starts just now holds the socket of our probe until it is its own program.
        assert!(becomes_free(port));
        assert!(port >= LOWEST);
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let taken = TcpListener::bind(local(0)).expect("a listener");
        assert!(!is_free(taken.local_addr().expect("its address").port()));
    }
}
