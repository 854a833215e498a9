//! Where one event is: what its row says, and what that means.

use std::fmt;
use std::time::Duration;

use backstop_core::{Event, Timestamp};

use super::store::Status;

/// What the row of an event says, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// The event's id.
    pub id: String,
    /// The number in the status column; see [`Status`].
    pub status: i64,
    /// How many attempts have failed, as the column counts them: the one that killed it is not in it.
    pub failed_attempts: u32,
    /// When it was looked up, by the database's clock.
    pub asked_at: Timestamp,
    /// When it was created, if that can be read.
    pub created_at: Option<Timestamp>,
    /// When it is due, if that can be read.
    pub due_at: Option<Timestamp>,
    /// When it was done or died, if that was recorded.
    pub ended_at: Option<Timestamp>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Who has claimed it, if anybody has.
    pub claimed: Option<ClaimedBy>,
    /// The event, or why its row cannot be decoded.
    pub event: Result<Event, String>,
}

/// Who has claimed a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedBy {
    /// The node's name.
    pub owner: String,
    /// When it claimed the row, or renewed its claim.
    pub at: Option<Timestamp>,
}

/// Where an event stands. Shown, it is the rest of a sentence that begins with the event.
///
/// ```
/// use backstop_sql::outbox::EventState;
///
/// let at = "2030-01-31T12:00:00Z".parse().unwrap();
/// let dead = EventState::Dead { since: Some(at), attempts: 10, error: Some("timeout: no answer".to_owned()) };
/// assert_eq!(dead.to_string(), "is dead since 2030-01-31T12:00:00Z, after 10 attempts: timeout: no answer");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventState {
    /// Due, not tried yet, and claimed by nobody.
    Waiting {
        /// When it became due.
        since: Timestamp,
    },
    /// Not due yet: its handler deferred it, or it was appended with a delay.
    Deferred {
        /// When it becomes due.
        until: Timestamp,
    },
    /// In the hands of a node.
    Claimed {
        /// The node.
        by: ClaimedBy,
        /// Whether the claim is so old that any node may take the row.
        has_run_out: bool,
        /// How many attempts have failed, and with what the last one did.
        failed: Failed,
    },
    /// Failed, and tried again.
    Retrying {
        /// How many attempts have failed, and with what the last one did.
        failed: Failed,
        /// When the next attempt is due.
        next: Timestamp,
        /// Whether that moment has come.
        is_due: bool,
    },
    /// Given up.
    Dead {
        /// Since when, if that was recorded.
        since: Option<Timestamp>,
        /// How often its handler was called.
        attempts: u32,
        /// Why.
        error: Option<String>,
    },
    /// Handled.
    Done {
        /// When, if that was recorded.
        at: Option<Timestamp>,
    },
    /// Pending, and the moment at which it is due cannot be read: it never comes.
    NeverDue,
    /// In a status that is none of ours.
    Unknown(i64),
}

/// Attempts that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// How many.
    pub attempts: u32,
    /// What the last one failed with.
    pub error: Option<String>,
}

impl Whereabouts {
    /// Its status, if it is one of ours.
    pub fn status(&self) -> Option<Status> {
        [Status::New, Status::Done, Status::Retry, Status::Dead]
            .into_iter()
            .find(|status| *status as i64 == self.status)
    }

    /// Where it stands, where claims run out after so long.
    pub fn state(&self, claims_run_out: Duration) -> EventState {
        let failed = || Failed { attempts: self.failed_attempts, error: self.error.clone() };
        let retries = match self.status() {
            Some(Status::New) => false,
            Some(Status::Retry) => true,
            Some(Status::Done) => return EventState::Done { at: self.ended_at },
            Some(Status::Dead) => {
                let attempts = self.failed_attempts.saturating_add(1);
                return EventState::Dead { since: self.ended_at, attempts, error: self.error.clone() };
            }
            None => return EventState::Unknown(self.status),
        };
        let Some(due_at) = self.due_at else { return EventState::NeverDue };
        let is_due = due_at <= self.asked_at;
        match &self.claimed {
            Some(by) if is_due => {
                let age = by.at.and_then(|at| (self.asked_at - at).to_std().ok());
                let has_run_out = age.is_some_and(|age| age > claims_run_out);
                EventState::Claimed { by: by.clone(), has_run_out, failed: failed() }
            }
            _ if retries => EventState::Retrying { failed: failed(), next: due_at, is_due },
            _ if is_due => EventState::Waiting { since: due_at },
            _ => EventState::Deferred { until: due_at },
        }
    }
}

impl fmt::Display for EventState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { since } => {
                write!(f, "is waiting for its first attempt, and has been due since {}", told(*since))
            }
            Self::Deferred { until } => write!(
                f,
                "is deferred until {}: its handler asked for a delay, or it was appended with one; no attempt is counted",
                told(*until)
            ),
            Self::Claimed { by, has_run_out, failed } => {
                write!(f, "is claimed by node {}", by.owner)?;
                if let Some(at) = by.at {
                    write!(f, " since {}", told(at))?;
                }
                f.write_str(if *has_run_out {
                    ", which has not renewed its claim in time, so any node may take it"
                } else {
                    ", which handles it or is about to"
                })?;
                if failed.attempts > 0 { write!(f, "; {failed}") } else { Ok(()) }
            }
            Self::Retrying { failed, next, is_due } => {
                let when = if *is_due { "has been due since" } else { "comes at" };
                write!(f, "is retrying: {failed}; the next attempt {when} {}", told(*next))
            }
            Self::Dead { since, attempts, error } => {
                f.write_str("is dead")?;
                if let Some(since) = since {
                    write!(f, " since {}", told(*since))?;
                }
                let times = if *attempts == 1 { "attempt" } else { "attempts" };
                write!(f, ", after {attempts} {times}: {}", error.as_deref().unwrap_or(NO_ERROR))
            }
            Self::Done { at: Some(at) } => write!(f, "is done since {}", told(*at)),
            Self::Done { at: None } => f.write_str("is done"),
            Self::NeverDue => f.write_str("is never due: its available_at is no moment that can be read"),
            Self::Unknown(status) => {
                write!(f, "has status {status}, which is none of NEW (0), DONE (1), RETRY (2) and DEAD (3)")
            }
        }
    }
}

const NO_ERROR: &str = "no error was recorded";

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, error } = self;
        let error = error.as_deref().unwrap_or(NO_ERROR);
        match attempts {
            1 => write!(f, "1 attempt failed, with {error}"),
            many => write!(f, "{many} attempts failed, the last with {error}"),
        }
    }
}

/// A moment, to the microsecond where it has any.
fn told(moment: Timestamp) -> String {
    moment.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> Timestamp {
        let noon: Timestamp = "2030-01-31T12:00:00Z".parse().unwrap();
        noon + TimeDelta::seconds(seconds)
    }

    fn row(status: i64, due: i64) -> Whereabouts {
        Whereabouts {
            id: "o-1".to_owned(),
            status,
            failed_attempts: 0,
            asked_at: at(0),
            created_at: Some(at(-100)),
            due_at: Some(at(due)),
            ended_at: None,
            error: None,
            claimed: None,
            event: Err("not read".to_owned()),
        }
    }

    fn said(row: &Whereabouts) -> String {
        row.state(MINUTE).to_string()
    }

    #[test]
    fn a_pending_event_waits_or_is_deferred_by_whether_it_is_due() {
        assert_eq!(
            said(&row(0, -5)),
            "is waiting for its first attempt, and has been due since 2030-01-31T11:59:55Z"
        );
        assert_eq!(row(0, 0).state(MINUTE), EventState::Waiting { since: at(0) }, "due at this very moment");
        assert!(said(&row(0, 5)).starts_with("is deferred until 2030-01-31T12:00:05Z: "));
        let never = Whereabouts { due_at: None, ..row(0, 0) };
        assert_eq!(never.state(MINUTE), EventState::NeverDue);
    }

    #[test]
    fn a_claim_is_told_with_its_node_until_it_has_run_out() {
        let claimed = |seconds| Whereabouts {
            claimed: Some(ClaimedBy { owner: "node-7".to_owned(), at: Some(at(seconds)) }),
            ..row(0, -90)
        };
        assert_eq!(
            said(&claimed(-60)),
            "is claimed by node node-7 since 2030-01-31T11:59:00Z, which handles it or is about to"
        );
        assert!(
            said(&claimed(-61)).ends_with("which has not renewed its claim in time, so any node may take it")
        );
        // A claim by a clock that is ahead, and one without a moment, have not run out.
        assert!(matches!(claimed(30).state(MINUTE), EventState::Claimed { has_run_out: false, .. }));
        let mut timeless = claimed(0);
        timeless.claimed.as_mut().unwrap().at = None;
        assert!(matches!(timeless.state(MINUTE), EventState::Claimed { has_run_out: false, .. }));
        let again = Whereabouts {
            status: 2,
            failed_attempts: 2,
            error: Some("timeout: no".to_owned()),
            ..claimed(-1)
        };
        assert!(
            said(&again).ends_with("about to; 2 attempts failed, the last with timeout: no"),
            "{}",
            said(&again)
        );
        let put_off = Whereabouts { due_at: Some(at(9)), ..claimed(-1) };
        assert_eq!(put_off.state(MINUTE), EventState::Deferred { until: at(9) }, "nobody handles it yet");
    }

    #[test]
    fn a_failed_event_tells_its_last_error_and_the_next_attempt() {
        let failed =
            Whereabouts { failed_attempts: 1, error: Some("http-503: closed".to_owned()), ..row(2, 5) };
        assert_eq!(
            said(&failed),
            "is retrying: 1 attempt failed, with http-503: closed; the next attempt comes at 2030-01-31T12:00:05Z"
        );
        let due = Whereabouts { due_at: Some(at(-5)), ..failed };
        assert!(said(&due).ends_with("; the next attempt has been due since 2030-01-31T11:59:55Z"));
    }

    #[test]
    fn what_has_ended_tells_when_and_why_as_far_as_that_is_known() {
        let dead = Whereabouts { failed_attempts: 9, ended_at: Some(at(-1)), ..row(3, -5) };
        assert_eq!(
            said(&dead),
            "is dead since 2030-01-31T11:59:59Z, after 10 attempts: no error was recorded"
        );
        assert_eq!(said(&row(3, -5)), "is dead, after 1 attempt: no error was recorded");
        let done = Whereabouts { ended_at: Some(at(-1)), ..row(1, -5) };
        assert_eq!(said(&done), "is done since 2030-01-31T11:59:59Z");
        assert_eq!(said(&row(1, -5)), "is done");
        assert!(said(&row(7, -5)).starts_with("has status 7, "));
    }
}
