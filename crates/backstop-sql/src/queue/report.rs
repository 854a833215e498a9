//! What an operator sees of a queue, and the samples behind it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use backstop_core::inspect::{Count, Flow, Health, Place, Report, Route, Times, Troubled};
use backstop_core::lifecycle::Lifecycle;
use backstop_core::{Clock, Shutdown, SystemClock, look, telemetry};

use super::Inner;
use super::config::Config;
use super::operations::COUNT_CAP;
use super::table::{Census, Filter, Listed, Sampled, Status, Tables};
use super::worker::Running;
use crate::Error;
use crate::database::At;
use crate::routes::held::HeldRoutes;

/// So many events are read at most to tell how many of each type wait.
const SAMPLE_CAP: u32 = 10_000;
const TROUBLED: u32 = 50;

const FIRST: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(15);

/// A table where a look takes long is looked at less often: it may cost a hundredth of the time.
const COST: u32 = 100;
const LONGEST: Duration = Duration::from_mins(5);

/// What no handler is for.
const NO_HANDLER: &str = "no handler";

pub(super) struct Reporter {
    name: String,
    timeout: Duration,
    tables: Tables,
    metrics: Arc<telemetry::Queue>,
    last: look::Shared<Look>,
}

/// What a look at the tables found.
#[derive(Clone)]
struct Look {
    census: Census,
    sampled: Vec<Sampled>,
    troubled: Vec<Troubled>,
}

impl Reporter {
    pub(super) fn new(config: &Config, tables: Tables, metrics: Arc<telemetry::Queue>) -> Self {
        let (name, timeout) = (config.name.clone(), config.abandoned_timeout);
        Self { name, timeout, tables, metrics, last: look::Shared::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn report(&self, worker: Option<&Running>) -> Report {
        let flows = self.flows();
        let times = worker.map_or_else(Vec::new, |_| self.times());
        match self.look().await {
            Ok(Look { census, sampled, troubled }) => Report {
                places: places(&census),
                flows,
                troubled,
                routes: worker.map_or_else(Vec::new, |worker| routes(&sampled, worker.routes())),
                times,
                ..Report::of("queue", &self.name, health(worker))
            },
            Err(error) => {
                let health = Health::Down(format!("the tables cannot be read: {error}"));
                Report { flows, times, ..Report::of("queue", &self.name, health) }
            }
        }
    }

    async fn look(&self) -> Result<Look, Error> {
        self.last.ask(look::timed(self.look_now())).await
    }

    async fn look_now(&self) -> Result<Look, Error> {
        let looked = async {
            let census = self.tables.census(At::Database, self.timeout, COUNT_CAP).await?;
            let sampled = self.tables.sample(SAMPLE_CAP).await?;
            let stuck = self.tables.stuck(At::Database, self.timeout, TROUBLED).await?;
            let failed = self.tables.list(Status::Failed, &Filter::default(), TROUBLED).await?;
            let mut troubled: Vec<_> = stuck.iter().map(|listed| troubled(listed, "stuck")).collect();
            troubled.extend(failed.iter().map(|listed| self::troubled(listed, "failed")));
            troubled.truncate(TROUBLED as usize);
            Ok(Look { census, sampled, troubled })
        };
        let look = looked.await.inspect_err(|_: &Error| self.metrics.sample_failed.increment())?;
        let Census { pending, processing, stuck, oldest, .. } = &look.census;
        self.metrics.waiting.set(pending.events);
        self.metrics.processing.set(processing.events);
        self.metrics.stuck.set(stuck.events);
        let millis = oldest.map_or(0, |oldest| u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX));
        self.metrics.oldest_ms.set(millis);
        Ok(look)
    }

    fn times(&self) -> Vec<Times> {
        vec![
            Times::of(
                "waiting",
                "From an event's publication until its handler is called.",
                &self.metrics.waiting_time,
            ),
            Times::of("handling", "Each call of a handler.", &self.metrics.handling),
        ]
    }

    fn flows(&self) -> Vec<Flow> {
        let metrics = &self.metrics;
        let flow = |name, meaning, total| Flow { name, meaning, total };
        vec![
            flow("published", "Published by this process.", metrics.published.total()),
            flow("completed", "Handled, and moved to the log.", metrics.completed.total()),
            flow("failed", "Given up, and moved to the log with the reason.", metrics.failed.total()),
            flow("retried", "Failed, and will be tried again.", metrics.retried.total()),
            flow("deferred", "Deferred by the handler.", metrics.deferred.total()),
            flow("taken over", "Taken over from a worker that died.", metrics.taken_over.total()),
            flow("given back", "Set back because the worker stopped.", metrics.given_back.total()),
            flow("late", "Results that came too late, and were ignored.", metrics.late.total()),
            flow("requeued", "Set back by an operator.", metrics.requeued.total()),
            flow("purged", "Deleted from the log, older than the retention.", metrics.purge.total()),
        ]
    }
}

fn health(worker: Option<&Running>) -> Health {
    let Some(worker) = worker else { return Health::Up };
    if let Some(error) = worker.failing() {
        return Health::Down(format!("events cannot be taken: {error}"));
    }
    match worker.trouble() {
        Some((events, error)) => Health::Degraded(format!(
            "{events} results cannot be recorded, and their events would be handled again; trying again: {error}"
        )),
        None => worker.routes().told().map_or(Health::Up, Health::Degraded),
    }
}

fn places(census: &Census) -> Vec<Place> {
    let place = |name, meaning, count| Place { name, meaning, count };
    vec![
        place("waiting", "Published, and waiting for a worker or for its time.", census.pending),
        place("processing", "In the hands of a worker, here or elsewhere.", census.processing),
        place("stuck", "In the hands of a worker that died; the next free one takes it over.", census.stuck),
        place("failed", "Given up. Nothing happens until somebody requeues it.", census.failed),
        place("completed", "Handled; kept in the log until it is purged.", census.completed),
    ]
}

fn troubled(listed: &Listed, place: &'static str) -> Troubled {
    Troubled {
        id: listed.id.to_string(),
        event_type: listed.event_type.clone().unwrap_or_default(),
        aggregate_type: String::new(),
        aggregate_id: None,
        place,
        attempts: listed.attempts,
        error: listed.error.clone(),
        occurred_at: listed.created_at,
        next_attempt_at: listed.available_at,
    }
}

/// How many events wait on each route, with those on which none does.
fn routes(sampled: &[Sampled], held: &HeldRoutes<i64>) -> Vec<Route> {
    let registry = held.registry();
    let none = Count::exactly(0);
    let route = |name: String| Route {
        name,
        waiting: none,
        retrying: none,
        dead: none,
        oldest_due: None,
        paused: None,
    };
    let mut routes: Vec<_> = registry.names().into_iter().map(route).collect();
    let capped = sampled.iter().map(|it| it.waiting).sum::<u64>() >= u64::from(SAMPLE_CAP);
    for Sampled { event_type, waiting, oldest } in sampled {
        let found = registry.route("", event_type.as_deref().unwrap_or_default());
        let name = found.map_or_else(|| NO_HANDLER.to_owned(), |found| found.name.to_string());
        let place = routes.iter().position(|route| route.name == name).unwrap_or_else(|| {
            routes.push(route(name));
            routes.len() - 1
        });
        let it = &mut routes[place];
        it.waiting = Count { events: it.waiting.events + waiting, capped };
        it.oldest_due = [it.oldest_due, *oldest].into_iter().flatten().min();
    }
    for route in &mut routes {
        route.paused = held.paused(&route.name);
    }
    routes
}

/// The loop that looks at an interval, whether or not anybody asks.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    lifecycle: Lifecycle,
}

impl Sampler {
    pub(super) fn start(&self, inner: &Arc<Inner>) {
        let inner = Arc::downgrade(inner);
        let _ = self.lifecycle.start(move |shutdown| sample_until(shutdown, inner));
    }

    pub(super) async fn close(&self) {
        self.lifecycle.close("sampler").await;
    }
}

async fn sample_until(shutdown: Shutdown, inner: Weak<Inner>) {
    let mut pause = FIRST;
    while shutdown.interrupts(tokio::time::sleep(pause)).await.is_some() {
        let Some(inner) = inner.upgrade() else { return };
        let began = SystemClock.ticks();
        if let Some(Err(error)) = shutdown.interrupts(Box::pin(inner.reporter.look())).await {
            tracing::debug!(%error, "cannot sample the tables; trying again at the next interval");
        }
        pause = SystemClock.ticks().since(began).saturating_mul(COST).clamp(INTERVAL, LONGEST);
    }
}
