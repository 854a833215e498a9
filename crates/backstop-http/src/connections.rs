//! Connections that webhooks with equal settings share.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use backstop_core::shared::Shared;
use tokio_rustls::TlsConnector;

use crate::client::{self, Pool};
use crate::config::Config;
use crate::connector::Connector;

/// Connections to be shared: webhooks that are given the same handle, and agree on time-outs, networks, roots and
/// limits, use one client and its open connections. A cheap handle.
///
/// ```
/// use backstop_http::{Connections, Webhook};
///
/// let shared = Connections::default();
/// let placed = Webhook::to("https://example.com/placed").connections(&shared).build()?;
/// let paid = Webhook::to("https://example.com/paid").connections(&shared).build()?;
/// assert_eq!(shared.count(), 1);
/// # drop((placed, paid));
/// # Ok::<(), backstop_http::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Connections(Arc<Shared<Same, Pool>>);

/// What must be equal for connections to be shared: TLS or none, and the settings of connections.
type Same = (bool, Config);

impl Connections {
    /// How many sets of connections are in use.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    pub(crate) fn of(&self, config: &Config, tls: Option<TlsConnector>) -> Arc<Pool> {
        let same = (tls.is_some(), config.of_connections());
        let make = || {
            let connector = Connector::new(config.guard(), tls, config.connect_timeout);
            Ok::<_, Infallible>(client::pool(connector, config.response_head_limit, config.idle_connections))
        };
        match self.0.of(same, make) {
            Ok(pool) => pool,
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("count", &self.count()).finish()
    }
}
