//! What must not compile. Read by doc tests only: users are shown what works.
//!
//! # What a mode does not have, its builder does not offer.
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! Outbox::single_node(pool).beside_java(true);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-520, O-545.
//! Outbox::ordered(pool).worker_count(2);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-521, O-545.
//! Outbox::ordered(pool).max_attempts(2);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_core::retry::Exponential;
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-545.
//! Outbox::ordered(pool).retry_policy(Exponential::default());
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-545.
//! Outbox::ordered(pool).hot_queue_capacity(10);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use std::time::Duration;
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-519, O-545.
//! Outbox::ordered(pool).claim_locking(Duration::from_secs(300));
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_core::Event;
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-531, O-552.
//! Outbox::writer_only(pool).on("Order", "OrderPlaced", |_: Event| async {});
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-526, O-552.
//! Outbox::writer_only(pool).worker_count(2);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-526, O-552.
//! Outbox::writer_only(pool).max_attempts(2);
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use std::time::Duration;
//! # use backstop_sql::{Outbox, Supported};
//! # fn settings<DB: Supported>(pool: sqlx::Pool<DB>) {
//! # // Rules: O-524, O-552.
//! Outbox::writer_only(pool).interval(Duration::from_secs(1));
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # // Rules: O-527.
//! use backstop_sql::outbox::Builder;
//!
//! enum MyMode {}
//! async fn start(builder: Builder<sqlx::Sqlite, MyMode>) {
//!     builder.start().await.unwrap();
//! }
//! ```
//!
//! # An outbox begins with its pool, and a writer with a connection.
//!
//! ```compile_fail,E0061
//! # // Rules: O-528, O-551.
//! use backstop_sql::Outbox;
//!
//! let builder = Outbox::<sqlx::Sqlite>::single_node();
//! ```
//!
//! ```compile_fail,E0061
//! # // Rules: O-529.
//! use backstop_core::Event;
//! use backstop_sql::{Outbox, Supported};
//!
//! async fn place<DB: Supported>(outbox: Outbox<DB>, event: Event) {
//!     outbox.writer().append(event).await.unwrap();
//! }
//! ```
//!
//! # A poller needs its store, its handler and its metrics.
//!
//! ```compile_fail,E0061
//! # // Rules: O-338, O-339.
//! # use std::sync::Arc;
//! # use backstop_core::telemetry;
//! use backstop_sql::outbox::poller;
//!
//! poller::Settings::default().build(Arc::new(telemetry::Outbox::new("outbox")));
//! ```
//!
//! ```compile_fail,E0061
//! # // Rules: O-337.
//! use backstop_sql::{TableName, store::SqlStore};
//!
//! SqlStore::on(TableName::default());
//! ```
//!
//! # A dispatcher needs its store, its registry and its metrics.
//!
//! ```compile_fail,E0061
//! # // Rules: O-270, O-271.
//! # use std::sync::Arc;
//! # use backstop_core::telemetry;
//! use backstop_sql::outbox::dispatcher;
//!
//! dispatcher::Settings::default().start(Arc::new(telemetry::Outbox::new("outbox")));
//! ```
//!
//! ```compile_fail,E0061
//! # // Rules: O-269.
//! use backstop_sql::{TableName, store::SqlStore};
//!
//! SqlStore::on(TableName::default());
//! ```
//!
//! # A purge needs its connections and its purger.
//!
//! ```compile_fail,E0061
//! # // Rules: O-465.
//! use std::sync::Arc;
//! use backstop_core::telemetry;
//! use backstop_sql::outbox::{StorePurger, purge};
//!
//! fn build(purger: StorePurger, metrics: Arc<telemetry::Outbox>) {
//!     let purge = purge::Settings::default().build(purger, metrics);
//! }
//! ```
//!
//! ```compile_fail,E0061
//! # // Rules: O-466.
//! use std::sync::Arc;
//! use backstop_core::telemetry;
//! use backstop_sql::{connection::Connections, outbox::purge};
//!
//! fn build(connections: Arc<dyn Connections>, metrics: Arc<telemetry::Outbox>) {
//!     let purge = purge::Settings::default().build(connections, metrics);
//! }
//! ```
//!
//! # A queue publishes in a transaction on its connection; a pool has none.
//!
//! ```compile_fail,E0277
//! # use backstop_core::Event;
//! # use backstop_sql::{Queue, Supported};
//! # async fn publish<DB: Supported>(queue: Queue<DB>, mut pool: sqlx::Pool<DB>, event: Event) {
//! let _ = queue.publish_in(&mut pool, event).await;
//! # }
//! ```
