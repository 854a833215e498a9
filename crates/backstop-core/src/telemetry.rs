//! Every metric: its name, its kind, what it means. The only place that registers one.
//!
//! Names are dotted; Prometheus shows the dots as underscores. Several components of one kind in a process share the names
//! and differ by a label: the component's name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder};

use crate::target;

/// A metric as the reference documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name after the prefix.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// One sentence for the reader of a dashboard.
    pub help: &'static str,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the process runs.
    Counter,
    /// Shows the current value.
    Gauge,
    /// Counts how long something took, in seconds, by [`BUCKETS`].
    Histogram,
}

impl MetricKind {
    /// The upper bounds of the buckets, in seconds; none if it is not a histogram.
    pub fn buckets(self) -> Option<&'static [f64]> {
        match self {
            Self::Histogram => Some(&BUCKETS),
            Self::Counter | Self::Gauge => None,
        }
    }
}

/// The upper bounds of every histogram's buckets, in seconds: from a call within one machine to an event that had to wait for
/// its target.
pub const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Every metric, by the component it belongs to and that component's default prefix.
pub fn catalogue() -> [(&'static str, &'static [Metric]); 5] {
    [
        (Outbox::DEFAULT_PREFIX, &OUTBOX),
        (Route::DEFAULT_PREFIX, &ROUTE),
        (Queue::DEFAULT_PREFIX, &QUEUE),
        (Target::DEFAULT_PREFIX, &TARGET),
        (Dlq::DEFAULT_PREFIX, &DLQ),
    ]
}

/// A counter that is exported and can also be read back, for the dashboard and for conservation checks.
#[derive(Debug)]
pub struct Counter {
    exported: metrics::Counter,
    total: AtomicU64,
}

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.exported.increment(count);
        self.total.fetch_add(count, Ordering::Relaxed);
    }

    /// The total since the process began.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// A gauge that is exported and can also be read back.
#[derive(Debug)]
pub struct Gauge {
    exported: metrics::Gauge,
    value: AtomicU64,
}

impl Gauge {
    /// Shows `value` from now on.
    #[expect(clippy::cast_precision_loss, reason = "gauges are f64; depths and lags stay far below 2^52")]
    pub fn set(&self, value: u64) {
        self.exported.set(value as f64);
        self.value.store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// A histogram of durations that is exported. How many it holds in each bucket can also be read back.
#[derive(Debug)]
pub struct Histogram {
    exported: metrics::Histogram,
    /// By [`BUCKETS`], and one more for what took longer.
    counts: [AtomicU64; BUCKETS.len() + 1],
}

impl Histogram {
    /// Adds something that took this long.
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.exported.record(seconds);
        let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were recorded since the process began.
    pub fn count(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// How many were recorded in each of [`BUCKETS`] since the process began, and in one more for what took longer.
    pub fn counts(&self) -> [u64; BUCKETS.len() + 1] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Declares a component's metrics once: the fields, the catalogue and the registration follow from it.
macro_rules! component {
    (
        $(#[$doc:meta])*
        $component:ident, $all:ident, prefix $prefix:literal,
        $($field:ident: $kind:ident $name:literal, $help:literal;)*
    ) => {
        const $all: [Metric; [$($name),*].len()] =
            [$(Metric { name: $name, kind: MetricKind::$kind, help: $help }),*];

        $(#[$doc])*
        #[derive(Debug)]
        pub struct $component {
            prefix: String,
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl $component {
            /// The prefix unless another is given.
            pub const DEFAULT_PREFIX: &'static str = $prefix;

            /// Registers the metrics with your own recorder.
            pub fn with_recorder(prefix: impl Into<String>, recorder: &dyn Recorder) -> Self {
                Self::labelled(prefix, &[], recorder)
            }

            /// The prefix in front of every name.
            pub fn prefix(&self) -> &str {
                &self.prefix
            }

            fn labelled(prefix: impl Into<String>, labels: &[Label], recorder: &dyn Recorder) -> Self {
                let prefix = prefix.into();
                Self { $($field: $kind::register(recorder, &prefix, $name, labels, $help),)* prefix }
            }
        }
    };
}

component! {
    /// What an outbox counts.
    ///
    /// ```
    /// use backstop_core::telemetry::Outbox;
    ///
    /// let orders = Outbox::new("orders.outbox"); // exported as orders.outbox.dispatch.success, …
    /// orders.dispatch_success.increment();
    /// assert_eq!(orders.dispatch_success.total(), 1);
    /// ```
    Outbox, OUTBOX, prefix "outbox",
    enqueue_hot: Counter "enqueue.hot", "Events enqueued right after their transaction committed.";
    enqueue_hot_dropped: Counter "enqueue.hot.dropped", "Events the hot queue refused; the poller delivers them.";
    enqueue_hot_skipped_delayed: Counter "enqueue.hot.skipped.delayed", "Delayed events, which do not take the hot path.";
    enqueue_cold: Counter "enqueue.cold", "Events the poller enqueued.";
    dispatch_success: Counter "dispatch.success", "Events handled.";
    dispatch_failure: Counter "dispatch.failure", "Events that failed and will be tried again.";
    dispatch_dead: Counter "dispatch.dead", "Events given up and buried.";
    dispatch_deferred: Counter "dispatch.deferred", "Events that their handler deferred; no attempt is counted.";
    dispatch_held: Counter "dispatch.held", "Events whose handler was unavailable: their route is held, and no attempt is counted.";
    dispatch_duration: Histogram "dispatch.duration.seconds", "How long each call of a handler took, in seconds.";
    dispatch_wait: Histogram "dispatch.wait.seconds", "How long each event was due before its handler was called, in seconds.";
    delivery_latency: Histogram "delivery.latency.seconds", "From an event's creation until it is recorded as handled, in seconds; a delay that was asked for is part of it.";
    append: Counter "append", "Events appended in transactions that committed, as far as this process knows.";
    settle_late: Counter "settle.late", "Settlements that came too late: the row was settled or claimed elsewhere.";
    replay: Counter "replay", "Dead events set back to be delivered again.";
    redrive: Counter "redrive", "Dead events settled as done, because their dead letters have arrived.";
    discard: Counter "discard", "Dead events deleted because an operator said so.";
    letter_failed: Counter "letter.failed", "Dead events that the dead-letter directory did not take; their rows are DEAD all the same.";
    purge: Counter "purge", "Rows deleted because they were older than the retention.";
    queue_hot_depth: Gauge "queue.hot.depth", "Events in the hot queue.";
    queue_cold_depth: Gauge "queue.cold.depth", "Events in the cold queue.";
    lag_oldest_ms: Gauge "lag.oldest.ms", "How long ago the oldest due event was created, in milliseconds; 0 if none is due.";
    sample_failed: Counter "sample.failed", "Samples of the table that failed; what is known by them is as old as the last that did not.";
    sample_capped: Gauge "sample.capped", "1 while there are more events than a sample counts, so that counts by route are lower bounds.";
}

impl Outbox {
    /// Registers the metrics with the process's recorder, if one is installed by then.
    pub fn new(prefix: impl Into<String>) -> Self {
        metrics::with_recorder(|recorder| Self::with_recorder(prefix, recorder))
    }

    /// Registers the metrics of the outbox with this name, which each of them carries as the label `outbox`.
    pub fn named(prefix: impl Into<String>, name: impl Into<String>, recorder: &dyn Recorder) -> Self {
        Self::labelled(prefix, &[Label::new("outbox", name.into())], recorder)
    }
}

component! {
    /// What an outbox knows of one route, as of the last sample of its table. Each carries the labels `outbox` and `route`.
    ///
    /// ```
    /// use backstop_core::telemetry::Route;
    ///
    /// let placed = Route::named("outbox", "orders", "Order/OrderPlaced", &metrics::NoopRecorder);
    /// placed.waiting.set(3); // outbox.route.waiting{outbox="orders",route="Order/OrderPlaced"}
    /// assert_eq!(placed.waiting.value(), 3);
    /// ```
    Route, ROUTE, prefix "outbox.route",
    waiting: Gauge "waiting", "Events that wait for delivery or for their time (NEW).";
    retrying: Gauge "retrying", "Events that failed at least once and are tried again (RETRY).";
    dead: Gauge "dead", "Events that were given up (DEAD).";
    oldest_ms: Gauge "oldest.ms", "How long ago the route's oldest due event was created, in milliseconds; 0 if none is due.";
    available: Gauge "available", "1 while the route's events are handled, 0 while it is held or they are deferred.";
}

impl Route {
    /// Registers the metrics of a route of the outbox with this name, whose metrics have that prefix.
    pub fn named(outbox_prefix: &str, outbox: &str, route: &str, recorder: &dyn Recorder) -> Self {
        let labels = [Label::new("outbox", outbox.to_owned()), Label::new("route", route.to_owned())];
        Self::labelled(format!("{outbox_prefix}.route"), &labels, recorder)
    }
}

component! {
    /// What a queue counts.
    ///
    /// ```
    /// use backstop_core::telemetry::Queue;
    ///
    /// let jobs = Queue::named("queue", "jobs", &metrics::NoopRecorder); // queue.completed{queue="jobs"}, …
    /// jobs.completed.increment();
    /// assert_eq!(jobs.completed.total(), 1);
    /// ```
    Queue, QUEUE, prefix "queue",
    published: Counter "published", "Events published; those in a transaction of the caller's count before it commits.";
    taken: Counter "taken", "Events taken by this process, those taken over included.";
    taken_over: Counter "taken.over", "Abandoned events taken over: their worker died, or stood still for too long.";
    completed: Counter "completed", "Events handled, and recorded in the log as COMPLETED.";
    failed: Counter "failed", "Events given up, and recorded in the log as FAILED.";
    retried: Counter "retried", "Events that failed and will be tried again.";
    deferred: Counter "deferred", "Events that their handler deferred; no attempt is counted.";
    held: Counter "held", "Events whose handler was unavailable: their route is held, and no attempt is counted.";
    given_back: Counter "given.back", "Events set back to PENDING because the worker stopped before they were handled.";
    late: Counter "late", "Results that came too late: the event had been taken over, or set back by an operator.";
    claims_lost: Counter "claims.lost", "Events whose claim had run out before they were handled; others take them over.";
    requeued: Counter "requeued", "Events set back to PENDING because an operator said so.";
    letter_failed: Counter "letter.failed", "Failed events that the dead-letter directory did not take; they are in the log all the same.";
    purge: Counter "purge", "Events deleted from the log because they were older than the retention.";
    handling: Histogram "handling.seconds", "How long each call of a handler took, in seconds.";
    waiting_time: Histogram "waiting.seconds", "From an event's publication until its handler was called, in seconds.";
    in_hand: Gauge "in.hand", "Events that this process has taken and not finished.";
    waiting: Gauge "waiting", "Events that wait in the table (PENDING), as of the last sample.";
    processing: Gauge "processing", "Events that are being handled, here or elsewhere (PROCESSING), as of the last sample.";
    stuck: Gauge "stuck", "Events that were taken longer ago than the time-out and not finished, as of the last sample.";
    oldest_ms: Gauge "oldest.ms", "How long ago the oldest event was published that could be taken, in milliseconds; 0 if none could.";
    sample_failed: Counter "sample.failed", "Samples of the table that failed; what is known by them is as old as the last that did not.";
}

impl Queue {
    /// Registers the metrics of the queue with this name, which each of them carries as the label `queue`.
    pub fn named(prefix: impl Into<String>, name: impl Into<String>, recorder: &dyn Recorder) -> Self {
        Self::labelled(prefix, &[Label::new("queue", name.into())], recorder)
    }
}

component! {
    /// What a relay counts about its target. Each carries the labels `kind` and `name`, and where they are given `component`
    /// and `number`.
    ///
    /// ```
    /// use backstop_core::target::Name;
    /// use backstop_core::telemetry::Target;
    ///
    /// let name = Name::from("orders").component("shop".to_owned());
    /// let orders = Target::of("topic", &name); // target.delivered{kind="topic",name="orders",component="shop"}, …
    /// orders.delivered.increment();
    /// assert_eq!(orders.delivered.total(), 1);
    /// ```
    Target, TARGET, prefix "target",
    delivered: Counter "delivered", "Events that the target confirmed.";
    held: Counter "held", "Events that waited because the target was unavailable; no attempt is counted.";
    failed: Counter "failed", "Events that the target refused or failed on.";
    available: Gauge "available", "1 while the target is called, 0 while its events wait; as of the last event for it.";
    request_duration: Histogram "request.duration.seconds", "How long each request to the target took, in seconds, whatever the result.";
}

impl Target {
    /// Registers the metrics of one target with the process's recorder, if one is installed by then.
    pub fn of(kind: &'static str, name: &target::Name) -> Self {
        let mut labels = vec![Label::from_static_parts("kind", kind)];
        labels.extend(name.labels().map(|(label, value)| Label::new(label, value)));
        metrics::with_recorder(|recorder| Self::labelled(Self::DEFAULT_PREFIX, &labels, recorder))
    }
}

component! {
    /// What a dead-letter directory counts.
    ///
    /// ```
    /// use backstop_core::telemetry::Dlq;
    ///
    /// let orders = Dlq::new("orders.dlq"); // exported as orders.dlq.stored, …
    /// orders.stored.increment();
    /// assert_eq!(orders.stored.total(), 1);
    /// ```
    Dlq, DLQ, prefix "dlq",
    stored: Counter "stored", "Failed events that are in the directory, safe from a crash.";
    refused: Counter "refused", "Failed events that could not be stored; their senders were told.";
    commits: Counter "commits", "How often waiting events were synced to disk; one sync covers all that wait.";
}

impl Dlq {
    /// Registers the metrics with the process's recorder, if one is installed by then.
    pub fn new(prefix: impl Into<String>) -> Self {
        metrics::with_recorder(|recorder| Self::with_recorder(prefix, recorder))
    }

    /// Registers the metrics of the directory with this name, which each of them carries as the label `dlq`, with the
    /// process's recorder, if one is installed by then.
    pub fn named(prefix: impl Into<String>, name: impl Into<String>) -> Self {
        let labels = [Label::new("dlq", name.into())];
        metrics::with_recorder(|recorder| Self::labelled(prefix, &labels, recorder))
    }
}

const METADATA: Metadata<'static> = Metadata::new("backstop", Level::INFO, Some(module_path!()));

impl Counter {
    fn register(
        recorder: &dyn Recorder,
        prefix: &str,
        name: &str,
        labels: &[Label],
        help: &'static str,
    ) -> Self {
        let name = format!("{prefix}.{name}");
        recorder.describe_counter(name.clone().into(), None, help.into());
        let exported = recorder.register_counter(&Key::from_parts(name, labels.to_vec()), &METADATA);
        Self { exported, total: AtomicU64::new(0) }
    }
}

impl Gauge {
    fn register(
        recorder: &dyn Recorder,
        prefix: &str,
        name: &str,
        labels: &[Label],
        help: &'static str,
    ) -> Self {
        let name = format!("{prefix}.{name}");
        recorder.describe_gauge(name.clone().into(), None, help.into());
        let exported = recorder.register_gauge(&Key::from_parts(name, labels.to_vec()), &METADATA);
        Self { exported, value: AtomicU64::new(0) }
    }
}

impl Histogram {
    fn register(
        recorder: &dyn Recorder,
        prefix: &str,
        name: &str,
        labels: &[Label],
        help: &'static str,
    ) -> Self {
        let name = format!("{prefix}.{name}");
        recorder.describe_histogram(name.clone().into(), None, help.into());
        let exported = recorder.register_histogram(&Key::from_parts(name, labels.to_vec()), &METADATA);
        Self { exported, counts: Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_and_a_sentence() {
        for (prefix, metrics) in catalogue() {
            let names: HashSet<_> = metrics.iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), metrics.len(), "{prefix}");
            assert!(metrics.iter().all(|metric| metric.help.ends_with('.')), "{prefix}");
        }
    }

    #[test]
    fn a_histogram_says_its_unit_and_its_buckets_rise() {
        for metric in catalogue().iter().flat_map(|(_, metrics)| *metrics) {
            let is_histogram = metric.kind == MetricKind::Histogram;
            assert_eq!(metric.name.ends_with(".seconds"), is_histogram, "{}", metric.name);
            assert_eq!(metric.kind.buckets().is_some(), is_histogram, "{}", metric.name);
        }
        assert!(BUCKETS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn what_is_counted_can_be_read_back() {
        let outbox = Outbox::new("test");
        outbox.enqueue_cold.add(3);
        outbox.enqueue_cold.increment();
        outbox.lag_oldest_ms.set(17);
        assert_eq!((outbox.enqueue_cold.total(), outbox.lag_oldest_ms.value()), (4, 17));
        outbox.delivery_latency.record(Duration::from_millis(3));
        outbox.delivery_latency.record(Duration::from_millis(1)); // a bound is part of its bucket
        outbox.delivery_latency.record(Duration::from_hours(1));
        assert_eq!(outbox.delivery_latency.count(), 3);
        let counts = outbox.delivery_latency.counts();
        assert_eq!((counts[0], counts[2], counts[BUCKETS.len()]), (1, 1, 1), "{counts:?}");
        assert_eq!(outbox.prefix(), "test");
    }
}
