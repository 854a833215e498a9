//! The dispatcher: workers that take events, run their handlers and pass on the results.

mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::calling::call;
use backstop_core::delivery::{Settlement, decide};
use backstop_core::interceptor::Interceptors;
use backstop_core::retry::{Jitter, Retry};
use backstop_core::{Clock, Delivery, Event, Failure, Outcome, SystemClock, telemetry};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::claims::Renewer;
use super::feed::{Feed, Limits, Offer, Queued, Queues, Source, Waiting};
use super::lease::{Lease, Leases};
use super::ledger::Readiness;
use super::settler::{self, Settled, Settler};
use crate::Error;
use crate::burials::Burials;
use crate::outbox::HeldRoutes;
use crate::routes::registry::Registry;
use crate::store::Store;

pub(crate) use settings::unfailing;
pub use settings::{Config, Settings};

/// How long `close` still waits when the drain time-out is over: for aborted handlers, and for the results of the
/// others to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs handlers: events wait in a hot and a cold queue, workers take two hot ones for each cold one, and the results
/// are written in batches.
///
/// Part of an [`Outbox`](super::Outbox); also usable alone, as here with rows fed by hand:
///
/// ```
/// use std::sync::Arc;
/// use backstop_core::{Event, telemetry};
/// use backstop_sql::{TableName, outbox::{Queued, Registry, dispatcher}, store::{SqlStore, Store}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = backstop_testkit::servers::directory();
/// # let pool = backstop_sql::sqlite::open(directory.file("orders.db")).await?;
/// let store: Arc<dyn Store> = Arc::new(SqlStore::on(pool, TableName::default()));
/// store.migrate().await?;
/// let registry = Registry::new();
/// registry.register("Order", "OrderPlaced", |_: Event| async {})?;
///
/// let metrics = Arc::new(telemetry::Outbox::new("outbox"));
/// let dispatcher = dispatcher::Settings::default().worker_count(8).start(store, registry, metrics)?;
/// let event = Event::of("OrderPlaced").aggregate("Order", "1").json(&())?;
/// assert!(dispatcher.enqueue(Queued::cold(event, 0)));
/// dispatcher.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Dispatcher {
    feed: Feed,
    store: Arc<dyn Store>,
    renewer: Option<Arc<Renewer>>,
    running: Arc<Mutex<Option<Running>>>,
    drain_timeout: Duration,
}

struct Running {
    workers: JoinSet<()>,
    settler: Settler,
}

impl Dispatcher {
    fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        registry: Registry,
        metrics: Arc<telemetry::Outbox>,
    ) -> Self {
        let config = settings.config;
        let (hot, cold, bytes) = (config.hot_queue_capacity, config.cold_queue_capacity, config.queue_bytes);
        let queues = Queues::new(Limits { hot, cold, bytes });
        let leases = Leases::new(settings.tracker, settings.terms);
        let held = HeldRoutes::new(registry.clone(), settings.strict_order);
        let feed = Feed::new(queues, leases.clone(), held, metrics.clone());
        let renew = |terms| Arc::new(Renewer::new(store.clone(), leases, terms));
        let renewer = settings.terms.map(renew);
        let delivering = Arc::new(Delivering {
            registry,
            retry: Retry { max_attempts: config.max_attempts, policy: settings.policy },
            interceptors: settings.interceptors,
            burials: settings.burials,
            component: settings.component,
            renewer: renewer.clone(),
            metrics: metrics.clone(),
        });
        let settler = Settler::start(store.clone(), feed.clone(), metrics, settings.strict_order);
        let mut workers = JoinSet::new();
        for _ in 0..config.worker_count {
            workers.spawn(work(feed.clone(), delivering.clone(), settler.sender()));
        }
        let running = Arc::new(Mutex::new(Some(Running { workers, settler })));
        Self { feed, store, renewer, running, drain_timeout: config.drain_timeout }
    }

    /// What renews the claims of its events, where rows are claimed.
    pub(super) fn renewer(&self) -> Option<Arc<Renewer>> {
        self.renewer.clone()
    }

    /// Queues an event. False when its queue is full or the dispatcher is closing: the event stays in the
    /// table. An event that is in flight already is dropped, since its delivery is under way.
    pub fn enqueue(&self, queued: Queued) -> bool {
        let offer = match queued.source {
            Source::Hot if queued.event.is_delayed() => {
                self.feed.note_delayed();
                Offer::Refused
            }
            Source::Hot => {
                match self.feed.leases().take(queued.event.id(), Source::Hot, queued.claim.as_ref()) {
                    Some(lease) => self.feed.offer_hot(&queued.event, queued.claim, lease),
                    None => Offer::Duplicate,
                }
            }
            Source::Cold => self.feed.offer_cold(queued),
        };
        offer != Offer::Refused
    }

    /// How many more events the cold queue takes.
    pub fn cold_queue_remaining_capacity(&self) -> usize {
        self.feed.cold_room()
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Stops taking events, lets the workers drain the queues within the drain time-out, then writes the results.
    /// Handlers that are not finished by then are aborted, and their events stay in the table. Closing again has no
    /// effect; if the caller stops waiting, closing goes on by itself, and the next call waits for it.
    pub async fn close(&self) -> Result<(), Error> {
        self.feed.queues.close();
        self.feed.gate().close();
        let closing = Closing {
            feed: self.feed.clone(),
            store: self.store.clone(),
            running: self.running.clone(),
            drain_timeout: self.drain_timeout,
        };
        let closed = tokio::spawn(closing.close()).await;
        closed.unwrap_or(Err(Error::State("closing the dispatcher was interrupted")))
    }
}

/// One worker: an event at a time, from the queue to its settlement.
async fn work(feed: Feed, delivering: Arc<Delivering>, settled: settler::Sender) {
    while let Some(Waiting { queued, lease }) = feed.next().await {
        // Nothing is written: it waits in the table, like the others of its route.
        if !queued.probe && feed.held().keeps(&queued.event) {
            lease.abandon();
            continue;
        }
        if !delivering.may_begin(&queued, &lease).await {
            feed.held().probe_lost(&queued);
            lease.abandon();
            continue;
        }
        let answer = delivering.deliver(&queued).await;
        let Some(answer) = delivering.unless_held(feed.held(), &queued, answer) else {
            lease.abandon();
            continue;
        };
        let settlement = delivering.decide(&queued, answer);
        delivering.bury_if_dead(&queued, &lease, &settlement).await;
        settled.send(Settled::new(queued, settlement, lease)).await;
    }
}

/// What workers share: whom an event goes to, what runs around it, and when a failed one is tried again.
struct Delivering {
    component: Arc<str>,
    registry: Registry,
    retry: Retry,
    interceptors: Interceptors,
    burials: Arc<Burials>,
    renewer: Option<Arc<Renewer>>,
    metrics: Arc<telemetry::Outbox>,
}

impl Delivering {
    /// Whether an event is still this node's, and will be while it is handled: another node may have had the table since it
    /// was taken, or have the event by now, and only one would be allowed to settle it.
    async fn may_begin(&self, queued: &Queued, lease: &Lease) -> bool {
        let mut readiness = lease.readiness();
        if let (Readiness::NotForLong(claim), Some(renewer)) = (&readiness, &self.renewer) {
            renewer.renew_now(claim.clone()).await;
            readiness = lease.readiness();
        }
        if matches!(readiness, Readiness::NotForLong(_) | Readiness::RunOut) {
            tracing::warn!(
                event_id = queued.event.id(),
                "the claim of an event ran out while it waited, or cannot be renewed; it is left to the node that claims it next"
            );
        }
        readiness == Readiness::Ready
    }

    async fn deliver(&self, queued: &Queued) -> Result<Outcome, Failure> {
        let event = &queued.event;
        let (entered, ready) = self.interceptors.before(event);
        let answer = match ready {
            Ok(()) => self.route_and_call(queued).await,
            Err(failure) => Err(failure),
        };
        self.interceptors.after(entered, event, answer.as_ref().err());
        answer
    }

    /// The answer, unless it leaves the event as it is, with no attempt counted, because its route is held.
    fn unless_held(
        &self,
        held: &HeldRoutes,
        queued: &Queued,
        answer: Result<Outcome, Failure>,
    ) -> Option<Result<Outcome, Failure>> {
        let event = &queued.event;
        let Some(route) = self.registry.route(event.aggregate_type(), event.event_type()) else {
            held.probe_lost(queued);
            return Some(answer);
        };
        let answer = held.answered(&route, queued, answer);
        self.metrics.dispatch_held.add(u64::from(answer.is_none()));
        answer
    }

    fn decide(&self, queued: &Queued, answer: Result<Outcome, Failure>) -> Settlement {
        decide(&self.retry, queued.attempts, answer, Jitter::random())
    }

    /// Before the row says DEAD: a crash in between writes another letter, and never none. Where the event is another
    /// node's by now, that one delivers it.
    async fn bury_if_dead(&self, queued: &Queued, lease: &Lease, settlement: &Settlement) {
        if let Settlement::Dead { error } = settlement
            && lease.stands()
            && !lease.has_run_out()
        {
            let attempts = queued.attempts.saturating_add(1);
            self.burials.bury(&queued.event, attempts, error, &self.metrics.letter_failed).await;
        }
    }

    async fn route_and_call(&self, queued: &Queued) -> Result<Outcome, Failure> {
        let event = &queued.event;
        let Some(route) = self.registry.route(event.aggregate_type(), event.event_type()) else {
            return Err(unroutable(event));
        };
        let delivery = Delivery::on_its_way(event.clone(), &self.component, &route.name)
            .attempt(queued.attempts.saturating_add(1));
        self.metrics.dispatch_wait.record(queued.waited(SystemClock.now()));
        let began = SystemClock.ticks();
        let answer = call(&route.handler, delivery).await;
        self.metrics.dispatch_duration.record(SystemClock.ticks().since(began));
        route.answered(event.id(), &answer);
        answer
    }
}

fn unroutable(event: &Event) -> Failure {
    let (aggregate, kind) = (event.aggregate_type(), event.event_type());
    Failure::permanent(
        "unroutable",
        format!("no handler is registered for aggregate type {aggregate}, event type {kind}"),
    )
}

/// What it takes to close a dispatcher, even if nobody waits for it any more.
struct Closing {
    feed: Feed,
    store: Arc<dyn Store>,
    running: Arc<Mutex<Option<Running>>>,
    drain_timeout: Duration,
}

impl Closing {
    async fn close(self) -> Result<(), Error> {
        // Locked to the end, so that a second call waits for the first.
        let mut running = self.running.lock().await;
        let Some(Running { mut workers, settler }) = running.take() else { return Ok(()) };
        let began = Instant::now();
        let drained = timeout(self.drain_timeout, all_ended(&mut workers)).await.is_ok();
        if !drained {
            let (hot, cold) = self.feed.queues.depths();
            let running = workers.len();
            tracing::warn!(
                running,
                hot,
                cold,
                "handlers did not finish in time; their events stay in the table"
            );
            workers.abort_all();
            // A handler that blocks its thread cannot be aborted, and is not waited for.
            let _ = timeout(LAST_WORDS, all_ended(&mut workers)).await;
        }
        let left = self.drain_timeout.saturating_sub(began.elapsed());
        let written = settler.close(left.max(LAST_WORDS)).await;
        self.give_claims_back().await;
        if drained && written { Ok(()) } else { Err(Error::Drain(self.drain_timeout)) }
    }

    /// Gives back claims on events that were not handled, so that any node can take them at once.
    async fn give_claims_back(&self) {
        let rows = self.feed.leases().ledger().take_all_claims();
        if rows.is_empty() {
            return;
        }
        match timeout(LAST_WORDS, self.store.release(&rows)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, claims = rows.len(), "cannot give claims back; they run out by themselves");
            }
            Err(_) => tracing::warn!(
                claims = rows.len(),
                "claims were not given back in time; they run out by themselves"
            ),
        }
    }
}

async fn all_ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("depths", &self.feed.queues.depths()).finish_non_exhaustive()
    }
}
