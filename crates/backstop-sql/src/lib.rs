//! Backstop on SQL databases: the transactional outbox.
//!
//! An event is appended in the transaction that changes the business data, so both happen or neither.
//! After the commit it is delivered to its handler, tried again while that fails, and buried where an
//! operator sees it when nothing helps. [`Outbox`] is where to begin.
//!
//! The crate is laid out by noun: [`outbox`] holds the machinery and, in [`store`], the questions it asks of its table;
//! `database` holds what every component needs of a database, and `stores` one folder per database with what differs.

// Without any of them there is only the seam for your own database, and nothing on this side of it.
#![cfg_attr(
    not(feature = "_any"),
    allow(dead_code, unused_imports, unused_macros, reason = "what only the databases need")
)]

mod aside;
mod burials;
mod database;
mod error;
#[cfg(doctest)]
mod must_not_compile;
pub mod outbox;
mod purge;
pub mod queue;
mod renewal;
mod routes;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod stores;
mod tls;
mod wake_up;

pub use backstop_core::setting::SettingFault;
pub use database::{TableName, TimeZone, connection, statement};
pub use error::Error;
pub use outbox::{Outbox, store};
pub use queue::Queue;
pub use stores::Supported;
pub use stores::opening;
pub use stores::opening::*;
pub use tls::{Tls, TlsMode};

/// A boxed future: what the traits here return, so that they can be trait objects.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
