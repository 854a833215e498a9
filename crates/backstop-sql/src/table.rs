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
    fn only_plain_identifiers_are_table_names() {
        for fine in ["outbox_event", "_x", "A1", &"a".repeat(63)] {
            assert!(TableName::new(fine).is_ok(), "{fine}");
        }
        for wrong in ["", "1a", "a-b", "a.b", "a b", "a;", "a\"", "ä", "a\0", &"a".repeat(64)] {
            assert!(matches!(TableName::new(wrong), Err(Error::TableName(_))), "{wrong}");
        }
    }
}
