//! The kinds of values that settings have: what is accepted, and what is said of everything else.

use std::net::SocketAddr;

use backstop_sql::store::DatabaseKind;
use backstop_sql::{Error, TableName, TimeZone};
use serde_json::{Value, json};

use super::meant::suggestion;

/// The longest time that a setting accepts: ten years.
const LONGEST_MS: u64 = 3_650 * 24 * 3_600 * 1_000;

/// What kind of value a key has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Any text that is not empty.
    Text,
    /// A short name of small letters, digits and dashes.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number { min: u64, max: u64 },
    /// A time; what a number without a unit counts, and whether zero is one.
    Time { plain: Plain, zero: bool },
    /// The name of a table.
    Table,
    /// UTC, or a fixed distance from it.
    TimeZone,
    /// The URL of a database. It may hold a password and is never shown.
    DatabaseUrl,
    /// The URL of a web server. Its path often holds a token, so it is never shown.
    WebUrl,
    /// Something secret, never shown.
    Secret,
    /// An address to listen on.
    Address,
    /// A range of addresses such as `10.0.0.0/8`.
    Network,
    /// SHA-256 in hexadecimal.
    Hash,
}

/// What a number without a unit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    Milliseconds,
    Seconds,
    /// It could be anything, so a unit is needed.
    Nothing,
}

impl Kind {
    /// Whether the value is a secret: no message may repeat it, and it may be kept elsewhere.
    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::DatabaseUrl | Self::WebUrl | Self::Secret)
    }

    /// The value that a text stands for, or the rule it breaks, worded to follow the key.
    pub(crate) fn read(self, text: &str) -> Result<Value, String> {
        let read = match self {
            Self::Text | Self::Secret => (!text.is_empty()).then(|| json!(text)),
            Self::Name => is_name(text).then(|| json!(text)),
            Self::Choice(words) => words.contains(&text).then(|| json!(text)),
            Self::Flag => text.parse::<bool>().ok().map(Value::from),
            Self::Number { min, max } => {
                text.parse::<u64>().ok().filter(|number| (min..=max).contains(number)).map(Value::from)
            }
            Self::Time { plain, zero } => {
                millis(text, plain).filter(|time| zero || *time > 0).map(Value::from)
            }
            Self::Table => TableName::new(text).is_ok().then(|| json!(text)),
            Self::TimeZone => TimeZone::new(text).is_ok().then(|| json!(text)),
            Self::DatabaseUrl => return database_url(text),
            Self::WebUrl => is_web_url(text).then(|| json!(text)),
            Self::Address => text.parse::<SocketAddr>().ok().map(|_| json!(text)),
            Self::Network => is_network(text).then(|| json!(text)),
            Self::Hash => (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then(|| json!(text.to_ascii_lowercase())),
        };
        read.ok_or_else(|| self.refusal(text))
    }

    fn refusal(self, text: &str) -> String {
        let shown = if self.may_show(text) { format!(", not `{text}`") } else { String::new() };
        let meant = match self {
            Self::Choice(words) => suggestion(text, words.iter().copied()),
            Self::Flag => suggestion(text, ["true", "false"]),
            Self::Time { plain: Plain::Nothing, .. } => "; a number alone says no unit".to_owned(),
            Self::Time { plain: Plain::Milliseconds, .. } => "; a number alone is in milliseconds".to_owned(),
            Self::Time { plain: Plain::Seconds, .. } => "; a number alone is in seconds".to_owned(),
            _ => String::new(),
        };
        format!("must be {}{shown}{meant}", self.rule())
    }

    /// Whether a wrong value may be repeated. In place of a hash the token itself is given easily, and anywhere a URL with
    /// its password.
    fn may_show(self, text: &str) -> bool {
        let is_hidden = self.is_secret() || matches!(self, Self::Hash);
        let looks_secret = text.contains('@')
            || ["whsec_", "bst_", "env:", "file:"].iter().any(|begin| text.starts_with(begin));
        !is_hidden && !looks_secret && (1..=80).contains(&text.chars().count())
    }

    /// What is accepted, worded to follow "must be".
    pub(crate) fn rule(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Name => "a name of at most 40 small letters, digits and dashes".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Flag => "true or false".to_owned(),
            Self::Number { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Time { zero, .. } => {
                let shortest = if zero { "0s" } else { "1ms" };
                format!("a time from {shortest} to 3650d such as 500ms, 10s, 5m, 1h or 7d")
            }
            Self::Table => {
                "a letter or underscore followed by letters, digits or underscores, at most 63 in all"
                    .to_owned()
            }
            Self::TimeZone => "UTC or a fixed distance from it such as +02:00, at most 14 hours".to_owned(),
            Self::DatabaseUrl => "a URL that begins with postgres:, mysql:, mariadb: or sqlite:".to_owned(),
            Self::WebUrl => "a URL that begins with https:// or http://".to_owned(),
            Self::Secret => "env:NAME or file:PATH".to_owned(),
            Self::Address => "an IP address and a port such as 127.0.0.1:7878".to_owned(),
            Self::Network => "a network such as 10.0.0.0/8 or fd00::/8".to_owned(),
            Self::Hash => "the 64 hexadecimal digits that `backstop token` prints".to_owned(),
        }
    }

    /// The kind in a word, for the reference.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Choice(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            Self::Flag => "`true`, `false`".to_owned(),
            Self::Number { .. } => "number".to_owned(),
            Self::Time { plain: Plain::Milliseconds, .. } => "time, or milliseconds".to_owned(),
            Self::Time { plain: Plain::Seconds, .. } => "time, or seconds".to_owned(),
            Self::Time { plain: Plain::Nothing, .. } => "time".to_owned(),
            Self::Table => "table name".to_owned(),
            Self::TimeZone => "`UTC`, or a distance from it such as `+02:00`".to_owned(),
            Self::DatabaseUrl => "database URL, or where it is kept".to_owned(),
            Self::WebUrl => "URL, or where it is kept".to_owned(),
            Self::Secret => "where the secret is kept".to_owned(),
            Self::Address => "address and port".to_owned(),
            Self::Network => "network".to_owned(),
            Self::Hash => "SHA-256".to_owned(),
        }
    }

    /// Stands in for a value that is missing or wrong while the rest is checked.
    pub(crate) fn placeholder(self) -> Value {
        match self {
            Self::Flag => json!(false),
            Self::Number { .. } | Self::Time { .. } => json!(1),
            Self::Choice(words) => json!(words.first()),
            Self::Address => json!("127.0.0.1:0"),
            Self::TimeZone => json!("UTC"),
            Self::WebUrl => json!("https://example.invalid/"),
            _ => json!(""),
        }
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn millis(text: &str, plain: Plain) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match (unit, plain) {
        ("ms", _) | ("", Plain::Milliseconds) => 1,
        ("s", _) | ("", Plain::Seconds) => 1_000,
        ("m", _) => 60_000,
        ("h", _) => 3_600_000,
        ("d", _) => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|millis| *millis <= LONGEST_MS)
}

fn database_url(text: &str) -> Result<Value, String> {
    match DatabaseKind::check(text) {
        Ok(_) => Ok(json!(text)),
        Err(Error::Url { why, example }) => Err(format!("cannot be used: {why}; write it like {example}")),
        Err(_) => Err(Kind::DatabaseUrl.refusal(text)),
    }
}

fn is_web_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']) && !text.contains(char::is_whitespace)
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let longest = match address.parse::<std::net::IpAddr>() {
        Ok(address) if address.is_ipv4() => 32,
        Ok(_) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Kind = Kind::Time { plain: Plain::Milliseconds, zero: false };
    const TIME: Kind = Kind::Time { plain: Plain::Nothing, zero: true };

    #[test]
    fn times_have_units_and_the_names_that_end_in_one_need_none() {
        for (kind, text, millis) in [
            (MS, "200", 200),
            (MS, "2s", 2_000),
            (Kind::Time { plain: Plain::Seconds, zero: false }, "90", 90_000),
            (TIME, "7d", 604_800_000),
            (TIME, "0ms", 0),
            (TIME, "5m", 300_000),
            (TIME, "1h", 3_600_000),
        ] {
            assert_eq!(kind.read(text), Ok(json!(millis)), "{text}");
        }
        for (kind, text) in [
            (MS, "0"),
            (MS, "-1"),
            (MS, "1.5s"),
            (MS, "1 s"),
            (MS, "s"),
            (TIME, "300"),
            (TIME, "99999d"),
            (TIME, "1y"),
        ] {
            assert!(kind.read(text).is_err(), "{text}");
        }
        assert_eq!(
            TIME.read("300").unwrap_err(),
            "must be a time from 0s to 3650d such as 500ms, 10s, 5m, 1h or 7d, not `300`; a number alone says no unit"
        );
    }

    #[test]
    fn a_word_that_is_nearly_right_is_recognised() {
        let modes = Kind::Choice(&["single-node", "multi-node"]);
        let said = modes.read("MULTI_NODE").unwrap_err();
        assert_eq!(
            said,
            "must be one of single-node, multi-node, not `MULTI_NODE`; did you mean `multi-node`?"
        );
        assert_eq!(
            Kind::Flag.read("True").unwrap_err(),
            "must be true or false, not `True`; did you mean `true`?"
        );
    }

    #[test]
    fn no_refusal_repeats_a_secret() {
        for wrong in
            ["oracle://scott:tiger@h/d", "tiger", "postgres://u:tiger@h:port/d", "mysql://u:tiger@h:70000/d"]
        {
            let said = Kind::DatabaseUrl.read(wrong).unwrap_err();
            assert!(!said.contains("tiger"), "{said}");
        }
        for (kind, wrong) in [
            (Kind::WebUrl, "htps://hooks.example/tiger"),
            (Kind::Hash, "bst_tiger"),
            (Kind::Hash, "tiger"),
            (Kind::Address, "http://u:tiger@h"),
            (Kind::Network, "whsec_tiger"),
        ] {
            let said = kind.read(wrong).unwrap_err();
            assert!(!said.contains("tiger"), "{said}");
        }
    }

    #[test]
    fn urls_networks_addresses_and_names_are_looked_at() {
        assert!(["https://h", "http://h:8/x?y"].iter().all(|url| is_web_url(url)));
        assert!(!["h", "ftp://h", "https://", "https:///x", "http://a b"].iter().any(|url| is_web_url(url)));
        assert!(["10.0.0.0/8", "::/0", "fd00::/8"].iter().all(|net| is_network(net)));
        assert!(!["10.0.0.0", "10.0.0.0/33", "host/8"].iter().any(|net| is_network(net)));
        assert!(["a", "orders-2"].iter().all(|name| is_name(name)));
        assert!(!["", "-a", "A", "a b", "a_b", &"a".repeat(41)].iter().any(|name| is_name(name)));
    }
}
