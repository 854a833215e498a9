//! The settings of a webhook: each has a default, and every fault is reported at once.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::breaker;
use backstop_core::setting::Faults;
use backstop_core::target::{self, Name, Pace, Target};
use backstop_core::{Clock, SystemClock};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, USER_AGENT};
use rustls::RootCertStore;

use crate::batch::Gathering;
use crate::client::{Client, Limits};
use crate::connector::Connector;
use crate::error::Error;
use crate::guard::Guard;
use crate::signature::Secret;
use crate::webhook::{Mode, Relay, Webhook};
use crate::{tls, url};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("backstop/", env!("CARGO_PKG_VERSION")));
/// The HTTP client reads in pieces of this size, so no smaller bound can be kept.
const LEAST_HEAD_BYTES: usize = 8192;
/// Longer times mean nothing, and adding them up would overflow.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Headers that follow from the event, from its signature or from the connection.
const OURS: [&str; 9] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "host",
    "expect",
    "upgrade",
    "traceparent",
    "tracestate",
];

/// Gathers the settings of a [`Webhook`].
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
#[derive(Clone)]
#[must_use = "a builder makes no webhook until `build` is called"]
pub struct WebhookBuilder {
    url: String,
    name: Option<String>,
    used_for: Option<String>,
    format: Format,
    source: String,
    secrets: Vec<String>,
    headers: Vec<(String, String)>,
    timeout: Duration,
    connect_timeout: Duration,
    request_limit: usize,
    response_limit: usize,
    response_head_limit: usize,
    idle_connections: usize,
    networks: Vec<String>,
    roots: Vec<Vec<u8>>,
    breaker: breaker::Config,
    pace: Pace,
    retry_after_limit: Duration,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Structured,
    Binary,
    Batched { most: usize, linger: Duration },
}

impl WebhookBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            name: None,
            used_for: None,
            format: Format::Structured,
            source: "/outbox/outbox".to_owned(),
            secrets: Vec::new(),
            headers: Vec::new(),
            timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            request_limit: 2 * 1024 * 1024,
            response_limit: 64 * 1024,
            response_head_limit: 32 * 1024,
            idle_connections: 32,
            networks: Vec::new(),
            roots: Vec::new(),
            breaker: target::default_breaker(),
            pace: Pace::default(),
            retry_after_limit: Duration::from_secs(3600),
            clock: Arc::new(SystemClock),
        }
    }

    /// Says whose events go there, as `orders: OrderPlaced`. It is the label `for` of the target's metrics, and keeps two
    /// with the same name apart. Defaults to nothing.
    pub fn used_for(mut self, what: impl Into<String>) -> Self {
        self.used_for = Some(what.into());
        self
    }

    /// The name by which operators know the target. Defaults to scheme, host and port of the URL.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sends each event as one JSON object, attributes and payload together
    /// (`application/cloudevents+json`). This is the default.
    pub fn structured(mut self) -> Self {
        self.format = Format::Structured;
        self
    }

    /// Sends the payload as the body and the attributes as `ce-` headers. The signature covers the body
    /// alone. Defaults to [`structured`](Self::structured).
    pub fn binary(mut self) -> Self {
        self.format = Format::Binary;
        self
    }

    /// Sends events that are delivered at the same time in one request
    /// (`application/cloudevents-batch+json`): up to `most` of them, gathered for `linger`. An outbox delivers
    /// as many at once as it has workers, so set `worker_count` to match. A batch that is refused or failed
    /// on is sent again event by event, so that one of them cannot bury the others.
    ///
    /// The `webhook-id` names the batch here, and an event that comes again comes in other company: receivers remove
    /// duplicates by the `source` and `id` of each event.
    /// Defaults to [`structured`](Self::structured).
    pub fn batched(mut self, most: usize, linger: Duration) -> Self {
        self.format = Format::Batched { most, linger };
        self
    }

    /// The `source` of every event: a URI reference that names the system which sends it.
    /// Defaults to `/outbox/outbox`, an outbox by its default name.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// A secret to sign with, as `whsec_<base64>`. Given several times, every message carries a
    /// signature of each, so that a secret is changed without a gap. Defaults to none: unsigned.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// A header of every request, such as `authorization`. Its value is never shown. Defaults to none.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long a request may take, from asking for a connection to the end of the answer. Defaults to 15 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How long a new connection may take, from resolving the name to the end of TLS's handshake.
    /// Defaults to 5 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How large a request's body may be, in bytes; an event that needs more is dead, with the class
    /// `too-large`. Defaults to 2 MiB.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.request_limit = bytes;
        self
    }

    /// How much of an answer's body is read, in bytes. Past it the connection is closed; the status counts
    /// all the same. Defaults to 64 KiB.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// How large the head of an answer may be, in bytes; more is a failure of the class `bad-response`.
    /// At least 8 KiB. Defaults to 32 KiB.
    pub fn response_head_limit(mut self, bytes: usize) -> Self {
        self.response_head_limit = bytes;
        self
    }

    /// How many connections are kept open while nothing is sent. Defaults to 32.
    pub fn idle_connections(mut self, most: usize) -> Self {
        self.idle_connections = most;
        self
    }

    /// Allows the addresses of a network that is not public, such as `10.1.0.0/16` or `127.0.0.1`. May be
    /// given several times. Defaults to none: private, loopback, link-local, shared (CGNAT) and
    /// multicast addresses are refused, and IPv6 that stands for IPv4.
    pub fn allow_network(mut self, network: impl Into<String>) -> Self {
        self.networks.push(network.into());
        self
    }

    /// Trusts the certificates of a PEM text as roots, beside the system's. May be given several times.
    /// Defaults to the system's alone.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// When the target is left alone, and how it is tried again. Defaults to: after 5 failures in a row, or
    /// when half of the last 100 calls failed; for 30 s; then 2 probes decide. Slow answers do not count.
    pub fn breaker(mut self, config: breaker::Config) -> Self {
        self.breaker = config;
        self
    }

    /// How long an event is put off when the target is away and names no time of its own; spread by half,
    /// and added to the time for which the breaker is open. Defaults to 5 s.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pace.pause = pause;
        self
    }

    /// How long an event is put off while the target is disabled: so long does it take at most until
    /// events flow again after [`Target::enable`]. Defaults to 1 h.
    pub fn park(mut self, park: Duration) -> Self {
        self.pace.park = park;
        self
    }

    /// The longest `Retry-After` that is believed. Defaults to 1 h.
    pub fn retry_after_limit(mut self, limit: Duration) -> Self {
        self.retry_after_limit = limit;
        self
    }

    /// Where the time is read, for tests that move it. Defaults to the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Ends the settings, or names every fault in them.
    pub fn build(self) -> Result<Webhook, Error> {
        let mut faults = Faults::default();
        let uri = faults.keep("url", url::parse(&self.url));
        let (guard, roots) = (self.guard(&mut faults), self.roots(&mut faults));
        if let Some(uri) = &uri {
            faults.keep("url", url::check_literal(uri, &guard));
        }
        let secrets: Vec<_> =
            self.secrets.iter().filter_map(|secret| faults.keep("secret", Secret::parse(secret))).collect();
        let headers = self.headers(&mut faults);
        self.check_numbers(&mut faults);
        let tls = match &uri {
            Some(uri) if url::is_https(uri) => faults.keep("url", tls::connector(&roots)),
            _ => None,
        };
        let Some(uri) = uri else { return Err(faults.into_vec().into()) };
        faults.into_result()?;

        let name = Name::from(self.name.unwrap_or_else(|| url::origin(&uri))).used_for(self.used_for);
        let limits = Limits {
            timeout: self.timeout,
            response_head_bytes: self.response_head_limit,
            response_body_bytes: self.response_limit,
            idle_connections: self.idle_connections,
        };
        let mode = match self.format {
            Format::Structured => Mode::Structured,
            Format::Binary => Mode::Binary,
            Format::Batched { most, linger } => {
                Mode::Batched { gathering: Mutex::new(Gathering::new(most, self.request_limit)), linger }
            }
        };
        Ok(Webhook::new(Relay {
            client: Client::new(Connector::new(guard, tls, self.connect_timeout), uri, limits),
            target: Target::new("webhook", name, self.breaker, self.pace, Arc::clone(&self.clock)),
            mode,
            source: self.source,
            secrets,
            headers,
            request_limit_bytes: self.request_limit,
            retry_after_limit: self.retry_after_limit,
            clock: self.clock,
        }))
    }

    fn guard(&self, faults: &mut Faults) -> Guard {
        let networks = self.networks.iter();
        Guard::new(networks.filter_map(|network| faults.keep("allow_network", network.parse())).collect())
    }

    fn roots(&self, faults: &mut Faults) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for pem in &self.roots {
            faults.keep("root_certificate", tls::add_pem(&mut roots, pem));
        }
        roots
    }

    fn headers(&self, faults: &mut Faults) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
        for (name, value) in &self.headers {
            match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                (Ok(name), _) if is_ours(&name) => {
                    faults.add("header", format!("must not set {name}, which follows from the event"));
                }
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                (Ok(name), Err(_)) => {
                    faults.add("header", format!("must not have line breaks in the value of {name}"));
                }
                (Err(_), _) => {
                    // Not repeated: with name and value exchanged it is a secret.
                    faults.add(
                        "header",
                        "must have a name that HTTP allows, as authorization, and its value behind it",
                    );
                }
            }
        }
        headers
    }

    fn check_numbers(&self, faults: &mut Faults) {
        if self.source.is_empty() || !self.source.bytes().all(|byte| byte.is_ascii_graphic()) {
            faults.add("source", "must be a URI reference such as /shop/orders");
        }
        for (setting, time) in [
            ("timeout", self.timeout),
            ("connect_timeout", self.connect_timeout),
            ("pause", self.pace.pause),
            ("park", self.pace.park),
        ] {
            faults.longer_than_zero(setting, time);
            faults.at_most(setting, time, YEAR);
        }
        faults.at_most("retry_after_limit", self.retry_after_limit, YEAR);
        faults.at_least_one("request_limit", self.request_limit);
        faults.at_least("response_head_limit", self.response_head_limit, LEAST_HEAD_BYTES);
        if let Format::Batched { most, linger } = self.format {
            faults.at_least_one("batched", most);
            faults.at_most("batched", linger, YEAR);
        }
    }
}

/// Names what is set, and hides secrets, headers and the path of the URL.
impl fmt::Debug for WebhookBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBuilder")
            .field(
                "url",
                &url::parse(&self.url).map_or_else(|_| "hidden".to_owned(), |uri| url::origin(&uri)),
            )
            .field("format", &self.format)
            .field("source", &self.source)
            .field("secrets", &self.secrets.len())
            .field(
                "headers",
                &self.headers.iter().flat_map(|(name, _)| HeaderName::try_from(name)).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    OURS.contains(&name) || name.starts_with("ce-") || name.starts_with("webhook-")
}
