//! A webhook before it is built: its settings, and what is not a setting.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::config::Secret;
use backstop_core::setting::Faults;
use backstop_core::target::{Name, Target};
use backstop_core::{Clock, SystemClock};
use hyper::Uri;
use tokio_rustls::TlsConnector;

use crate::batch::Gathering;
use crate::client::{Client, Limits};
use crate::config::{Config, Format};
use crate::connections::Connections;
use crate::error::Error;
use crate::webhook::{Mode, Relay, Webhook};
use crate::{tls, url};

/// Gathers the settings of a [`Webhook`]: those of its [`Config`], one by one.
///
/// ```
/// use std::time::Duration;
/// use backstop_http::Webhook;
///
/// let webhook = Webhook::to("https://example.com/hooks")
///     .batched(50, Duration::from_millis(2))
///     .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") // the new one
///     .secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD") // the old one, until every receiver knows the new
///     .header("authorization", "Bearer T0KEN")
///     .source("/shop/orders")
///     .build()?;
/// assert!(!format!("{webhook:?}").contains("T0KEN"));
/// # Ok::<(), backstop_http::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder makes no webhook until `build` is called"]
pub struct WebhookBuilder {
    pub(crate) config: Config,
    component: Option<String>,
    number: u32,
    connections: Connections,
    clock: Arc<dyn Clock>,
}

impl From<Config> for WebhookBuilder {
    fn from(config: Config) -> Self {
        let (connections, clock) = (Connections::default(), Arc::new(SystemClock));
        Self { config, component: None, number: 1, connections, clock }
    }
}

impl WebhookBuilder {
    /// The component that sends to it, by its name. It is the label `component` of the target's metrics, and
    /// distinguishes targets of the same name. Defaults to none.
    pub fn component(mut self, name: impl Into<String>) -> Self {
        self.component = Some(name.into());
        self
    }

    /// Which of the component's targets with this name it is. From 2 on it is the label `number` of the target's metrics.
    /// Defaults to 1.
    pub fn number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// Sends each event as one JSON object: [`Format::Structured`], which is the default.
    pub fn structured(self) -> Self {
        self.format(Format::Structured)
    }

    /// Sends the payload as the body and the attributes as headers: [`Format::Binary`].
    /// Defaults to [`structured`](Self::structured).
    pub fn binary(self) -> Self {
        self.format(Format::Binary)
    }

    /// Sends events that are delivered at the same time in one request, up to `most` of them, gathered for `linger`:
    /// [`Format::Batched`]. Defaults to [`structured`](Self::structured).
    pub fn batched(self, most: usize, linger: Duration) -> Self {
        self.format(Format::Batched).batch_size(most).batch_linger(linger)
    }

    /// Adds one of the [`secrets`](Self::secrets) to sign with. If there are several, every message carries a
    /// signature with each, so that a secret can be changed without a gap. Defaults to none: unsigned.
    pub fn secret(mut self, secret: impl Into<Secret>) -> Self {
        self.config.secrets.push(secret.into());
        self
    }

    /// Adds one of the [`headers`](Self::headers). Defaults to none.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.config.headers.insert(name.into(), value.into());
        self
    }

    /// Adds one of the [`allowed_networks`](Self::allowed_networks), such as `10.1.0.0/16` or `127.0.0.1`. Defaults to none.
    pub fn allow_network(mut self, network: impl Into<String>) -> Self {
        self.config.allowed_networks.push(network.into());
        self
    }

    /// Adds one of the [`root_certificates`](Self::root_certificates), as PEM. Defaults to the system's alone.
    pub fn root_certificate(mut self, pem: impl Into<Secret>) -> Self {
        self.config.root_certificates.push(pem.into());
        self
    }

    /// Shares connections with other webhooks that are given the same `Connections` and have equal settings. Defaults
    /// to its own connections.
    pub fn connections(mut self, connections: &Connections) -> Self {
        self.connections = connections.clone();
        self
    }

    /// Where the time is read, for tests that move it. Defaults to the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Names every fault in the settings, without building anything.
    pub fn check(&self) -> Result<(), Error> {
        self.checked().map(drop)
    }

    /// Builds the webhook, or names every fault in its settings.
    pub fn build(self) -> Result<Webhook, Error> {
        let (uri, tls) = self.checked()?;
        let Self { config, component, number, connections, clock } = self;
        let limits = Limits { timeout: config.timeout, response_body_bytes: config.response_limit };
        let mode = match config.format {
            Format::Structured => Mode::Structured,
            Format::Binary => Mode::Binary,
            Format::Batched => Mode::Batched {
                gathering: Mutex::new(Gathering::new(config.batch_size, config.request_limit)),
                linger: config.batch_linger,
            },
        };
        let name = Name::from(config.target_name()).component(component).number(number);
        Ok(Webhook::new(Relay {
            client: Client::new(connections.of(&config, tls), uri, limits),
            target: Target::new("webhook", name, &config.target, Arc::clone(&clock)),
            mode,
            source: config.target.source_or_default().to_owned(),
            secrets: config.signing(),
            headers: config.header_map(),
            request_limit_bytes: config.request_limit,
            retry_after_limit: config.retry_after_limit,
            clock,
        }))
    }

    fn checked(&self) -> Result<(Uri, Option<TlsConnector>), Error> {
        let mut faults = self.config.faults();
        let Ok(uri) = url::parse(self.config.url.reveal()) else { return Err(faults.into_vec().into()) };
        let tls = self.tls(&uri, &mut faults);
        faults.into_result()?;
        Ok((uri, tls))
    }

    fn tls(&self, uri: &Uri, faults: &mut Faults) -> Option<TlsConnector> {
        if url::is_https(uri) { faults.keep("url", tls::connector(&self.config.roots())) } else { None }
    }
}
