//! The poller: looks for due rows at an interval, and hands them on as far as there is room.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::delivery::Settlement;
use backstop_core::{Clock, Event, Shutdown, SystemClock, telemetry};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::dispatcher::{Feed, Offer};
use super::lifecycle::Lifecycle;
use super::settings::Faults;
use super::unheld::Unheld;
use crate::Error;
use crate::store::{At, Claim, Due, Order, Row, Settle, Store};

/// The settings of a [`Poller`]; [`build`](Settings::build) checks them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) interval: Duration,
    pub(super) batch_size: u32,
    pub(super) skip_recent: Duration,
    pub(super) locking: Option<Locking>,
    pub(super) order: Order,
}

/// Under which name rows are claimed, and how old a claim must be to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Locking {
    pub(super) owner: Arc<str>,
    pub(super) timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(5_000),
            batch_size: 50,
            skip_recent: Duration::ZERO,
            locking: None,
            order: Order::Due,
        }
    }
}

impl Settings {
    /// How long to rest between two looks at the table. Defaults to 5 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How many rows are read at once. Defaults to 50.
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.batch_size = rows;
        self
    }

    /// Rows younger than this are left alone. Defaults to zero.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.skip_recent = age;
        self
    }

    /// Claims rows under a name that is made up, so that several pollers can share the table. A claim older
    /// than the time-out is forgotten. Defaults to taking no locks.
    pub fn claim_locking(self, timeout: Duration) -> Self {
        self.claim_locking_as(new_owner(), timeout)
    }

    /// [`claim_locking`](Self::claim_locking) under a name of one's own, at most 128 characters.
    pub fn claim_locking_as(mut self, owner: impl Into<String>, timeout: Duration) -> Self {
        self.locking = Some(Locking { owner: owner.into().into(), timeout });
        self
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        faults.longer_than_zero("interval", self.interval);
        faults.at_least_one("batch_size", self.batch_size as usize);
        if let Some(Locking { owner, timeout }) = &self.locking {
            faults.longer_than_zero("claim_locking", *timeout);
            if !(1..=128).contains(&owner.chars().count()) || owner.contains('\0') {
                faults.add("claim_locking_as", "needs an owner's name of 1 to 128 characters without NUL");
            }
        }
    }

    /// Checks the settings and makes a poller that is not running yet.
    pub fn build(
        self,
        store: Arc<dyn Store>,
        handler: impl PollHandler,
        metrics: Arc<telemetry::Outbox>,
    ) -> Result<Poller, Error> {
        let mut faults = Faults::default();
        self.check(&mut faults);
        faults.none()?;
        Ok(Poller::new(Cycle {
            store,
            handler: Box::new(handler),
            unheld: Arc::default(),
            metrics,
            settings: self,
        }))
    }

    /// The poller of an outbox, which feeds its dispatcher.
    pub(super) fn feeding(
        self,
        store: Arc<dyn Store>,
        feed: Feed,
        metrics: Arc<telemetry::Outbox>,
    ) -> Poller {
        let unheld = feed.unheld().clone();
        Poller::new(Cycle { store, handler: Box::new(feed), unheld, metrics, settings: self })
    }
}

/// A name for a node: new at each start, so that a restarted node does not take its old claims for its own.
pub(super) fn new_owner() -> String {
    format!("node-{}", backstop_core::event::next_id())
}

/// What a [`Poller`] hands due events to. A function of event and attempts is one.
pub trait PollHandler: Send + Sync + 'static {
    /// Takes an event and how many tries have failed. False means that there is no room: the cycle ends,
    /// and the event comes again.
    fn handle(&self, event: Event, attempts: u32, claim: Option<Claim>) -> bool;

    /// How many events it would take now. Without room the table is not even looked at.
    fn available_capacity(&self) -> usize {
        usize::MAX
    }

    /// How many due events it holds already: so many more are read, so that they do not hide the others.
    fn held(&self) -> usize {
        0
    }

    /// A read of the table begins: what it returns may be settled before it is handed over.
    fn begin_read(&self) {}

    /// What the read returned has been handed over.
    fn end_read(&self) {}
}

impl<F: Fn(Event, u32) -> bool + Send + Sync + 'static> PollHandler for F {
    fn handle(&self, event: Event, attempts: u32, _claim: Option<Claim>) -> bool {
        self(event, attempts)
    }
}

impl PollHandler for Feed {
    fn handle(&self, event: Event, attempts: u32, claim: Option<Claim>) -> bool {
        let id = event.id().to_owned();
        let offer = self.offer_cold(event, attempts, claim.clone());
        // A row that we took again while we still hold it: whoever is free may have it when it is due.
        if let (Offer::Duplicate, Some(claim)) = (offer, claim) {
            self.unheld().add(id, claim);
        }
        offer != Offer::Refused
    }

    fn available_capacity(&self) -> usize {
        self.room()
    }

    fn held(&self) -> usize {
        Feed::held(self)
    }

    fn begin_read(&self) {
        self.recent().begin_read();
    }

    fn end_read(&self) {
        self.recent().end_read();
    }
}

/// Looks for due rows at an interval and hands them to a handler.
///
/// Part of an [`Outbox`](super::Outbox); also usable alone, one cycle at a time or in the background:
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::{Event, telemetry};
/// use backstop_sql::{TableName, outbox::poller, store::{SqlStore, Store}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// let store: Arc<dyn Store> = Arc::new(SqlStore::on(pool, TableName::default()));
/// store.migrate().await?;
/// let print = |event: Event, attempts: u32| {
///     println!("{} after {attempts} tries", event.id());
///     true
/// };
/// let poller = poller::Settings::default().build(store, print, Arc::new(telemetry::Outbox::new("outbox")))?;
/// poller.poll().await?;
/// poller.close().await;
/// # Ok::<(), backstop_sql::Error>(()) }).unwrap();
/// ```
pub struct Poller {
    /// Locked for a cycle, so that no two overlap.
    cycle: Arc<Mutex<Cycle>>,
    nudged: Arc<Notify>,
    lifecycle: Lifecycle,
}

impl Poller {
    fn new(cycle: Cycle) -> Self {
        Self { cycle: Arc::new(Mutex::new(cycle)), nudged: Arc::default(), lifecycle: Lifecycle::default() }
    }

    /// Polls in the background from now on, at once and then at the interval. Starting again has no effect;
    /// starting after [`close`](Self::close) is an error.
    pub fn start(&self) -> Result<(), Error> {
        let (cycle, nudged) = (self.cycle.clone(), self.nudged.clone());
        self.lifecycle.start(
            move |shutdown| poll_until(shutdown, nudged, cycle),
            "the poller was closed and cannot be started again: build a new one",
        )
    }

    /// Polls once. After [`close`](Self::close) it does nothing.
    pub async fn poll(&self) -> Result<(), Error> {
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        self.cycle.lock().await.run().await.map(drop)
    }

    /// Wakes the background loop: there is something to find.
    pub fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// What wakes the background loop, for those who make rows due.
    pub(super) fn nudged(&self) -> Arc<Notify> {
        self.nudged.clone()
    }

    /// Stops polling, after the cycle that is under way.
    pub async fn close(&self) {
        self.lifecycle.close("poller").await;
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("lifecycle", &self.lifecycle).finish_non_exhaustive()
    }
}

async fn poll_until(shutdown: Shutdown, nudged: Arc<Notify>, cycle: Arc<Mutex<Cycle>>) {
    while !shutdown.has_begun() {
        let cycle = cycle.lock().await;
        // A cycle is not interrupted: what it claimed must be handed over or released.
        let more_waits = match cycle.run().await {
            Ok(more_waits) => more_waits,
            Err(error) => {
                tracing::error!(%error, "cannot look for due events; trying again at the next interval");
                false
            }
        };
        let (interval, unheld) = (cycle.settings.interval, cycle.unheld.clone());
        drop(cycle);
        if !more_waits {
            let woken = async {
                tokio::select! {
                    () = nudged.notified() => {}
                    () = unheld.added() => {}
                }
            };
            let _ = shutdown.interrupts(timeout(interval, woken)).await;
        }
    }
}

/// One look at the table.
struct Cycle {
    store: Arc<dyn Store>,
    handler: Box<dyn PollHandler>,
    unheld: Arc<Unheld>,
    metrics: Arc<telemetry::Outbox>,
    settings: Settings,
}

impl Cycle {
    /// Polls once and tells whether more rows are likely to wait.
    async fn run(&self) -> Result<bool, Error> {
        self.unheld.release(&*self.store).await?;
        let room = u32::try_from(self.handler.available_capacity()).unwrap_or(u32::MAX);
        let wanted = self.settings.batch_size.min(room);
        if wanted == 0 {
            return Ok(false);
        }
        self.handler.begin_read();
        let read_and_handed_over = self.read_and_hand_over(wanted).await;
        self.handler.end_read();
        let (read, all_taken) = read_and_handed_over?;
        // A full batch that found room: the next one may be waiting.
        Ok(all_taken && read >= wanted as usize && self.handler.held() < read + wanted as usize)
    }

    async fn read_and_hand_over(&self, wanted: u32) -> Result<(usize, bool), Error> {
        let rows = self.read(wanted).await?;
        self.show_lag(&rows);
        Ok((rows.len(), self.hand_over(rows).await?))
    }

    async fn read(&self, wanted: u32) -> Result<Vec<Row>, Error> {
        let Settings { skip_recent, order, .. } = self.settings;
        let due = |limit| Due { at: At::Database, skip_recent, limit, order };
        match &self.settings.locking {
            Some(Locking { owner, timeout }) => self.store.claim(owner, *timeout, due(wanted)).await,
            None => {
                let held = u32::try_from(self.handler.held()).unwrap_or(u32::MAX);
                self.store.poll(due(wanted.saturating_add(held))).await
            }
        }
    }

    /// Hands rows over until one is refused; buries what cannot be decoded, and gives back what was claimed
    /// and not taken. Tells whether all were taken.
    async fn hand_over(&self, rows: Vec<Row>) -> Result<bool, Error> {
        let (mut unreadable, mut refused) = (Vec::new(), Vec::new());
        let mut room = true;
        for Row { id, attempts, claim, event } in rows {
            match event {
                Err(problem) => unreadable.push(bury(id, claim, &problem)),
                Ok(event) => {
                    room = room && self.handler.handle(event, attempts, claim.clone());
                    if let (false, Some(claim)) = (room, claim) {
                        refused.push((id, claim));
                    }
                }
            }
        }
        if !refused.is_empty() {
            self.store.release(&refused).await?;
        }
        if !unreadable.is_empty() {
            let buried = self.store.settle(At::Database, &unreadable).await?;
            self.metrics.dispatch_dead.add(buried);
        }
        Ok(room)
    }

    /// How long the oldest due row has waited since it was created.
    fn show_lag(&self, rows: &[Row]) {
        let oldest = rows.iter().filter_map(|row| row.event.as_ref().ok()).map(Event::occurred_at).min();
        let waited = oldest.map(|created| (SystemClock.now() - created).num_milliseconds().max(0));
        self.metrics.lag_oldest_ms.set(waited.unwrap_or_default().unsigned_abs());
    }
}

fn bury(id: String, claim: Option<Claim>, problem: &str) -> Settle {
    tracing::error!(event_id = id, problem, "a row cannot be decoded: the event is dead");
    Settle {
        id,
        claim,
        settlement: Settlement::Dead { error: format!("the row cannot be decoded: {problem}") },
    }
}
