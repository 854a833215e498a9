//! Where one event is, in words.

use std::fmt;
use std::time::Duration;

use backstop_core::Timestamp;
use chrono::SecondsFormat;

use super::table::{Found, Listed, Status};

/// Where an event stands. Shown, it is the rest of a sentence that begins with the event.
///
/// ```
/// use backstop_sql::queue::Whereabouts;
///
/// let at = "2030-01-31T12:00:00Z".parse().unwrap();
/// let failed = Whereabouts::Failed { at, attempts: 3, error: Some("timeout: no answer".to_owned()) };
/// assert_eq!(failed.to_string(), "failed at 2030-01-31T12:00:00Z, after 3 attempts: timeout: no answer");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whereabouts {
    /// It can be taken by any worker.
    Waiting {
        /// When it was published.
        since: Timestamp,
    },
    /// It is not taken before a moment.
    Delayed {
        /// The moment.
        until: Timestamp,
        /// How often it was tried, and with what the last attempt failed.
        tried: Option<(u32, String)>,
    },
    /// A worker handles it.
    Handled {
        /// When its worker last said so.
        seen: Timestamp,
        /// How often it was taken, this time included.
        attempts: u32,
    },
    /// Its worker has died, or stands still: the next worker that is free takes it over.
    Stuck {
        /// When its worker last said that it handles it.
        seen: Timestamp,
        /// How often it was taken.
        attempts: u32,
    },
    /// It was handled.
    Completed {
        /// When.
        at: Timestamp,
        /// How often it was taken.
        attempts: u32,
    },
    /// It was given up.
    Failed {
        /// When.
        at: Timestamp,
        /// How often it was taken.
        attempts: u32,
        /// Why.
        error: Option<String>,
    },
}

impl Whereabouts {
    pub(super) fn of(found: &Found, timeout: Duration) -> Self {
        let Listed { attempts, created_at, updated_at, .. } = found.listed;
        let listed = &found.listed;
        match listed.status {
            Status::Pending => match listed.available_at.filter(|until| *until > found.asked_at) {
                Some(until) => {
                    Self::Delayed { until, tried: listed.error.clone().map(|error| (attempts, error)) }
                }
                None => Self::Waiting { since: created_at },
            },
            Status::Processing => {
                let seen = listed.processing_started_at.unwrap_or(updated_at);
                let age = (found.asked_at - seen).to_std().unwrap_or_default();
                if age > timeout { Self::Stuck { seen, attempts } } else { Self::Handled { seen, attempts } }
            }
            Status::Completed => Self::Completed { at: updated_at, attempts },
            Status::Failed => Self::Failed { at: updated_at, attempts, error: listed.error.clone() },
        }
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { since } => write!(f, "waits since {} for a free worker", shown(*since)),
            Self::Delayed { until, tried: None } => write!(f, "is not taken before {}", shown(*until)),
            Self::Delayed { until, tried: Some((attempts, error)) } => {
                write!(f, "is tried again at {}, after {}: {error}", shown(*until), times(*attempts))
            }
            Self::Handled { seen, attempts } => {
                write!(f, "is being handled, attempt {attempts}; its worker last said so at {}", shown(*seen))
            }
            Self::Stuck { seen, attempts } => write!(
                f,
                "is stuck after {}: its worker last said at {} that it handles it, and has died or stands still; the next \
                 free worker takes it over",
                times(*attempts),
                shown(*seen)
            ),
            Self::Completed { at, attempts } => {
                write!(f, "completed at {}, after {}", shown(*at), times(*attempts))
            }
            Self::Failed { at, attempts, error } => {
                write!(f, "failed at {}, after {}", shown(*at), times(*attempts))?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
        }
    }
}

fn shown(moment: Timestamp) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn times(attempts: u32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}
