//! The transactional outbox: begin with [`Outbox`], end with [`Outbox::close`].
//!
//! | you want to | use |
//! |---|---|
//! | set it up | a [`Builder`], or a [`Config`] read from your own settings |
//! | append in its transaction | [`Transaction`] |
//! | append in a transaction that is not its own | [`Writer`] |
//! | see or change events as they are written | [`Hook`] |
//! | see every delivery | [`Interceptor`] |
//! | look at dead events, replay or discard them | [`DeadEvents`] |
//! | ask where an event is | [`Whereabouts`] |

pub use backstop_core::interceptor::{Interceptor, after, before};
pub use backstop_sql::outbox::{
    Appended, BoundHandler, BroughtBack, Builder, ClaimLocking, ClaimedBy, Config, DeadEvents, Delivering,
    EventState, Failed, Hook, HookError, Metrics, Mode, MultiNode, Operation, Ordered, Outbox, Redriven,
    SingleNode, Stopped, Table, Transaction, Tunable, Whereabouts, Writer, WriterOnly, purge,
};
pub use backstop_sql::store::{DeadEvent, DeadFilter, Done, Status};
pub use backstop_sql::{Error, Supported, TableName, TimeZone, Tls, TlsMode};
