//! **Every event arrives, or you can see exactly where it waits.**
//!
//! Backstop is the safety net behind event-driven software. An event is appended in the transaction that
//! changes your data, so both happen or neither; then it is delivered, tried again while that fails, and
//! buried in plain sight when nothing helps.
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! use backstop::{Event, Failure, Outbox};
//!
//! async fn ship(order: Vec<String>) -> Result<(), Failure> {
//!     println!("shipping {order:?}");
//!     Ok(())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let directory = backstop_testkit::servers::directory();
//! # let path = directory.path().join("shop.db");
//! let pool = backstop::sqlite::open(&path).await?;
//! let outbox = Outbox::single_node(pool)
//!     .on("Order", "OrderPlaced", |event: Event| async move { ship(event.payload()?).await })
//!     .start()
//!     .await?;
//!
//! let mut tx = outbox.begin().await?;
//! sqlx::query("create table if not exists orders (item text)").execute(&mut *tx).await?;
//! tx.append(Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?).await?;
//! tx.commit().await?; // delivery begins here, never before
//!
//! outbox.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! # }
//! ```
//!
//! # Features
//!
//! | feature | what it brings | on by default |
//! |---|---|---|
//! | `sqlite` | the outbox on SQLite, bundled | yes |
//! | `postgres` | the outbox on PostgreSQL | no |
//! | `mysql` | the outbox on MySQL and MariaDB | no |
//! | `tls` | TLS to PostgreSQL, MySQL and MariaDB, by rustls; needs one of them beside it | no |
//! | `sea-orm` | append with SeaORM's transactions; needs one of the databases beside it | no |
//! | `dlq` | the dead-letter directory: a sink that keeps what another could not take, and its tools | no |
//! | `http` | webhooks: events sent over HTTP, signed, in the CloudEvents formats | no |
//! | `kafka` | events published to Kafka, confirmed by the brokers; builds librdkafka | no |
//! | `cloudevents` | conversions to and from the types of `cloudevents-sdk` | no |
//!
//! What is not asked for is not compiled.

pub use backstop_core::{
    Clock, CloudEvent, Delivery, Event, Failure, Handler, IntoHandler, InvalidEvent, Outcome, PayloadError,
    SharedSink, Shutdown, Sink, SystemClock, Timestamp, breaker, burial, clock, codec, config, delivery,
    event, failure, handler, inspect, retry, setting, shutdown, sink, target, telemetry, trace,
};
#[cfg(feature = "dlq")]
pub use backstop_disk::dlq;
#[cfg(feature = "http")]
pub use backstop_http as http;
#[cfg(feature = "kafka")]
pub use backstop_kafka as kafka;
#[cfg(feature = "sql")]
pub use backstop_sql::opening::*;
#[cfg(feature = "sql")]
pub use backstop_sql::{
    Error, Outbox, Supported, TableName, TimeZone, Tls, TlsMode, connection, outbox, statement, store,
};
