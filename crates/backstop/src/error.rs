//! One error for a program that uses several parts.

/// Everything that can go wrong here, so that one `?` serves a whole program. Each part also has its own error, for a
/// closer look: [`outbox::Error`](crate::outbox::Error), which is that of the queue too, [`relay::http::Error`](crate::relay::http::Error),
/// [`relay::kafka::Error`](crate::relay::kafka::Error), [`dead_letters::Error`](crate::dead_letters::Error).
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use backstop::{Error, Event, Outbox};
/// # use sqlx::Sqlite;
///
/// async fn place(outbox: &Outbox<Sqlite>, item: &str) -> Result<(), Error> {
///     let mut tx = outbox.begin().await?; // the outbox's error
///     sqlx::query("insert into orders values (?)").bind(item).execute(&mut *tx).await?; // the driver's
///     tx.append(Event::of("OrderPlaced").aggregate("Order", "42").json(&item)?).await?; // the event's
///     Ok(tx.commit().await?)
/// }
/// # drop(place);
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An event breaks its rules.
    #[error(transparent)]
    Event(#[from] crate::InvalidEvent),

    /// The outbox or the queue, or the database on their behalf.
    #[cfg(feature = "sql")]
    #[error(transparent)]
    Outbox(#[from] crate::outbox::Error),

    /// A statement of the caller's own.
    #[cfg(feature = "sql")]
    #[error(transparent)]
    Sql(#[from] sqlx::Error),

    /// A webhook cannot be built.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] crate::relay::http::Error),

    /// A publisher cannot be built.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] crate::relay::kafka::Error),

    /// A dead-letter directory.
    #[cfg(feature = "dlq")]
    #[error(transparent)]
    DeadLetters(#[from] crate::dead_letters::Error),

    /// The dashboard cannot be opened.
    #[cfg(feature = "dashboard")]
    #[error(transparent)]
    Dashboard(#[from] crate::dashboard::AdminError),
}
