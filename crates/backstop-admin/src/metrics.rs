//! The process's metrics, gathered for Prometheus.
//!
//! Components name their metrics with dots; the text shows underscores in their place:
//! `outbox.dispatch.success` is `outbox_dispatch_success`.

use std::thread;
use std::time::Duration;

use backstop_core::telemetry::catalogue;
pub use metrics_exporter_prometheus::PrometheusHandle;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::AdminError;

/// How often recorded values are sorted into the buckets of their histograms.
const UPKEEP: Duration = Duration::from_secs(5);

/// Gathers, from now on, every metric that this process registers. A component finds its recorder when it is
/// made, so this comes first. Histograms have the buckets of the catalogue.
///
/// ```
/// # // Rules: O-061.
/// use backstop_admin::{Admin, metrics};
/// use backstop_core::telemetry::Outbox;
///
/// let prometheus = metrics::install()?;
/// let orders = Outbox::new("orders.outbox");
/// orders.dispatch_success.increment();
/// assert!(prometheus.render().contains("orders_outbox_dispatch_success 1"));
///
/// let dashboard = Admin::new().metrics(move || prometheus.render());
/// # drop(dashboard);
/// # Ok::<(), backstop_admin::AdminError>(())
/// ```
pub fn install() -> Result<PrometheusHandle, AdminError> {
    // A recorder that is built cannot fail to be installed for any other reason.
    let handle = builder().install_recorder().map_err(|_| AdminError::RecorderInstalled)?;
    keep_up(handle.clone());
    Ok(handle)
}

/// An exporter that knows the buckets of every histogram, whatever prefix its name has.
fn builder() -> PrometheusBuilder {
    let metrics = catalogue().into_iter().flat_map(|(_, metrics)| metrics);
    let histograms = metrics.filter_map(|metric| Some((metric.name, metric.kind.buckets()?)));
    histograms.fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
        let named = Matcher::Suffix(format!(".{name}"));
        builder.set_buckets_for_metric(named, buckets).expect("the catalogue's buckets are not empty")
    })
}

/// A scrape does the same. Without scrapes, the recorded values would fill the memory.
fn keep_up(handle: PrometheusHandle) {
    let upkeep = move || {
        loop {
            thread::sleep(UPKEEP);
            handle.run_upkeep();
        }
    };
    if let Err(error) = thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(upkeep) {
        tracing::warn!(%error, "cannot start the thread that tidies up metrics; memory grows until they are scraped");
    }
}

#[cfg(test)]
mod tests {
    use backstop_core::telemetry::{BUCKETS, Outbox, Queue, Target};

    use super::*;

    #[test]
    fn every_histogram_of_the_catalogue_shows_its_buckets_whatever_the_prefix() {
        let recorder = builder().build_recorder();
        let outbox = Outbox::named("shop.outbox", "orders", &recorder);
        let queue = Queue::named("shop.queue", "jobs", &recorder);
        let target = Target::with_recorder("shop.target", &recorder);
        for histogram in [
            &outbox.dispatch_duration,
            &outbox.dispatch_wait,
            &outbox.delivery_latency,
            &queue.handling,
            &queue.waiting_time,
            &target.request_duration,
        ] {
            histogram.record(Duration::from_millis(3));
        }
        let text = recorder.handle().render();
        let mut shown = 0;
        for (component, metrics) in catalogue() {
            for metric in metrics.iter().filter(|metric| metric.kind.buckets().is_some()) {
                let name = format!("shop_{component}_{}", metric.name.replace('.', "_"));
                let lines =
                    |end: &str| text.lines().filter(|it| it.starts_with(&format!("{name}{end}"))).count();
                // One more bucket is for what took longer than all bounds.
                let counted = (lines("_bucket{"), lines("_sum"), lines("_count"));
                assert_eq!(counted, (BUCKETS.len() + 1, 1, 1), "{name} in\n{text}");
                assert!(text.contains(&format!("# TYPE {name} histogram")), "{name} in\n{text}");
                shown += 1;
            }
        }
        assert_eq!(shown, 6, "record something in each histogram");
        assert!(
            text.contains(r#"shop_outbox_dispatch_duration_seconds_bucket{outbox="orders",le="0.0025"} 0"#)
        );
        assert!(
            text.contains(r#"shop_outbox_dispatch_duration_seconds_bucket{outbox="orders",le="0.005"} 1"#)
        );
    }
}
