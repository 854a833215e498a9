//! The URL of a target: checked once, shown without its path, which often holds a secret.

use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::Scheme;

use crate::guard::Guard;

/// Reads a target's URL, or says which rule it breaks. A fault never quotes the URL.
pub(crate) fn parse(text: &str) -> Result<Uri, String> {
    let uri: Uri = text
        .trim()
        .parse()
        .map_err(|error| format!("must be a URL such as https://example.com/hooks ({error})"))?;
    if ![Some(&Scheme::HTTPS), Some(&Scheme::HTTP)].contains(&uri.scheme()) {
        return Err("must begin with https:// or http://".to_owned());
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err("must name a host".to_owned());
    };
    if authority.as_str().contains('@') {
        return Err("must not hold a user name or password, which go into a header such as `authorization`"
            .to_owned());
    }
    let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    if port.is_some() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("must have a port from 1 to 65535, or none".to_owned());
    }
    if literal(&uri).is_none() && ends_in_a_number(host(&uri)) {
        // `2130706433`, `0x7f.1` and `127.1` are loopback to a resolver, and look like anything else.
        return Err("must write an IPv4 address as four numbers".to_owned());
    }
    Ok(uri)
}

/// Refuses a URL that names an address that the guard would block.
pub(crate) fn check_literal(uri: &Uri, guard: &Guard) -> Result<(), String> {
    match literal(uri) {
        Some(address) if !guard.allows(address) => Err(format!(
            "must not name {address}, which is not public: allow it with `allowed-networks` if that is intended"
        )),
        _ => Ok(()),
    }
}

/// The host without the brackets of IPv6.
pub(crate) fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

pub(crate) fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

pub(crate) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if is_https(uri) { 443 } else { 80 })
}

/// Scheme, host and port. The path and the query stay hidden: many services put a token there.
pub(crate) fn origin(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", uri.scheme_str().unwrap_or_default())
}

/// The address, where the host is one.
fn literal(uri: &Uri) -> Option<IpAddr> {
    host(uri).parse().ok()
}

/// Whether resolvers may take a name for an IPv4 address: its last label is a number in some notation.
fn ends_in_a_number(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let plain = parse("https://example.com/hooks/secret?token=1").unwrap();
        assert_eq!((host(&plain), port(&plain), is_https(&plain)), ("example.com", 443, true));
        assert_eq!(origin(&plain), "https://example.com");
        let odd = parse("http://[2606:4700::1]:8080").unwrap();
        assert_eq!(
            (host(&odd), port(&odd), origin(&odd).as_str()),
            ("2606:4700::1", 8080, "http://[2606:4700::1]:8080")
        );
        assert_eq!(port(&parse("http://example.com").unwrap()), 80);
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_rule_and_without_the_url() {
        for (text, rule) in [
            ("", "must be a URL"),
            ("https://", "must be a URL"),
            ("/hooks/hunter2", "must begin with https"),
            ("ftp://example.com/hunter2", "must begin with https"),
            ("https://me:hunter2@example.com", "must not hold a user name"),
            ("https://example.com:0/hunter2", "a port from 1 to 65535"),
            ("https://example.com:99999/hunter2", "a port from 1 to 65535"),
            ("https://exämple.com/hunter2", "must be a URL"),
            ("https://example.com/a b\r\nhunter2", "must be a URL"),
            ("http://2130706433/hunter2", "four numbers"),
            ("http://0x7f.1/", "four numbers"),
            ("http://0x7f000001/", "four numbers"),
            ("http://127.1/", "four numbers"),
            ("http://0177.0.0.1./", "four numbers"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(rule) && !fault.contains("hunter2"), "{text}: {fault}");
        }
    }

    #[test]
    fn an_address_in_the_url_meets_the_guard_at_once() {
        let open = Guard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        for (text, closed_refuses, open_refuses) in [
            ("http://127.0.0.1:8080/", true, false),
            ("http://[::1]/", true, true),
            ("http://[::ffff:127.0.0.1]/", true, true),
            ("http://169.254.169.254/latest/meta-data", true, true),
            ("http://1.1.1.1/", false, false),
            ("http://localhost/", false, false),
        ] {
            let uri = parse(text).unwrap();
            assert_eq!(check_literal(&uri, &Guard::default()).is_err(), closed_refuses, "{text}");
            assert_eq!(check_literal(&uri, &open).is_err(), open_refuses, "{text}");
        }
    }
}
