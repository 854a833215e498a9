//! The four modes, each a type, so that a builder offers only the settings that have a meaning in its mode.

/// The mode of [`Outbox::single_node`](super::Outbox::single_node): every setting of delivery, and no claims.
///
/// ```
/// # use backstop_core::{Event, retry::Exponential};
/// # use backstop_sql::{Outbox, Supported};
/// # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
/// Outbox::single_node(pool)
///     .on("Order", "OrderPlaced", |_: Event| async {})
///     .worker_count(8)
///     .hot_queue_capacity(2_000)
///     .cold_queue_capacity(2_000)
///     .max_attempts(5)
///     .retry_policy(Exponential::default());
/// # }
/// ```
#[derive(Debug)]
pub enum SingleNode {}

/// The mode of [`Outbox::multi_node`](super::Outbox::multi_node): what [`SingleNode`] offers, and claims.
///
/// ```
/// # use std::time::Duration;
/// # use backstop_sql::{Outbox, Supported};
/// # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
/// Outbox::multi_node(pool).claim_locking(Duration::from_secs(300)).worker_count(8);
/// # }
/// ```
///
/// Beside the Java framework, on a table whose times are two hours ahead of UTC and carry no zone:
///
/// ```
/// # use std::time::Duration;
/// # use backstop_sql::{Outbox, Supported};
/// # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
/// Outbox::multi_node(pool)
///     .beside_java(true)
///     .claim_locking(Duration::from_secs(300))
///     .skip_recent(Duration::from_secs(10))
///     .time_zone("+02:00");
/// # }
/// ```
///
/// No other mode claims rows, so no other mode may be used there.
#[derive(Debug)]
pub enum MultiNode {}

/// The mode of [`Outbox::ordered`](super::Outbox::ordered): one worker and one attempt, so neither can be set.
///
/// ```
/// # use std::time::Duration;
/// # use backstop_core::Event;
/// # use backstop_sql::{Outbox, Supported};
/// # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
/// # // Rules: O-545.
/// Outbox::ordered(pool)
///     .on("Order", "OrderPlaced", |_: Event| async {})
///     .interval(Duration::from_secs(1))
///     .batch_size(200)
///     .skip_recent(Duration::from_secs(1))
///     .drain_timeout(Duration::from_secs(30));
/// # }
/// ```
#[derive(Debug)]
pub enum Ordered {}

/// The mode of [`Outbox::writer_only`](super::Outbox::writer_only): nothing is delivered, so no setting of
/// delivery is offered.
///
/// ```
/// # use std::time::Duration;
/// # use backstop_sql::{Outbox, Supported, outbox::purge};
/// # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
/// # // Rules: O-547, O-548, O-549, O-550, O-552.
/// Outbox::writer_only(pool).table("orders_outbox").purge(
///     purge::Settings::default()
///         .retention(Duration::from_secs(24 * 3_600))
///         .batch_size(1_000)
///         .interval(Duration::from_secs(1_800)),
/// );
/// # }
/// ```
#[derive(Debug)]
pub enum WriterOnly {}

#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeKind {
    SingleNode,
    MultiNode,
    Ordered,
    WriterOnly,
}

/// One of the four modes, and there is no fifth.
pub trait Mode {
    #[doc(hidden)]
    const MODE: ModeKind;
}

/// A mode that delivers events.
pub trait Delivering: Mode {}

/// A mode whose delivery can be tuned.
pub trait Tunable: Delivering {}

impl Mode for SingleNode {
    const MODE: ModeKind = ModeKind::SingleNode;
}

impl Mode for MultiNode {
    const MODE: ModeKind = ModeKind::MultiNode;
}

impl Mode for Ordered {
    const MODE: ModeKind = ModeKind::Ordered;
}

impl Mode for WriterOnly {
    const MODE: ModeKind = ModeKind::WriterOnly;
}

impl Delivering for SingleNode {}
impl Delivering for MultiNode {}
impl Delivering for Ordered {}

impl Tunable for SingleNode {}
impl Tunable for MultiNode {}
