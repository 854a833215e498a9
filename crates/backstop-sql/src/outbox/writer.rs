//! The writer: appends events within a transaction, with the hooks around it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use backstop_core::event::EventType;
use backstop_core::trace::TraceContext;
use backstop_core::{Clock, Event, SystemClock, telemetry};

use super::hook::{Hook, Hooks};
use super::hot_path::HotPath;
use super::ledger::Writing;
use crate::Error;
use crate::connection::Connection;
use crate::store::{Born, Store};

/// Appends events on a connection that is in a transaction.
///
/// [`Outbox::begin`](super::Outbox::begin) does this for its own transactions. If the transaction is yours, call the
/// writer with it, and report the commit with the token that you got:
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
    /// Where the events of this writer are delivered from memory.
    hot_path: Option<Arc<HotPath>>,
    metrics: Option<Arc<telemetry::Outbox>>,
}

impl Writer {
    /// A writer without hooks: a poller or change-data capture delivers what it writes.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, hooks: Hooks::default(), born: None, hot_path: None, metrics: None }
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
        hot_path: Option<Arc<HotPath>>,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        Self { store, hooks, born, hot_path, metrics: Some(metrics) }
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
        let (mut writing, held) = (None, self.held(&events));
        if !events.is_empty() {
            // A claim that a row is born with counts from here: the database's answer may take any time.
            let since = SystemClock.ticks();
            let born = self.born.clone().map(|born| Born { except: held.clone(), ..born });
            self.store.insert(connection, &events, born.as_ref()).await?;
            self.hooks.after_write(&events);
            if let Some(hot_path) = &self.hot_path {
                writing = Some(hot_path.written(&events, &held, since).await);
            }
        }
        Ok(Appended { events, writing, held, writer: self.clone() })
    }

    /// The ids of those whose routes are held, where a claim on their rows would only have to be given back.
    fn held(&self, events: &[Event]) -> HashSet<String> {
        let hot_path = self.hot_path.iter().filter(|_| self.born.is_some());
        hot_path.flat_map(|hot_path| hot_path.held(events)).map(|event| event.id().to_owned()).collect()
    }

    /// Which of the events appended on a connection its transaction still holds.
    pub(super) async fn present(
        &self,
        connection: &mut dyn Connection,
        appended: &[Appended],
    ) -> Result<HashSet<String>, Error> {
        let ids: Vec<_> = appended.iter().flat_map(Appended::ids).collect();
        Ok(self.store.present(Some(connection), &ids).await?.into_iter().collect())
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

/// Events that a transaction holds. Say whether the transaction committed. If this is dropped without saying so, the
/// poller finds the events if they were committed. While this is kept, the poller of this process does not deliver
/// them.
#[must_use = "call `committed` after the commit, so that delivery begins at once"]
#[derive(Debug)]
pub struct Appended {
    /// Empty once it was said whether they were committed.
    events: Vec<Event>,
    /// Known to the hot path, where there is one.
    writing: Option<Writing>,
    /// The ids of those that wait in the table, since their routes were held.
    held: HashSet<String>,
    writer: Writer,
}

impl Appended {
    /// The ids of the rows inserted, in order; none if a hook left the events out.
    pub fn ids(&self) -> Vec<String> {
        self.events.iter().map(|event| event.id().to_owned()).collect()
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The transaction has committed: delivery begins. Events that are nevertheless not in the table, because the
    /// transaction or a part of it was rolled back, are not delivered.
    pub fn committed(mut self) {
        let events = std::mem::take(&mut self.events);
        self.after_commit(&events);
        if let Some((hot_path, writing)) = self.hot_path() {
            hot_path.deliver_if_found(&events, writing);
        }
    }

    /// Keeps those events that the transaction still holds, and takes them from `present`: an earlier one with the same
    /// id was undone before this one could be appended.
    pub(super) fn keep_those(&mut self, present: &mut HashSet<String>) {
        let (kept, undone) =
            std::mem::take(&mut self.events).into_iter().partition(|event| present.remove(event.id()));
        self.events = kept;
        let undone: Vec<_> = undone;
        self.after_rollback(&undone);
    }

    /// The transaction has committed, and all the events are in the table.
    pub(super) fn surely_committed(mut self) {
        let events = std::mem::take(&mut self.events);
        self.after_commit(&events);
        if let Some((hot_path, writing)) = self.hot_path() {
            hot_path.deliver(&events, writing);
        }
    }

    /// The transaction has rolled back: the events never existed.
    pub fn rolled_back(mut self) {
        let events = std::mem::take(&mut self.events);
        self.after_rollback(&events);
    }

    fn after_commit(&self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        if let Some(metrics) = &self.writer.metrics {
            metrics.append.add(events.len() as u64);
        }
        self.writer.hooks.after_commit(events);
        if let Some(hot_path) = self.writer.hot_path.as_deref().filter(|_| !self.held.is_empty()) {
            hot_path.left_to_the_poller(&self.held, events);
        }
    }

    fn after_rollback(&self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        self.writer.hooks.after_rollback(events);
        if let Some((hot_path, writing)) = self.hot_path() {
            hot_path.rolled_back(events, writing);
        }
    }

    fn hot_path(&self) -> Option<(&HotPath, Writing)> {
        Some((self.writer.hot_path.as_deref()?, self.writing?))
    }
}

/// Dropped without saying whether the transaction committed.
impl Drop for Appended {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.writer.hooks.abandoned(&self.events);
            if let Some((hot_path, writing)) = self.hot_path() {
                hot_path.abandoned(&self.events, writing);
            }
        }
    }
}
