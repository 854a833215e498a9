//! What the dashboard looks at, gathered before it opens.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use backstop_core::inspect::Inspect;
use tokio::net::TcpListener;

use crate::access::{Access, Token};
use crate::config::{Config, TokenConfig};
use crate::guard::Guard;
use crate::routes::Shared;
use crate::tls::Tls;
use crate::watched::Watched;
use crate::{AdminError, Listening, Readiness, routes};

/// The dashboard before it opens: say what it watches, then [`bind`](Admin::bind) it.
///
/// ```
/// use backstop_admin::Admin;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let dashboard = Admin::new()
///     .metrics(|| "# no metrics yet\n".to_owned())
///     .bind("127.0.0.1:0".parse().unwrap())
///     .await?;
/// assert!(dashboard.address().ip().is_loopback());
/// # Ok::<(), backstop_admin::AdminError>(())
/// # }).unwrap();
/// ```
#[derive(Default)]
pub struct Admin {
    components: Vec<Arc<dyn Inspect>>,
    metrics: Option<Render>,
    tokens: Vec<Token>,
    hosts: Vec<String>,
    readiness: Readiness,
    tls: Tls,
}

/// Writes all metrics as Prometheus text.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

impl Admin {
    /// A dashboard that watches nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A dashboard with the names and tokens of these settings; [`bind`](Self::bind) it to their address.
    ///
    /// ```
    /// use backstop_admin::{Admin, Config};
    ///
    /// let config = Config { hosts: vec!["backstop.example".to_owned()], ..Config::default() };
    /// let dashboard = Admin::of(&config);
    /// assert!(format!("{dashboard:?}").contains("backstop.example"));
    /// ```
    pub fn of(config: &Config) -> Self {
        let tokens = config.tokens.iter().filter_map(TokenConfig::token);
        Self::new().hosts(config.hosts.iter().cloned()).tokens(tokens).tls(config.tls.clone())
    }

    /// Shows this component too, below those added before it.
    pub fn watch(mut self, component: Arc<dyn Inspect>) -> Self {
        self.components.push(component);
        self
    }

    /// Answers `/metrics` with what `render` writes, in Prometheus text format. It is called at each
    /// scrape, so gauges that are not kept current can be set in it before it renders.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Lets in only holders of one of these tokens, or of those added before. Without any, everybody who reaches the
    /// dashboard may look at it.
    ///
    /// ```
    /// use backstop_admin::{Admin, Role, Token};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let everywhere = "0.0.0.0:0".parse().unwrap();
    /// assert!(Admin::new().bind(everywhere).await.is_err());
    ///
    /// let ops = Token::of("ops", Role::Operator, "32 random bytes in hexadecimal");
    /// assert!(Admin::new().tokens([ops]).bind(everywhere).await.is_ok());
    /// # });
    /// ```
    pub fn tokens(mut self, tokens: impl IntoIterator<Item = Token>) -> Self {
        self.tokens.extend(tokens);
        self
    }

    /// Answers to these names too, as a client writes them in the `Host` header. Defaults to the names of this
    /// machine and, where there are tokens, any address.
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts);
        self
    }

    /// What `/ready` asks before it asks the components. Defaults to a process that has started.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Speaks TLS with this certificate and key. Defaults to plain HTTP.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Takes the port, so that a busy one is known before anything else starts. Port 0 takes a free one.
    ///
    /// Without [`tokens`](Self::tokens) only a loopback address is accepted, because everybody who reaches the
    /// dashboard can read every event's metadata.
    pub async fn bind(self, address: SocketAddr) -> Result<Listening, AdminError> {
        if !address.ip().is_loopback() && self.tokens.is_empty() {
            return Err(AdminError::NotLoopback { address });
        }
        let tls = self.tls.acceptor().map_err(|why| AdminError::Tls { why })?;
        let fault = |error| explain(address, error);
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let access = Arc::new(Access::new(self.tokens));
        let guard = Guard::new(address.ip(), self.hosts, access.clone());
        let (watched, readiness) = (Watched::new(self.components), self.readiness);
        let dashboard = Shared { watched, metrics: self.metrics, access, readiness };
        Ok(Listening::new(listener, address, tls, routes::router(dashboard, guard)))
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("components", &self.components.len())
            .field("metrics", &self.metrics.is_some())
            .field("tokens", &self.tokens)
            .field("hosts", &self.hosts)
            .field("readiness", &self.readiness)
            .field("tls", &self.tls)
            .finish()
    }
}

fn explain(address: SocketAddr, error: std::io::Error) -> AdminError {
    match error.kind() {
        ErrorKind::AddrInUse => AdminError::PortInUse { address },
        ErrorKind::PermissionDenied => AdminError::PortNotPermitted { address },
        _ => AdminError::Bind { address, source: error },
    }
}
