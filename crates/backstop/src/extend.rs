//! For authors of extensions: a relay, a component that operators can watch, your own database or your own driver.
//!
//! Programs that append and handle events need nothing from here.
//!
//! | you write | you need |
//! |---|---|
//! | a relay | [`target`]: leave to call, verdicts, availability |
//! | a sink of CloudEvents | [`Sink`] |
//! | a component that operators can watch and change | [`inspect`], [`operate`], [`telemetry`] |
//! | settings that builder and file share | [`config`](mod@config) |
//! | a clock, a codec, a burial of dead events | [`clock`], [`codec`], [`burial`] |
//! | a database or a driver for the outbox | `store`, `connection`, `statement` |
//! | an outbox put together from its parts | `Dispatcher`, `Poller`, `Purge`, `Registry` |

pub use backstop_core::{
    Clock, Sink, SystemClock, breaker, burial, choice, clock, codec, config, delivery, handler, inspect,
    interceptor, operate, setting, sink, target, telemetry,
};
#[cfg(feature = "sql")]
pub use backstop_sql::outbox::{
    Dispatcher, Hold, InFlight, PollHandler, Poller, Purge, Purger, Queued, Registry, Source, StorePurger,
    Tracker, dispatcher, poller,
};
#[cfg(feature = "sql")]
pub use backstop_sql::{connection, statement, store};
