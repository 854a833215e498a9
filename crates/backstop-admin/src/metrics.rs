//! The process's metrics, gathered for Prometheus.
//!
//! Components name their metrics with dots; the text shows underscores in their place:
//! `outbox.dispatch.success` is `outbox_dispatch_success`.

use metrics_exporter_prometheus::PrometheusBuilder;
pub use metrics_exporter_prometheus::PrometheusHandle;

use crate::AdminError;

/// Gathers, from now on, every metric that this process registers. A component finds its recorder when it is
/// made, so this comes first.
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
/// let desk = Admin::new().metrics(move || prometheus.render());
/// # drop(desk);
/// # Ok::<(), backstop_admin::AdminError>(())
/// ```
pub fn install() -> Result<PrometheusHandle, AdminError> {
    // A recorder that is built cannot fail to be installed for any other reason.
    PrometheusBuilder::new().install_recorder().map_err(|_| AdminError::RecorderInstalled)
}
