//! Test what you build on Backstop: no sleeps, no shared state, no mocks of a database.
//!
//! | you want | use |
//! |---|---|
//! | time that moves when you say so | [`clock::ManualClock`] |
//! | handlers that fail, wait or remember | [`handlers::Failing`], [`handlers::Slow`], [`handlers::Recording`] |
//! | a database, key prefix, topic prefix or directory of your own | [`servers`] |
//! | a network that is slow, silent or cut | [`proxy::Proxy`] |
//! | the same tests over several stores | [`suite!`] |
//! | to wait for something that can only be asked for | [`eventually()`] |
//! | certificates, good and bad | `certificates::Authority`, behind the feature `tls` |
//! | what was logged | `logs::Logs`, behind the feature `logs` |
//!
//! Add it as a dev-dependency. The databases sit behind the features `postgres`, `mysql` and `sqlite`;
//! without them no SQL is compiled.
//!
//! ```
//! use std::time::Duration;
//! use backstop_core::{Clock, Event, Handler, Outcome};
//! use backstop_testkit::{clock::ManualClock, handlers::{Failing, Recording}};
//!
//! # backstop_testkit::suite::block_on(async {
//! let clock = ManualClock::new();
//! let before = clock.ticks();
//! clock.advance(Duration::from_secs(60));
//! assert_eq!(clock.ticks().since(before), Duration::from_secs(60));
//!
//! let recorder = Recording::of(Failing::times(1));
//! let event = Event::of_json("OrderPlaced", "{}").unwrap();
//! assert!(recorder.handle(event.clone()).await.is_err());
//! assert_eq!(recorder.handle(event).await.unwrap(), Outcome::Done);
//! assert_eq!(recorder.until(2).await.len(), 2);
//! # });
//! ```

#[cfg(feature = "tls")]
pub mod certificates;
pub mod clock;
mod eventually;
pub mod handlers;
pub mod java;
#[cfg(feature = "logs")]
pub mod logs;
pub mod proxy;
pub mod servers;
mod skip;
pub mod suite;
mod url;
mod workspace;

pub use eventually::{eventually, eventually_within};
pub use skip::skip;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the waits of this crate last before they fail the test: 10 s.
///
/// Far more than anything here takes on an idle machine, so that a busy one fails no test.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Locks, even after a test thread panicked while it held the lock: that panic is the one worth reading.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
