//! The poller: looks for due rows at an interval, and hands them on as far as there is room.

mod cycle;
mod passing;
mod sweep;
mod unreadable;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_core::calling::panicked;
use backstop_core::config::{Config as _, ValueKind};
use backstop_core::lifecycle::Lifecycle;
use backstop_core::rest::Rest;
use backstop_core::setting::Faults;
use backstop_core::{Event, Shutdown, Timestamp, telemetry};
use futures_util::FutureExt;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::claims::{self, Locking};
use super::feed::{Feed, Offer, Queued};
use crate::outbox::HeldRoutes;
use crate::store::{Claim, Order, Store};
use crate::wake_up::WakeOthers;
use crate::{BoxFuture, Error};
use cycle::Cycle;
use sweep::Next;

backstop_core::config! {
    /// How the poller looks for due rows.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        /// How long to rest between two looks at the table when there is nothing to do.
        interval: Duration = Duration::from_secs(5) => "interval-ms": one(ValueKind::MILLIS);
        /// How many rows are read at once; more while a backlog is read.
        batch_size: u32 = 50 => "batch-size": one(ValueKind::AT_LEAST_ONE);
        /// Rows younger than this are left to the process that wrote them.
        skip_recent: Duration = Duration::ZERO => "skip-recent": one(ValueKind::TIME_OR_ZERO);
    }
    setters: Settings.config;
}

/// The settings of a [`Poller`]; [`build`](Settings::build) checks them.
#[derive(Debug, Clone, Default)]
#[must_use = "settings poll nothing"]
pub struct Settings {
    pub(super) config: Config,
    claims: claims::Config,
    pub(super) order: Order,
}

impl Settings {
    /// Claims rows under a generated name, so that several pollers can share the table. A claim older than the
    /// time-out no longer counts. Defaults to claiming nothing.
    pub fn claim_locking(mut self, timeout: Duration) -> Self {
        (self.claims.enabled, self.claims.lock_timeout) = (true, timeout);
        self
    }

    /// [`claim_locking`](Self::claim_locking) under your own name, of at most 128 characters.
    pub fn claim_locking_as(mut self, owner: impl Into<String>, timeout: Duration) -> Self {
        self.claims.owner_id = Some(owner.into());
        self.claim_locking(timeout)
    }

    /// Checks the settings and makes a poller that is not running yet. Store, handler and metrics are required;
    /// the store brings the pool with it.
    pub fn build(
        self,
        store: Arc<dyn Store>,
        handler: impl PollHandler,
        metrics: Arc<telemetry::Outbox>,
    ) -> Result<Poller, Error> {
        let mut faults = Faults::default();
        self.config.check(&mut faults);
        faults.under("claim-locking", |faults| self.claims.check(faults));
        faults.into_result().map_err(|faults| Error::Settings { faults })?;
        let looking = Looking { config: self.config, locking: self.claims.locking(), order: self.order };
        Ok(Poller::new(Cycle::new(store, Arc::new(handler), metrics, looking)))
    }
}

/// How a poller looks at its table.
#[derive(Debug, Clone)]
pub(super) struct Looking {
    pub(super) config: Config,
    pub(super) locking: Option<Locking>,
    pub(super) order: Order,
}

impl Looking {
    /// The poller of an outbox, which feeds its dispatcher.
    pub(super) fn feeding(
        self,
        store: Arc<dyn Store>,
        feed: &Feed,
        wake_others: WakeOthers,
        metrics: Arc<telemetry::Outbox>,
        lag_is_told: Arc<AtomicBool>,
    ) -> Poller {
        let cycle = Cycle::new(store, Arc::new(feed.clone()), metrics, self);
        Poller::new(cycle.feeding(feed, wake_others, lag_is_told))
    }
}

/// How long rows that were just scheduled are gathered before the table is looked at for them.
const GATHER: Duration = Duration::from_millis(10);

/// What a [`Poller`] hands due events to. A function that takes an event and its attempts is one.
pub trait PollHandler: Send + Sync + 'static {
    /// Takes an event and how many attempts have failed. False means that there is no room: the cycle ends,
    /// and the event comes again.
    fn handle(&self, event: Event, attempts: u32, claim: Option<Claim>) -> bool;

    /// The same, told how often the row has been claimed or replayed, and since when it has been due.
    #[doc(hidden)]
    fn handle_row(
        &self,
        event: Event,
        attempts: u32,
        claim: Option<Claim>,
        _generation: i64,
        _due_at: Option<Timestamp>,
    ) -> bool {
        self.handle(event, attempts, claim)
    }

    /// How many events it would take now. If there is no room, the poller does not look at the table.
    fn available_capacity(&self) -> usize {
        usize::MAX
    }

    /// How many due events it holds already: that many more rows are read, so that they do not hide the others.
    fn in_flight(&self) -> usize {
        0
    }

    /// Waits until there is room again, so that a backlog does not wait for the interval. If this method is not
    /// written, it does.
    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Waits until a row is given a later time, which may come before the moment that the poller waits for.
    fn scheduled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

impl<F: Fn(Event, u32) -> bool + Send + Sync + 'static> PollHandler for F {
    fn handle(&self, event: Event, attempts: u32, _claim: Option<Claim>) -> bool {
        self(event, attempts)
    }
}

impl PollHandler for Feed {
    fn handle(&self, event: Event, attempts: u32, claim: Option<Claim>) -> bool {
        let generation = claim.as_ref().map_or(0, |claim| claim.seq);
        self.handle_row(event, attempts, claim, generation, None)
    }

    fn handle_row(
        &self,
        event: Event,
        attempts: u32,
        claim: Option<Claim>,
        generation: i64,
        due_at: Option<Timestamp>,
    ) -> bool {
        let id = event.id().to_owned();
        let (claimed, generation) = (claim.clone(), Some(generation));
        let queued = Queued { claim: claimed, generation, due_at, ..Queued::cold(event, attempts) };
        let offer = self.offer_cold(queued);
        // A row that we took again while we still hold it: whoever is free may have it when it is due.
        if let (Offer::Duplicate, Some(claim)) = (offer, claim) {
            self.leases().ledger().disown(id, claim);
        }
        offer != Offer::Refused
    }

    fn available_capacity(&self) -> usize {
        self.cold_wanted()
    }

    fn in_flight(&self) -> usize {
        self.leases().in_flight()
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.room_freed())
    }

    fn scheduled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.leases().scheduled().notified())
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
///     println!("{} after {attempts} attempts", event.id());
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
    /// Whether other nodes' wake-ups are heard.
    hears: Arc<AtomicBool>,
    lifecycle: Lifecycle,
}

impl Poller {
    fn new(cycle: Cycle) -> Self {
        Self {
            cycle: Arc::new(Mutex::new(cycle)),
            nudged: Arc::default(),
            hears: Arc::default(),
            lifecycle: Lifecycle::default(),
        }
    }

    /// Polls in the background from now on, at once and then at the interval. Starting again has no effect;
    /// starting after [`close`](Self::close) is an error.
    pub fn start(&self) -> Result<(), Error> {
        let (cycle, nudged, hears) = (self.cycle.clone(), self.nudged.clone(), self.hears.clone());
        let started = self.lifecycle.start(move |shutdown| poll_until(shutdown, nudged, hears, cycle));
        let closed = Error::State("the poller was closed and cannot be started again: build a new one");
        started.then_some(()).ok_or(closed)
    }

    /// Polls once, from the first due row on. After [`close`](Self::close) it does nothing.
    pub async fn poll(&self) -> Result<(), Error> {
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        let mut cycle = self.cycle.lock().await;
        cycle.start_over();
        cycle.run().await.map(drop)
    }

    /// Wakes the background loop: there is something to find.
    pub fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// What wakes the background loop, for those who make rows due.
    pub(super) fn nudged(&self) -> Arc<Notify> {
        self.nudged.clone()
    }

    /// Set while other nodes' wake-ups are heard: then there is no need to look more often than told.
    pub(super) fn hears(&self) -> Arc<AtomicBool> {
        self.hears.clone()
    }

    /// Stops polling, after the cycle that is under way. Closing again has no effect; if the caller stops waiting,
    /// the next call waits for that cycle.
    pub async fn close(&self) {
        self.lifecycle.close("poller").await;
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("lifecycle", &self.lifecycle).finish_non_exhaustive()
    }
}

async fn poll_until(
    shutdown: Shutdown,
    nudged: Arc<Notify>,
    hears: Arc<AtomicBool>,
    cycle: Arc<Mutex<Cycle>>,
) {
    let (mut rest, leases, handler, held) = {
        let cycle = cycle.lock().await;
        let rest = Rest::new(cycle.looking.config.interval);
        (rest, cycle.leases.clone(), cycle.handler.clone(), cycle.held())
    };
    let held_changed = async || match &held {
        Some(held) => held.changed().await,
        None => std::future::pending().await,
    };
    // Asked before the first look, so that what becomes due after it is known of.
    let _ = cycle.lock().await.next_due().await;
    while !shutdown.has_begun() {
        // A cycle is not interrupted: what it claimed must be handed over or released.
        let next = look(&mut *cycle.lock().await, &mut rest).await;
        if next == Next::Again {
            continue;
        }
        let woken = async {
            tokio::select! {
                () = nudged.notified() => {}
                () = leases.disowned() => {}
                () = held_changed() => {}
                () = handler.room(), if next == Next::WhenThereIsRoom => {}
                // Many rows that are deferred at once ask for one look, not for one each.
                () = handler.scheduled() => tokio::time::sleep(GATHER).await,
            }
        };
        tokio::pin!(woken);
        if let Some(pause) = rest.after_failure() {
            let _ = shutdown.interrupts(timeout(pause, nudged.notified())).await;
            continue;
        }
        // A loop that is woken again and again need not ask each time when it must wake by itself.
        let awake = shutdown.interrupts(timeout(GATHER.min(rest.longest()), &mut woken)).await;
        if matches!(awake, Some(Err(_))) {
            let ahead = cycle.lock().await.next_due().await;
            let probe = held.as_ref().and_then(HeldRoutes::next_probe);
            let ahead = [ahead, probe].into_iter().flatten().min();
            let length = rest.length(ahead, hears.load(Ordering::Acquire));
            let _ = shutdown.interrupts(timeout(length, woken)).await;
        }
    }
}

/// Looks at the table once. What goes wrong is told, and tried again.
async fn look(cycle: &mut Cycle, rest: &mut Rest) -> Next {
    match AssertUnwindSafe(cycle.run()).catch_unwind().await {
        Ok(Ok((next, found))) => {
            rest.after_a_look(found);
            next
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot look for due events; trying again soon, then at growing intervals");
            rest.failed();
            Next::Rest
        }
        Err(panic) => {
            let failure = panicked("a part of the poller", &*panic);
            tracing::error!(%failure, "cannot look for due events; trying again soon, then at growing intervals");
            rest.failed();
            Next::Rest
        }
    }
}
