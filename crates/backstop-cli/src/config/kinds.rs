//! Kinds of values whose rules the database layer knows.

use backstop_core::config::{Parsed, ValueKind};
use backstop_sql::Error;
use backstop_sql::store::DatabaseKind;

/// It may hold a password and is never shown.
pub(super) const DATABASE_URL: ValueKind = ValueKind::Parsed(&Parsed {
    word: "database URL, or where it is kept",
    rule: "a URL that begins with postgres:, mysql:, mariadb: or sqlite:",
    secret: true,
    check: |text| match DatabaseKind::check(text) {
        Ok(_) => Ok(()),
        Err(Error::Url { why, example }) => Err(format!("cannot be used: {why}; write it like {example}")),
        Err(error @ Error::Feature { .. }) => Err(format!("cannot be used: {error}")),
        Err(_) => must_be(DATABASE_URL),
    },
});

fn must_be(kind: ValueKind) -> Result<(), String> {
    Err(format!("must be {}", kind.rule()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_refusal_repeats_the_secret_of_a_url() {
        for wrong in
            ["oracle://scott:tiger@h/d", "tiger", "postgres://u:tiger@h:port/d", "mysql://u:tiger@h:70000/d"]
        {
            let said = DATABASE_URL.read(wrong).unwrap_err();
            assert!(!said.contains("tiger"), "{said}");
        }
    }
}
