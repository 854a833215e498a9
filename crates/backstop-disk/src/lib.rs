//! Backstop on local disks: when the target cannot be reached, and perhaps not the database either, a directory keeps
//! the events that must not be lost.
//!
//! - [`dlq`]: the dead-letter directory. Failed events become files that survive a crash, and tools find them,
//!   look into them and send them again.
//! - [`fs`]: the filesystem as a trait, so that tests can fail every single call of it.
//!
//! ```
//! use backstop_core::{CloudEvent, Event, Failure, SharedSink, Sink};
//! use backstop_disk::dlq::{Directory, DlqSink, Filter, Setup};
//!
//! # let place = backstop_testkit::servers::directory();
//! # let path = place.path();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let warehouse = SharedSink::new(|_: CloudEvent| async { Err::<(), _>(Failure::transient("timeout", "no answer")) });
//! let sink = DlqSink::open(warehouse, Setup::at(path))?;
//!
//! // The warehouse does not answer, and the caller is told that all is well: the directory has the event.
//! let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
//! sink.emit(CloudEvent::of(&order, "/shop")?).await.unwrap();
//!
//! // Later, when the warehouse is back:
//! let directory = Directory::open(path)?;
//! let found = directory.entries(Filter::all()).next().unwrap()?.entry().unwrap();
//! assert_eq!((found.event.id(), found.error.as_str()), (order.id(), "timeout: no answer"));
//!
//! let warehouse = |event: CloudEvent| async move { println!("shipped {}", event.id()); Ok::<(), Failure>(()) };
//! let done = directory.redrive(Filter::all()).to(warehouse).await?;
//! assert_eq!((done.delivered, directory.entries(Filter::all()).count()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Unix only: it relies on file modes, on names that are taken exclusively, and on directories that can be synced.

pub mod dlq;
mod error;
pub mod fs;
mod group_commit;
mod lines;

pub use error::Error;
