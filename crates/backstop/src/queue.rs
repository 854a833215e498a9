//! The queue: durable events on two tables, taken by any number of workers. Begin with [`Queue`], end with
//! [`Queue::close`].
//!
//! | you want to | use |
//! |---|---|
//! | set it up | a [`Builder`], or a [`Config`] read from your own settings |
//! | handle events as they come | a [`Worker`] |
//! | publish in your own transaction | [`Queue::publish_in`], which gives you [`Published`] |
//! | take events by hand | [`Queue::poll`], which gives you [`Claimed`], and [`Queue::finalize`] |
//! | count, list, requeue and purge | [`Operations`] |
//! | ask where an event is | [`Whereabouts`] |
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! use backstop::queue::Worker;
//! use backstop::{Error, Event, Queue};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let directory = backstop_testkit::servers::directory();
//! # let pool = backstop::sqlite::open(directory.file("shop.db")).await?;
//! let worker = Worker::new()
//!     .on("InvoiceRequested", |event: Event| async move { println!("an invoice for {}", event.payload_json()) });
//! let queue = Queue::new(pool).worker(worker).start().await?;
//! queue.publish(Event::of("InvoiceRequested").json(&42)?).await?;
//! queue.close().await?;
//! # Ok::<(), Error>(()) }).unwrap();
//! # }
//! ```

pub use backstop_core::interceptor::{Interceptor, after, before};
pub use backstop_sql::outbox::{Metrics, purge};
pub use backstop_sql::queue::{
    Builder, Claimed, Config, Counts, Filter, Found, Listed, OnFailure, Operations, Published, Queue,
    Requeued, Status, Tables, Whereabouts, Worker, WorkerConfig,
};
pub use backstop_sql::{Error, Supported, TableName, Tls, TlsMode};
