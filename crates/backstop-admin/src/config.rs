//! What the dashboard is set up with: every setting, once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use backstop_core::config;
use backstop_core::config::{Parsed, ValueKind};
use backstop_core::setting::Faults;

use crate::access::{Role, Token};
use crate::tls::Tls;

config! {
    /// What the dashboard is set up with. [`Admin::of`](crate::Admin::of) begins one.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// Whether the page, `/health`, `/live`, `/ready` and `/metrics` are served.
        enabled: bool = true => "enabled": one(ValueKind::Flag);
        /// Where they are served; port 0 picks a free port. An address that other machines can reach needs `tokens`.
        address: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7878)
            => "address": one(ADDRESS);
        /// The names by which other machines reach it, as in the `Host` header. Addresses need not be listed.
        hosts: Vec<String> = Vec::new() => "hosts": many(ValueKind::Text), unset("names of this machine only");
        /// Serves it with TLS, in place of plain HTTP.
        tls: Tls = Tls::default() => "tls": group;
        /// Who may look. `backstop token` makes one. With any of them, nobody is let in without.
        tokens: Vec<TokenConfig> = Vec::new() => "tokens": groups;
    }
    rules: between;
}

config! {
    /// A token that lets somebody in.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TokenConfig {
        /// Whose it is, for the log.
        name: String = String::new() => "name": one(ValueKind::Name), required("so that the log can say whose it is");
        /// What its holder may do.
        role: Role = Role::Viewer => "role": one(Role::KIND);
        /// The hash of the token.
        sha256: String = String::new() => "sha256": one(HASH), required("it is what `backstop token` prints");
    }
}

const ADDRESS: ValueKind = ValueKind::Parsed(&Parsed {
    word: "address and port",
    rule: "an IP address and a port such as 127.0.0.1:7878",
    secret: false,
    check: |text| {
        let rule = || format!("must be {}", ADDRESS.rule());
        text.parse::<SocketAddr>().map(drop).map_err(|_| rule())
    },
});

/// Somebody may write the token itself here by mistake, so it is treated as a secret.
const HASH: ValueKind = ValueKind::Parsed(&Parsed {
    word: "SHA-256",
    rule: "the 64 hexadecimal digits that `backstop token` prints",
    secret: true,
    check: |text| {
        let token = Token::from_hash("", Role::Viewer, text);
        token.map(drop).ok_or_else(|| format!("must be {}", HASH.rule()))
    },
});

/// What must hold between settings.
fn between(config: &Config, faults: &mut Faults) {
    let Config { enabled, address, hosts, tokens, .. } = config;
    if *enabled && !address.ip().is_loopback() && tokens.is_empty() {
        let rule = format!(
            "{address} can be reached from other machines, which needs server.tokens; `backstop token` makes one, or use \
             127.0.0.1"
        );
        faults.add("address", rule);
    }
    for rule in hosts.iter().filter_map(|host| wrong_host(host)) {
        faults.add("hosts", rule);
    }
}

/// What is wrong with the name of a host.
fn wrong_host(host: &str) -> Option<String> {
    if host.contains('*') {
        return Some(format!(
            "`{host}` is not a host name; write each name by which clients reach the server, such as backstop.example"
        ));
    }
    let is_plain = |c: char| c.is_alphanumeric() || "-._".contains(c);
    let shown = if host.contains('@') { String::new() } else { format!("`{host}` ") };
    (!host.chars().all(is_plain))
        .then(|| format!("{shown}must be a name alone, without scheme, port or path"))
}

impl TokenConfig {
    /// The token, unless its hash is not valid.
    pub(crate) fn token(&self) -> Option<Token> {
        Token::from_hash(&self.name, self.role, &self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::config::Config as _;

    use super::*;

    fn told(config: &Config) -> Vec<String> {
        let mut faults = Faults::default();
        config.check(&mut faults);
        faults.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_other_machines_can_reach_needs_a_token_with_a_hash() {
        let mut config = Config { address: ([0, 0, 0, 0], 80).into(), ..Config::default() };
        assert!(told(&config)[0].starts_with("address 0.0.0.0:80 can be reached from other machines"));
        config.tokens.push(TokenConfig { name: "ops".to_owned(), ..TokenConfig::default() });
        assert_eq!(told(&config), ["tokens[0].sha256 is required: it is what `backstop token` prints"]);
        config.tokens[0].sha256 = "bst_tiger".to_owned();
        let rule = "must be the 64 hexadecimal digits that `backstop token` prints";
        assert_eq!(told(&config), [format!("tokens[0].sha256 {rule}")], "and it is not repeated");
        config.tokens[0].sha256 = "0F".repeat(32);
        assert_eq!(told(&config), [""; 0]);
    }
}
