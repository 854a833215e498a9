//! Every metric: its name, its kind, what it means. The only place that registers one.
//!
//! Names are dotted; Prometheus shows the dots as underscores. A prefix keeps instances apart.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Key, Label, Level, Metadata, Recorder};

/// A metric as the reference documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name behind the prefix.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// One sentence for whoever reads a dashboard.
    pub help: &'static str,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows while the process runs.
    Counter,
    /// Shows the value of now.
    Gauge,
}

/// Every metric, by the component it belongs to and that component's default prefix.
pub fn catalogue() -> [(&'static str, &'static [Metric]); 3] {
    [(Outbox::DEFAULT_PREFIX, &OUTBOX), (Target::DEFAULT_PREFIX, &TARGET), (Dlq::DEFAULT_PREFIX, &DLQ)]
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

    /// The value of now.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
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
            [$(Metric { name: $name, kind: Kind::$kind, help: $help }),*];

        $(#[$doc])*
        #[derive(Debug)]
        pub struct $component {
            prefix: String,
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl $component {
            /// The prefix unless another is given.
            pub const DEFAULT_PREFIX: &'static str = $prefix;

            /// Registers the metrics with a recorder of one's own.
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
    enqueue_hot_skipped_delayed: Counter "enqueue.hot.skipped.delayed", "Delayed events kept off the hot path.";
    enqueue_cold: Counter "enqueue.cold", "Events the poller enqueued.";
    dispatch_success: Counter "dispatch.success", "Events handled.";
    dispatch_failure: Counter "dispatch.failure", "Events that failed and will be tried again.";
    dispatch_dead: Counter "dispatch.dead", "Events buried: no further try.";
    dispatch_deferred: Counter "dispatch.deferred", "Events their handler put off.";
    append: Counter "append", "Events appended in transactions that committed, as far as this process knows.";
    settle_late: Counter "settle.late", "Settlements that came too late: the row was settled or claimed elsewhere.";
    replay: Counter "replay", "Dead events set back to be delivered again.";
    letter_failed: Counter "letter.failed", "Dead events that the dead-letter directory did not take; their rows are DEAD all the same.";
    purge: Counter "purge", "Rows deleted because they were older than the retention.";
    queue_hot_depth: Gauge "queue.hot.depth", "Events in the hot queue.";
    queue_cold_depth: Gauge "queue.cold.depth", "Events in the cold queue.";
    lag_oldest_ms: Gauge "lag.oldest.ms", "How long the oldest due event has waited, in milliseconds.";
}

impl Outbox {
    /// Registers the metrics with the process's recorder, if one is installed by then.
    pub fn new(prefix: impl Into<String>) -> Self {
        metrics::with_recorder(|recorder| Self::with_recorder(prefix, recorder))
    }
}

component! {
    /// What a relay counts about its target. Each carries the labels `kind` and `name`, and `for` where it is said whose
    /// events go there.
    ///
    /// ```
    /// use backstop_core::telemetry::Target;
    ///
    /// let orders = Target::of("topic", "orders", None); // target.delivered{kind="topic",name="orders"}, …
    /// orders.delivered.increment();
    /// assert_eq!(orders.delivered.total(), 1);
    /// ```
    Target, TARGET, prefix "target",
    delivered: Counter "delivered", "Events that the target confirmed.";
    put_off: Counter "put.off", "Events put off because the target is away; no try is counted.";
    failed: Counter "failed", "Events that the target refused or failed on.";
    available: Gauge "available", "1 while the target is called, 0 while its events wait; as of the last event for it.";
}

impl Target {
    /// Registers the metrics of one target with the process's recorder, if one is installed by then.
    pub fn of(kind: &'static str, name: &str, used_for: Option<&str>) -> Self {
        let mut labels = vec![Label::from_static_parts("kind", kind), Label::new("name", name.to_owned())];
        labels.extend(used_for.map(|what| Label::new("for", what.to_owned())));
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
    commits: Counter "commits", "Times that the disk was told to keep what was written; many events share one.";
}

impl Dlq {
    /// Registers the metrics with the process's recorder, if one is installed by then.
    pub fn new(prefix: impl Into<String>) -> Self {
        metrics::with_recorder(|recorder| Self::with_recorder(prefix, recorder))
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
    fn what_is_counted_can_be_read_back() {
        let outbox = Outbox::new("test");
        outbox.enqueue_cold.add(3);
        outbox.enqueue_cold.increment();
        outbox.lag_oldest_ms.set(17);
        assert_eq!((outbox.enqueue_cold.total(), outbox.lag_oldest_ms.value()), (4, 17));
        assert_eq!(outbox.prefix(), "test");
    }
}
