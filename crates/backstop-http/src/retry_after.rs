//! `Retry-After`: how long a target asks us to wait, in seconds or as a date.

use std::time::Duration;

use backstop_core::Timestamp;
use chrono::NaiveDateTime;

/// The three ways in which HTTP writes a date, the one in use first.
const DATES: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// How long to wait from `now` on, at most `limit`. A date in the past is no wait; nonsense is ignored.
pub(crate) fn parse(text: &str, now: Timestamp, limit: Duration) -> Option<Duration> {
    let text = text.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds mean a very long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = DATES.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())?;
        (date.and_utc() - now).to_std().unwrap_or_default()
    };
    Some(wait.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(text: &str) -> Option<u64> {
        let now = "1994-11-06T08:49:07Z".parse().unwrap();
        parse(text, now, Duration::from_secs(3600)).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_taken_as_they_are_up_to_the_limit() {
        assert_eq!([wait("0"), wait("120"), wait(" 7 ")], [Some(0), Some(120), Some(7)]);
        assert_eq!([wait("3601"), wait("99999999999999999999999")], [Some(3600), Some(3600)]);
    }

    #[test]
    fn dates_are_read_in_the_three_forms_of_http() {
        for date in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(wait(date), Some(30), "{date}");
        }
        assert_eq!(wait("Sat, 05 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(wait("Fri, 31 Dec 9999 23:59:59 GMT"), Some(3600));
    }

    #[test]
    fn nonsense_says_nothing() {
        for text in ["", "-1", "1.5", "soon", "Sun, 36 Nov 1994 08:49:37 GMT", "１２"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }
}
