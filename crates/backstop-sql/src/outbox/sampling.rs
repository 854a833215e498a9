//! What waits, by route: a sample of the table at an interval, whatever the poller does, and what is known of each route.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_core::inspect::{Count, Route};
use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Clock, Shutdown, SystemClock, Timestamp, look, telemetry};

use crate::Error;
use crate::outbox::HeldRoutes;
use crate::routes::registry::Registry;
use crate::store::{At, Sample, Status, Store};

/// Of each status so many rows are counted at most. They are read by an index, but each is fetched from the table for its
/// types, so this is far fewer than a plain count may go through.
const CAP: u32 = 10_000;

/// How long to wait for the first sample, so that a start is not held up by it, and then between two.
const FIRST: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(15);

/// A table where a sample takes long is sampled less often: it may cost a hundredth of the time, but comes at least so often.
const COST: u32 = 100;
const LONGEST: Duration = Duration::from_mins(5);

/// So many routes have metrics of their own. Those of the others are one.
const MOST_ROUTES: usize = 200;

/// The routes that have none of their own.
const OTHERS: &str = "others";
/// What no handler is for.
const NO_HANDLER: &str = "no handler";

/// Makes the metrics of a route of that name.
pub(super) type Register = Box<dyn Fn(&str) -> telemetry::Route + Send + Sync>;

/// Samples for everybody who wants to know: the loop of an outbox, and those who look at it. Never two at once.
pub(super) struct Sampling {
    store: Arc<dyn Store>,
    held: HeldRoutes,
    metrics: Arc<telemetry::Outbox>,
    register: Register,
    routes: Mutex<HashMap<String, Arc<telemetry::Route>>>,
    /// Set once a sample has told the lag, which the poller knows only in part.
    tells_lag: Arc<AtomicBool>,
    last: look::Shared<Vec<Route>>,
}

impl Sampling {
    pub(super) fn new(
        store: Arc<dyn Store>,
        held: HeldRoutes,
        metrics: Arc<telemetry::Outbox>,
        register: Register,
        tells_lag: Arc<AtomicBool>,
    ) -> Self {
        let (routes, last) = (Mutex::default(), look::Shared::default());
        Self { store, held, metrics, register, routes, tells_lag, last }
    }

    /// The routes, with how many events wait on each and why they do. As of the last sample, if that is still good.
    pub(super) async fn routes(&self) -> Result<Vec<Route>, Error> {
        let mut routes = self.last.ask(look::timed(self.sample())).await?;
        // Why a route waits costs nothing to know, and changes at any moment.
        for route in &mut routes {
            route.paused = self.held.paused(&route.name);
        }
        Ok(routes)
    }

    async fn sample(&self) -> Result<Vec<Route>, Error> {
        let sample = self.store.sample(At::Database, CAP).await.inspect_err(|_| {
            self.metrics.sample_failed.increment();
        })?;
        let Some(sample) = sample else { return Ok(Vec::new()) };
        self.metrics.sample_capped.set(u64::from(!sample.capped.is_empty()));
        let oldest = sample.kinds.iter().filter_map(|kind| kind.waited).max();
        self.tells_lag.store(true, Ordering::Release);
        self.metrics.lag_oldest_ms.set(millis(oldest));
        let counted = Counted::by_route(&sample, self.held.registry());
        self.show(&counted);
        Ok(counted.into_iter().map(|(name, counted)| counted.reported(name, &sample)).collect())
    }

    /// Sets the gauges of all routes, also of those that have no events any more.
    fn show(&self, counted: &[(String, Counted)]) {
        let mut shown = HashMap::<&str, Counted>::new();
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, counted) in counted {
            let known = routes.contains_key(name) || routes.len() < MOST_ROUTES;
            let name = if known { name } else { OTHERS };
            routes.entry(name.to_owned()).or_insert_with(|| Arc::new((self.register)(name)));
            shown.entry(name).or_default().add(counted);
        }
        for (name, route) in &*routes {
            let Counted { waiting, retrying, dead, waited, .. } =
                shown.remove(name.as_str()).unwrap_or_default();
            route.waiting.set(waiting);
            route.retrying.set(retrying);
            route.dead.set(dead);
            route.oldest_ms.set(millis(waited));
            route.available.set(u64::from(self.held.paused(name).is_none()));
        }
    }
}

/// The loop that samples at an interval, whether or not anybody looks.
#[derive(Default)]
pub(super) struct Sampler {
    lifecycle: Lifecycle,
}

impl Sampler {
    pub(super) fn start(&self, sampling: Arc<Sampling>) {
        // Closed already: there is nothing to sample for.
        let _ = self.lifecycle.start(move |shutdown| sample_until(shutdown, sampling));
    }

    /// Stops sampling. A sample that is under way is given up: it changes nothing.
    pub(super) async fn close(&self) {
        self.lifecycle.close("sampler").await;
    }
}

async fn sample_until(shutdown: Shutdown, sampling: Arc<Sampling>) {
    let mut pause = FIRST;
    while shutdown.interrupts(tokio::time::sleep(pause)).await.is_some() {
        let began = SystemClock.ticks();
        // A task of its own: a store of somebody's own may panic, and that must not end sampling unseen.
        let sampled = {
            let sampling = sampling.clone();
            let mut sample = tokio::spawn(async move { sampling.routes().await });
            let sampled = shutdown.interrupts(&mut sample).await;
            sample.abort();
            sampled
        };
        match sampled {
            None | Some(Ok(Ok(_))) => {}
            // The poller says it loud enough.
            Some(Ok(Err(error))) => {
                tracing::debug!(%error, "cannot sample the table; trying again at the next interval");
            }
            Some(Err(_)) => {
                tracing::error!("the store panicked while it was sampled; trying again at the next interval");
            }
        }
        pause = pause_after(SystemClock.ticks().since(began));
    }
}

fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(COST).clamp(INTERVAL, LONGEST)
}

/// What a sample found of a route.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    waiting: u64,
    retrying: u64,
    dead: u64,
    oldest_due: Option<Timestamp>,
    waited: Option<Duration>,
}

impl Counted {
    /// Of all routes, by their names, with those that have no events; and of what no handler is for, if there is any.
    fn by_route(sample: &Sample, registry: &Registry) -> Vec<(String, Self)> {
        let mut routes: Vec<_> = registry.names().into_iter().map(|name| (name, Self::default())).collect();
        let mut places: HashMap<_, _> =
            routes.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        for kind in &sample.kinds {
            let route = registry.route(&kind.aggregate_type, &kind.event_type);
            let name = route.map_or_else(|| NO_HANDLER.to_owned(), |route| route.name.to_string());
            let place = *places.entry(name.clone()).or_insert_with(|| {
                routes.push((name, Self::default()));
                routes.len() - 1
            });
            let mut found = Self { oldest_due: kind.oldest_due, waited: kind.waited, ..Self::default() };
            match kind.status {
                Status::New => found.waiting = kind.events,
                Status::Retry => found.retrying = kind.events,
                Status::Dead => found.dead = kind.events,
                Status::Done => {}
            }
            routes[place].1.add(&found);
        }
        routes
    }

    fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.retrying += other.retrying;
        self.dead += other.dead;
        self.oldest_due = [self.oldest_due, other.oldest_due].into_iter().flatten().min();
        self.waited = self.waited.max(other.waited);
    }

    fn reported(self, name: String, sample: &Sample) -> Route {
        let count = |events, status| Count { events, capped: sample.capped.contains(&status) };
        Route {
            name,
            waiting: count(self.waiting, Status::New),
            retrying: count(self.retrying, Status::Retry),
            dead: count(self.dead, Status::Dead),
            oldest_due: self.oldest_due,
            paused: None,
        }
    }
}

fn millis(span: Option<Duration>) -> u64 {
    span.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_costs_a_hundredth_of_the_time_and_comes_at_least_every_five_minutes() {
        let pauses = [0, 150, 151, 2_000, u64::MAX].map(|took| pause_after(Duration::from_millis(took)));
        assert_eq!(pauses.map(|pause| pause.as_millis()), [15_000, 15_000, 15_100, 200_000, 300_000]);
    }
}
