//! What can go wrong with an outbox, and what to do about it.

use std::time::Duration;

use backstop_core::InvalidEvent;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An event breaks its rules.
    #[error(transparent)]
    Event(#[from] InvalidEvent),

    /// The database refused or did not answer.
    #[error("while {doing}: {source}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the database or its driver said.
        source: sqlx::Error,
    },

    /// A database file that cannot be opened.
    #[error("cannot open the database {}: {source}; check that its directory exists and can be written to", .path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// What the driver said.
        source: sqlx::Error,
    },

    /// A table name that is not a plain identifier.
    #[error(
        "table name {0:?} must be a letter or underscore followed by letters, digits or underscores, at most 63 in all"
    )]
    TableName(String),

    /// A setting that makes no sense, or that is missing.
    #[error("setting {setting} {rule}")]
    Setting {
        /// The setting, by the name of its builder method.
        setting: &'static str,
        /// The rule, worded to follow the name.
        rule: &'static str,
    },

    /// Two handlers for the same events.
    #[error(
        "a handler for aggregate type {aggregate_type:?}, event type {event_type:?} is registered already"
    )]
    Duplicate {
        /// The aggregate type of both.
        aggregate_type: String,
        /// The event type of both.
        event_type: String,
    },

    /// The outbox did not stop in time; what was in its hands is still in the table.
    #[error("the outbox did not stop within {0:?}; what it held stays in the table and is delivered later")]
    Drain(Duration),
}

impl Error {
    /// Wraps a driver's error with what was being done.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}
