//! Names that nobody else has and that tell when they were given.

use backstop_core::{Clock as _, SystemClock};

/// What every name begins with.
pub(super) const PREFIX: &str = "bstest";

/// A fresh name: the prefix, the second of its making and a random number, with `separator` in between.
pub(super) fn fresh(separator: char) -> String {
    given_at(SystemClock.now().timestamp(), separator)
}

/// A name as [`fresh`] would have given it at that second.
pub(super) fn given_at(seconds: i64, separator: char) -> String {
    format!("{PREFIX}{separator}{seconds:08x}{separator}{:010x}", fastrand::u64(..1 << 40))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_short_and_never_the_same() {
        let names: HashSet<_> = (0..1000).map(|_| fresh('_')).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == 26));
    }
}
