//! Backstop's nouns and decisions: what an event is, how a failure is classed, when a retry is due.
//!
//! Nothing here opens a file, a socket or a connection, and every decision is a pure function fed with
//! time and randomness, so all of it is tested without waiting. The crates that touch the world
//! (`backstop-sql`, `backstop-http`, `backstop-admin`, …) share these types and never each other's.
//!
//! ```
//! use backstop_core::{Event, Outcome, Failure, retry::{Jitter, Retry}, delivery::{Settlement, decide}};
//!
//! let event = Event::of("OrderPlaced").aggregate("Order", "42").json(&serde_json::json!({"total": 99}))?;
//! assert_eq!(event.aggregate_id(), Some("42"));
//!
//! // The third attempt of an event has failed: what follows?
//! let timeout = Failure::transient("timeout", "the warehouse did not answer within 5 s");
//! let settlement = decide(&Retry::default(), 2, Err(timeout), Jitter::NONE);
//! assert!(matches!(settlement, Settlement::Retry { .. }));
//! # Ok::<(), backstop_core::InvalidEvent>(())
//! ```

pub mod breaker;
pub mod burial;
pub mod calling;
pub mod clock;
pub mod codec;
pub mod config;
pub mod delivery;
pub mod event;
pub mod failure;
pub mod handler;
pub mod inspect;
pub mod interceptor;
pub mod lifecycle;
pub mod look;
pub mod operate;
pub mod redact;
pub mod repeats;
pub mod rest;
pub mod retry;
pub mod setting;
pub mod shared;
pub mod shutdown;
pub mod sink;
pub mod suspects;
pub mod target;
pub mod telemetry;
pub mod trace;

pub use clock::{Clock, SystemClock, Timestamp};
pub use delivery::{Delivery, Outcome};
pub use event::{CloudEvent, Event, InvalidEvent, PayloadError};
pub use failure::Failure;
pub use handler::{Handler, IntoHandler};
pub use shutdown::Shutdown;
pub use sink::{SharedSink, Sink};
