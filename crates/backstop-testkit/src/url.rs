//! The few parts of a URL that tests replace. Text in, text out: parts that are not replaced stay as they were.

use std::net::SocketAddr;

struct Parts<'a> {
    /// Scheme and user, with `://` and `@`.
    before: &'a str,
    /// Host and port.
    address: &'a str,
    /// The path, and from the first `?` or `#` on the rest.
    path: &'a str,
    rest: &'a str,
}

fn split(url: &str) -> Parts<'_> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    // A password may hold an @ of its own.
    let host = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let rest = url[end..].find(['?', '#']).map_or(url.len(), |at| end + at);
    Parts { before: &url[..host], address: &url[host..end], path: &url[end..rest], rest: &url[rest..] }
}

/// The URL with another host and port. An address without a scheme is replaced as a whole.
pub(crate) fn with_address(url: &str, address: SocketAddr) -> String {
    let Parts { before, path, rest, .. } = split(url);
    format!("{before}{address}{path}{rest}")
}

/// The URL with another path: the database's name, for the servers that we know.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn with_database(url: &str, database: &str) -> String {
    let Parts { before, address, rest, .. } = split(url);
    format!("{before}{address}/{database}{rest}")
}

/// Host and port as a socket wants them.
pub(crate) fn address(url: &str, default_port: u16) -> String {
    let address = split(url).address;
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match address {
        "" => format!("localhost:{default_port}"),
        _ if has_port && !address.ends_with(']') => address.to_owned(),
        host => format!("{host}:{default_port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_are_replaced() {
        let to = |url| with_address(url, "127.0.0.1:9".parse().unwrap());
        assert_eq!(to("postgres://u:p@db.example:5432/shop?a=b"), "postgres://u:p@127.0.0.1:9/shop?a=b");
        assert_eq!(to("mysql://u:p@ss@db/shop"), "mysql://u:p@ss@127.0.0.1:9/shop");
        assert_eq!(to("postgres://[::1]:5432"), "postgres://127.0.0.1:9");
        assert_eq!(to("http://h?at=a@b/c"), "http://127.0.0.1:9?at=a@b/c");
        assert_eq!(to("kafka.example:9092"), "127.0.0.1:9");
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn only_the_database_is_replaced() {
        assert_eq!(
            with_database("postgres://u@h:1/old?sslmode=disable", "new"),
            "postgres://u@h:1/new?sslmode=disable"
        );
        assert_eq!(with_database("mysql://h", "new"), "mysql://h/new");
    }

    #[test]
    fn an_address_has_a_port_also_where_the_url_has_none() {
        assert_eq!(address("mysql://:secret@db:7000/shop", 3306), "db:7000");
        assert_eq!(address("mysql://db", 3306), "db:3306");
        assert_eq!(address("mysql:///shop", 3306), "localhost:3306");
        assert_eq!(address("mysql://[::1]", 3306), "[::1]:3306");
        assert_eq!(address("mysql://[::1]:7", 3306), "[::1]:7");
        assert_eq!(address("127.0.0.1:9092", 9092), "127.0.0.1:9092");
    }
}
