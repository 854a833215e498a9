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
//! # Where things are
//!
//! | you want to | look at |
//! |---|---|
//! | write events beside your data, and handle them | [`Outbox`] and [`outbox`] |
//! | have work done later by any number of workers | [`Queue`] and [`queue`] |
//! | send events to a URL or a Kafka topic | [`relay`] |
//! | keep failed events as files, and send them again | [`dead_letters`] |
//! | see where events are | [`dashboard`] |
//! | test what you have built | [`test`](mod@test) |
//! | write your own relay, component or database | [`extend`] |
//!
//! # Features
//!
//! | feature | what it brings | on by default |
//! |---|---|---|
//! | `sqlite` | the outbox and the queue on SQLite, bundled | yes |
//! | `postgres` | the outbox and the queue on PostgreSQL | no |
//! | `mysql` | the outbox and the queue on MySQL and MariaDB | no |
//! | `tls` | TLS to PostgreSQL, MySQL and MariaDB, by rustls; needs one of them beside it | no |
//! | `sea-orm` | append and publish with SeaORM's transactions; needs one of the databases beside it | no |
//! | `dlq` | [`dead_letters`]: a directory that keeps failed events, and its tools | no |
//! | `http` | [`relay::Webhook`]: events sent over HTTP, signed, in the CloudEvents formats | no |
//! | `kafka` | [`relay::Publisher`]: events published to Kafka, confirmed by the brokers; builds librdkafka | no |
//! | `dashboard` | [`dashboard`]: the page for operators, health and metrics, in your own process | no |
//! | `test` | [`test`](mod@test): a manual clock, handlers that fail on demand, fresh databases; for dev-dependencies | no |
//! | `cloudevents` | conversions to and from the types of `cloudevents-sdk` | no |
//!
//! A feature that is not asked for is not compiled.

#[cfg(feature = "dlq")]
pub mod dead_letters;
mod error;
pub mod extend;
#[cfg(feature = "sql")]
pub mod outbox;
#[cfg(feature = "sql")]
pub mod queue;
#[cfg(any(feature = "http", feature = "kafka"))]
pub mod relay;

pub use backstop_core::{
    CloudEvent, Delivery, Event, Failure, Handler, IntoHandler, InvalidEvent, Outcome, PayloadError,
    Shutdown, Timestamp, event, failure, retry, trace,
};
pub use error::Error;

#[cfg(feature = "dashboard")]
pub use backstop_admin as dashboard;
#[cfg(feature = "sql")]
pub use backstop_sql::opening::*;
#[cfg(feature = "test")]
pub use backstop_testkit as test;
#[cfg(feature = "sql")]
pub use outbox::Outbox;
#[cfg(feature = "sql")]
pub use queue::Queue;
