//! What an answer, or its absence, means for an event: the status mapping, as a pure function.

use std::time::Duration;

use backstop_core::target::Verdict;
use backstop_core::{Failure, Timestamp};
use hyper::StatusCode;

use crate::client::{Answer, Exchange, Unanswered};
use crate::retry_after;

/// Judges a request that ended at `now`. No wait is longer than `longest`.
pub(crate) fn judge(exchange: Exchange, now: Timestamp, longest: Duration) -> Verdict {
    match exchange {
        Ok(answer) => {
            let wait = answer.retry_after.as_deref().and_then(|text| retry_after::parse(text, now, longest));
            of_status(&answer, wait)
        }
        Err(Unanswered::Unavailable(why)) => Verdict::Unavailable { class: "no-answer", wait: None, why },
        Err(Unanswered::Blocked(why)) => Verdict::Blocked(Failure::permanent("blocked-address", why)),
        Err(Unanswered::Malformed(message)) => Verdict::Failed(Failure::transient("bad-response", message)),
    }
}

fn of_status(answer: &Answer, wait: Option<Duration>) -> Verdict {
    let status = answer.status;
    if status.is_success() {
        return Verdict::Done;
    }
    let class = format!("http-{}", status.as_u16());
    let failure = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            return Verdict::Unavailable { class: "http-429", wait, why: message(answer) };
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            return Verdict::Unavailable { class: "http-503", wait, why: message(answer) };
        }
        StatusCode::GONE => return Verdict::Gone(message(answer)),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => may_pass(class, wait),
        _ if status.is_server_error() => may_pass(class, wait),
        _ => Failure::permanent(class, ""),
    };
    Verdict::Failed(failure.message_is(message(answer)))
}

fn may_pass(class: String, wait: Option<Duration>) -> Failure {
    match wait {
        Some(wait) => Failure::retry_after(wait).class_is(class),
        None => Failure::transient(class, ""),
    }
}

fn message(Answer { status, said, .. }: &Answer) -> String {
    let redirects = if status.is_redirection() {
        "; redirects are not followed: if you trust the new address, point the webhook at it"
    } else {
        ""
    };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("the target answered {status}{redirects}{colon}{said}")
}

#[cfg(test)]
mod tests {
    use backstop_core::failure::Kind;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn judged(status: u16, retry_after: Option<&str>) -> Verdict {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer { status, retry_after: retry_after.map(str::to_owned), said: "hm".to_owned() };
        judge(Ok(answer), "1994-11-06T08:49:07Z".parse().unwrap(), HOUR)
    }

    fn failed(verdict: Verdict) -> (String, Kind) {
        match verdict {
            Verdict::Failed(failure) => (failure.class().to_owned(), failure.kind()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_status_has_its_verdict() {
        for status in [200, 201, 202, 204, 206, 299] {
            assert!(matches!(judged(status, Some("9")), Verdict::Done), "{status}");
        }
        for status in [429, 503] {
            assert!(matches!(judged(status, None), Verdict::Unavailable { wait: None, .. }), "{status}");
        }
        assert!(matches!(judged(410, None), Verdict::Gone(why) if why == "the target answered 410 Gone: hm"));
        for status in [408, 425, 500, 501, 502, 504, 507, 599] {
            assert_eq!(failed(judged(status, None)), (format!("http-{status}"), Kind::Transient));
        }
        for status in
            [300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 409, 413, 415, 422, 431, 600, 999]
        {
            assert_eq!(failed(judged(status, Some("9"))), (format!("http-{status}"), Kind::Permanent));
        }
    }

    #[test]
    fn retry_after_is_a_wait_where_the_target_is_away_and_a_delay_where_it_failed() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (text, seconds) in [("120", 120), (date, 30), ("99999", 3600)] {
            let wait = Duration::from_secs(seconds);
            for status in [429, 503] {
                let Verdict::Unavailable { wait: told, .. } = judged(status, Some(text)) else {
                    panic!("{status}")
                };
                assert_eq!(told, Some(wait), "{status} {text}");
            }
            for status in [408, 425, 500, 502] {
                assert_eq!(failed(judged(status, Some(text))).1, Kind::RetryAfter(wait), "{status} {text}");
            }
        }
    }

    #[test]
    fn a_failure_has_its_class_and_says_what_the_target_said() {
        let Verdict::Failed(failure) = judged(422, None) else { panic!() };
        assert_eq!(failure.to_string(), "http-422: the target answered 422 Unprocessable Entity: hm");
        let Verdict::Failed(moved) = judged(301, None) else { panic!() };
        assert!(moved.to_string().contains("redirects are not followed"), "{moved}");
    }

    #[test]
    fn without_an_answer_the_event_waits_and_nonsense_counts_as_a_failure() {
        let judged = |unanswered| judge(Err(unanswered), Timestamp::UNIX_EPOCH, HOUR);
        let away = judged(Unanswered::Unavailable("no answer".to_owned()));
        assert!(matches!(away, Verdict::Unavailable { wait: None, why, .. } if why == "no answer"));
        let nonsense = judged(Unanswered::Malformed("not HTTP".to_owned()));
        assert_eq!(failed(nonsense), ("bad-response".to_owned(), Kind::Transient));
        let blocked = judged(Unanswered::Blocked("private".to_owned()));
        assert!(matches!(blocked, Verdict::Blocked(failure) if failure.kind() == Kind::Permanent));
    }
}
