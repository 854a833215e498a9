//! Table names, which are the only part of a statement that is not a bound value.

use std::fmt;

use crate::Error;

/// The name of a table: a plain identifier, so that it can stand in a statement as it is.
///
/// ```
/// use backstop_sql::TableName;
///
/// assert_eq!(TableName::default().to_string(), "outbox_event");
/// assert!(TableName::new("orders_outbox").is_ok());
/// assert!(TableName::new("orders; drop table users").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName(String);

impl TableName {
    /// PostgreSQL cuts longer names silently, so that two could become one.
    const MAX_CHARS: usize = 63;

    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        let mut chars = name.chars();
        let starts_well = chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        let goes_on_well = chars.all(|each| each.is_ascii_alphanumeric() || each == '_');
        if starts_well && goes_on_well && name.len() <= Self::MAX_CHARS {
            Ok(Self(name))
        } else {
            Err(Error::TableName(name))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the names of its indexes begin with: `idx` for the table's own name, `idx_<table>` for
    /// another, since some databases keep the names of all indexes in one space.
    pub(crate) fn index_prefix(&self) -> String {
        // What is left of PostgreSQL's 63 characters for the longest of our indexes.
        const ROOM: usize = TableName::MAX_CHARS - "idx_".len() - "_status_available".len();
        const HASH: usize = "_01234567".len();
        let name = &self.0;
        if *self == Self::default() {
            "idx".to_owned()
        } else if name.len() <= ROOM {
            format!("idx_{name}")
        } else {
            // Cut names must still differ, or a table would pass for having the indexes of another.
            format!("idx_{}_{:08x}", &name[..ROOM - HASH], hash(name))
        }
    }

    /// What follows the table's name so that an index is used: `{idx}` in it stands for the beginning of its indexes' names.
    pub(crate) fn hint(&self, index: &str) -> String {
        index.replace("{idx}", &self.index_prefix())
    }
}

/// FNV-1a: small, and the same for ever, as the name of an index has to be.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Default for TableName {
    fn default() -> Self {
        Self("outbox_event".to_owned())
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_get_index_names_that_fit_and_differ() {
        let prefix = |name: &str| TableName::new(name).unwrap().index_prefix();
        assert_eq!(TableName::default().index_prefix(), "idx");
        assert_eq!(prefix("orders"), "idx_orders");
        let (one, two) = (prefix(&format!("{}1", "a".repeat(62))), prefix(&format!("{}2", "a".repeat(62))));
        assert_ne!(one, two);
        assert!(format!("{one}_status_available").len() <= 63);
        assert_eq!(prefix(&"b".repeat(42)), format!("idx_{}", "b".repeat(42)));
    }

    /// Rules: O-463.
    #[test]
    fn only_plain_identifiers_are_table_names() {
        for fine in ["outbox_event", "_x", "A1", &"a".repeat(63)] {
            assert!(TableName::new(fine).is_ok(), "{fine}");
        }
        for wrong in ["", "1a", "a-b", "a.b", "a b", "a;", "a\"", "ä", "a\0", &"a".repeat(64)] {
            assert!(matches!(TableName::new(wrong), Err(Error::TableName(_))), "{wrong}");
        }
    }
}
