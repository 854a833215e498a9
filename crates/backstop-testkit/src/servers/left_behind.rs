//! Telling the databases that killed test runs left behind from everybody else's.

use backstop_core::{Clock as _, SystemClock};

use super::name::PREFIX;

/// Longer than a test lasts.
const HOUR: i64 = 3600;

/// Names that may be ours, for `LIKE`; [`is_old`] tells for sure.
pub(super) const PATTERN: &str = "bstest%";

/// Whether it is a name of ours that was given more than an hour ago.
pub(super) fn is_old(name: &str) -> bool {
    given(name).is_some_and(|given| SystemClock.now().timestamp() - given > HOUR)
}

/// The second at which a name of ours was given. Strict, because what it recognises gets dropped.
fn given(name: &str) -> Option<i64> {
    let (seconds, random) = name.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_ours = seconds.len() == 8 && random.len() == 10 && is_hex(seconds) && is_hex(random);
    i64::from_str_radix(seconds, 16).ok().filter(|_| is_ours)
}

/// A name as a run killed two hours ago would have left it.
#[cfg(test)]
pub(super) fn example() -> String {
    super::name::given_at(SystemClock.now().timestamp() - 2 * HOUR, '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::name::fresh;

    #[test]
    fn only_old_names_of_ours_count_as_left_behind() {
        assert!(is_old(&example()));
        assert!(!is_old(&fresh('_')));
        for foreign in ["", "shop", "bstest", "bstest_", "bstest_00000000_", "bstest_00000000_zzzzzzzzzz"] {
            assert!(!is_old(foreign), "{foreign}");
        }
        assert!(!is_old("bstest_00000000_0123456789_and_more"));
        assert!(!is_old("bstest_+0000000_0123456789"));
    }

    #[test]
    fn the_pattern_finds_what_is_named() {
        assert!(fresh('_').starts_with(PATTERN.trim_end_matches('%')));
    }
}
