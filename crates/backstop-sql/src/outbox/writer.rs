//! The writer: appends events within a transaction, with the hooks around it.

use std::fmt;
use std::sync::Arc;

use backstop_core::event::EventType;
use backstop_core::trace::TraceContext;
use backstop_core::{Event, telemetry};

use super::hook::{Hook, Hooks};
use crate::Error;
use crate::connection::Connection;
use crate::store::{Born, Store};

/// Appends events on a connection that is in a transaction.
///
/// [`Outbox::begin`](super::Outbox::begin) does it for transactions of its own. Whoever owns the
/// transaction calls the writer with it, and after the commit says so with the token it got:
///
/// ```
/// use backstop_core::Event;
/// use backstop_sql::Outbox;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// # let outbox = Outbox::single_node(pool.clone()).on("Order", "OrderPlaced", |_: Event| async {}).start().await?;
/// let mut tx = pool.begin().await?;
/// // … your own statements on `tx` …
/// let event = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
/// let appended = outbox.writer().append(&mut tx, event).await?;
/// tx.commit().await?;
/// appended.committed(); // delivery begins; without this line the poller would find the event
/// # outbox.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Writer {
    store: Arc<dyn Store>,
    hooks: Hooks,
    born: Option<Born>,
    metrics: Option<Arc<telemetry::Outbox>>,
}

impl Writer {
    /// A writer without hooks: a poller or change-data capture delivers what it writes.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, hooks: Hooks::default(), born: None, metrics: None }
    }

    /// Adds a hook, to run after those added before it.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.add(Arc::new(hook));
        self
    }

    pub(super) fn assembled(
        store: Arc<dyn Store>,
        hooks: Hooks,
        born: Option<Born>,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        Self { store, hooks, born, metrics: Some(metrics) }
    }

    /// Appends one event.
    pub async fn append(&self, connection: &mut dyn Connection, event: Event) -> Result<Appended, Error> {
        self.append_all(connection, vec![event]).await
    }

    /// Appends an event given by its type and the JSON text of its payload.
    pub async fn append_json(
        &self,
        connection: &mut dyn Connection,
        event_type: impl EventType + Send,
        payload_json: impl Into<String> + Send,
    ) -> Result<Appended, Error> {
        let event = Event::of_json(event_type, payload_json)?;
        self.append(connection, event).await
    }

    /// Appends events, all in one statement up to some hundreds. The hooks see them as one batch.
    pub async fn append_all(
        &self,
        connection: &mut dyn Connection,
        events: Vec<Event>,
    ) -> Result<Appended, Error> {
        if !connection.in_transaction() {
            return Err(Error::NoTransaction);
        }
        let events = in_current_trace(events);
        let events = if events.is_empty() { events } else { self.hooks.before_write(events)? };
        if !events.is_empty() {
            self.store.insert(connection, &events, self.born.as_ref()).await?;
            self.hooks.after_write(&events);
        }
        Ok(Appended { events, writer: self.clone(), settled: false })
    }
}

/// Events carry the trace of the transaction that appends them.
fn in_current_trace(events: Vec<Event>) -> Vec<Event> {
    match TraceContext::current() {
        Some(trace) => events.into_iter().map(|event| event.in_trace(&trace)).collect(),
        None => events,
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("born", &self.born).finish_non_exhaustive()
    }
}

/// Events that a transaction holds. Say what became of it; dropped without a word, it only means that the
/// poller finds the events, if they were committed.
#[must_use = "call `committed` after the commit, so that delivery begins at once"]
#[derive(Debug)]
pub struct Appended {
    events: Vec<Event>,
    writer: Writer,
    settled: bool,
}

impl Appended {
    /// The ids of the rows inserted, in order; none if a hook held the events back.
    pub fn ids(&self) -> Vec<String> {
        self.events.iter().map(|event| event.id().to_owned()).collect()
    }

    /// The transaction has committed: delivery begins.
    pub fn committed(mut self) {
        self.settled = true;
        if self.events.is_empty() {
            return;
        }
        if let Some(metrics) = &self.writer.metrics {
            metrics.append.add(self.events.len() as u64);
        }
        self.writer.hooks.after_commit(&self.events);
    }

    /// The transaction has rolled back: the events never were.
    pub fn rolled_back(mut self) {
        self.settled = true;
        if !self.events.is_empty() {
            self.writer.hooks.after_rollback(&self.events);
        }
    }
}

impl Drop for Appended {
    fn drop(&mut self) {
        if !self.settled && !self.events.is_empty() {
            self.writer.hooks.abandoned(&self.events);
        }
    }
}
