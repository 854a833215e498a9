//! What a webhook is set up with: every setting, once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use backstop_core::breaker;
use backstop_core::config;
use backstop_core::config::{Config as _, Parsed, Secret, ValueKind};
use backstop_core::setting::Faults;
use backstop_core::target;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, USER_AGENT};
use rustls::RootCertStore;

use crate::builder::WebhookBuilder;
use crate::guard::Guard;
use crate::network::{self, Network};
use crate::{signature, tls, url};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("backstop/", env!("CARGO_PKG_VERSION")));
/// The HTTP client reads in pieces of this size, so no smaller bound can be kept.
const LEAST_HEAD_BYTES: u64 = 8192;
/// Longer times mean nothing, and adding them up would overflow.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const TIME: ValueKind = ValueKind::time(Duration::from_millis(1), YEAR);
const TIME_OR_ZERO: ValueKind = ValueKind::time(Duration::ZERO, YEAR);
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

backstop_core::choice! {
    /// How a CloudEvent is written.
    pub enum Format {
        /// Attributes and payload together, as one JSON object (`application/cloudevents+json`).
        Structured = "structured",
        /// The payload as the body, and the attributes as `ce-` headers. A signature covers the body alone.
        Binary = "binary",
        /// Events that are delivered at the same time in one request (`application/cloudevents-batch+json`). A batch
        /// that is refused, or that the target fails on, is sent again event by event, so that one event cannot bury
        /// the others.
        ///
        /// The `webhook-id` names the batch here, and an event that is sent again may be in another batch: receivers
        /// recognise duplicates by the `source` and `id` of each event.
        Batched = "batched",
    }
}

config! {
    /// What a [`Webhook`](crate::Webhook) is set up with. [`Webhook::of`](crate::Webhook::of) begins one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use backstop_http::{Config, Webhook};
    ///
    /// let config = Config { timeout: Duration::from_secs(3), ..Config::to("https://example.com/hooks") };
    /// let webhook = Webhook::of(config).build()?;
    /// assert_eq!(webhook.target().name(), "https://example.com");
    /// # Ok::<(), backstop_http::Error>(())
    /// ```
    #[derive(Clone, PartialEq)]
    pub struct Config {
        /// Where events are sent, by POST. In a settings file use `env:NAME` or `file:PATH` if its path holds a
        /// token.
        url: Secret = Secret::default() => "url": one(URL), required("it says where events go");
        /// The name by which operators know the target.
        name: Option<String> = None => "name": one(ValueKind::Text), unset("scheme, host and port of the URL");
        /// How the CloudEvent is written: all in the body, in headers beside the payload, or several in one body.
        format: Format = Format::Structured => "format": one(Format::KIND);
        /// How many events share a request at most, if the format is `batched`. An outbox delivers as many at once as it
        /// has workers, so its `worker-count` should match.
        batch_size: usize = 100 => "batch-size": one(ValueKind::AT_LEAST_ONE);
        /// How long an event waits for others to share its request, if the format is `batched`.
        batch_linger: Duration = Duration::from_millis(5) => "batch-linger": one(TIME_OR_ZERO);
        /// The keys of Standard Webhooks signatures, each `whsec_<base64>`; more than one while they are rotated. In a
        /// settings file `env:NAME` or `file:PATH`.
        secrets: Vec<Secret> = Vec::new() => "secrets": many(ValueKind::Secret), unset("requests are not signed");
        /// Headers of every request, such as `authorization`, and their values, which are never shown. In a settings file a
        /// value may be `env:NAME` or `file:PATH`.
        headers: BTreeMap<String, Secret> = BTreeMap::new() => "headers": map(HEADER), unset("none");
        /// How long a request may take, from asking for a connection to the end of the response.
        timeout: Duration = Duration::from_secs(15) => "timeout": one(TIME);
        /// How long a new connection may take, from resolving the name to the end of the TLS handshake.
        connect_timeout: Duration = Duration::from_secs(5) => "connect-timeout": one(TIME);
        /// How large a request's body may be, in bytes; an event that needs more is dead, with the class `too-large`.
        request_limit: usize = 2 * 1024 * 1024 => "request-limit": one(ValueKind::Number { min: 1, max: u64::MAX });
        /// How much of a response's body is read, in bytes. Past that the connection is closed; the status still counts.
        response_limit: usize = 64 * 1024 => "response-limit": one(ValueKind::Number { min: 0, max: u64::MAX });
        /// How large the head of a response may be, in bytes; more is a failure of the class `bad-response`.
        response_head_limit: usize = 32 * 1024
            => "response-head-limit": one(ValueKind::Number { min: LEAST_HEAD_BYTES, max: u64::MAX });
        /// How many connections are kept open while nothing is sent.
        idle_connections: usize = 32 => "idle-connections": one(ValueKind::Number { min: 0, max: 1_000_000 });
        /// Networks, or single addresses, that the target may be in although they are not public. All other private,
        /// loopback, link-local, shared (CGNAT) and multicast addresses are refused, and so is IPv6 that stands for
        /// IPv4.
        allowed_networks: Vec<String> = Vec::new()
            => "allowed-networks": many(NETWORK), unset("public addresses only");
        /// Root certificates to trust in addition to the system's, as PEM; in a settings file preferably `file:PATH`.
        root_certificates: Vec<Secret> = Vec::new()
            => "root-certificates": many(PEM), unset("the system's alone");
        /// The longest `Retry-After` that is followed; a longer one is cut to this.
        retry_after_limit: Duration = Duration::from_secs(3_600) => "retry-after-limit": one(TIME_OR_ZERO);
        ..target: target::Config = target::Config::default() => {
            source: Option<String>,
            pause: Duration,
            disabled_pause: Duration,
            breaker: breaker::Config,
        }
    }
    rules: between;
    setters: WebhookBuilder.config;
}

const URL: ValueKind = ValueKind::Parsed(&Parsed {
    word: "URL, or where it is kept",
    rule: "a URL that begins with https:// or http://",
    secret: true,
    check: |text| url::parse(text).map(drop),
});

const NETWORK: ValueKind = ValueKind::Parsed(&Parsed {
    word: "network or address",
    rule: network::RULE,
    secret: false,
    check: |text| text.parse::<Network>().map(drop),
});

const HEADER: ValueKind = ValueKind::Parsed(&Parsed {
    word: "text, or where it is kept",
    rule: "a text without line breaks",
    secret: true,
    check: |text| match HeaderValue::try_from(text) {
        Ok(_) => Ok(()),
        Err(_) => Err("must not have line breaks in a value".to_owned()),
    },
});

const PEM: ValueKind = ValueKind::Parsed(&Parsed {
    word: "PEM, or where it is kept",
    rule: "at least one certificate in PEM form",
    secret: true,
    check: |text| tls::add_pem(&mut RootCertStore::empty(), text.as_bytes()),
});

/// Rules beyond the kind of each setting.
fn between(config: &Config, faults: &mut Faults) {
    if let Ok(uri) = url::parse(config.url.reveal()) {
        faults.keep("url", url::check_literal(&uri, &config.guard()));
    }
    for secret in &config.secrets {
        faults.keep("secrets", signature::Secret::parse(secret.reveal()));
    }
    for name in config.headers.keys() {
        match HeaderName::try_from(name) {
            Ok(name) if is_ours(&name) => {
                faults.add("headers", format!("must not set {name}, which follows from the event"));
            }
            Ok(_) => {}
            // Not repeated: with name and value exchanged it is a secret.
            Err(_) => faults.add(
                "headers",
                "must have a name that HTTP allows, such as authorization, followed by its value",
            ),
        }
    }
}

impl Config {
    /// Everything at its default but the URL.
    pub fn to(url: impl Into<Secret>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// The name of its target: the setting `name`, or scheme, host and port of the URL.
    pub fn target_name(&self) -> String {
        let origin = || url::parse(self.url.reveal()).map(|uri| url::origin(&uri)).unwrap_or_default();
        self.name.clone().unwrap_or_else(origin)
    }

    /// Every fault, none if it can be used.
    pub(crate) fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        self.check(&mut faults);
        faults
    }

    /// What must be equal for connections to be shared: everything that does not belong to one message or one target.
    pub(crate) fn of_connections(&self) -> Self {
        Self {
            connect_timeout: self.connect_timeout,
            response_head_limit: self.response_head_limit,
            idle_connections: self.idle_connections,
            allowed_networks: self.allowed_networks.clone(),
            root_certificates: self.root_certificates.clone(),
            ..Self::default()
        }
    }

    // These leave out what is faulty, which `check` has told.

    pub(crate) fn guard(&self) -> Guard {
        Guard::new(self.allowed_networks.iter().flat_map(|network| network.parse()).collect())
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for pem in &self.root_certificates {
            let _ = tls::add_pem(&mut roots, pem.reveal().as_bytes());
        }
        roots
    }

    pub(crate) fn signing(&self) -> Vec<signature::Secret> {
        self.secrets.iter().flat_map(|secret| signature::Secret::parse(secret.reveal())).collect()
    }

    pub(crate) fn header_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value.reveal()))
            {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        headers
    }
}

/// Names what is set, and hides secrets, headers and the path of the URL.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin =
            url::parse(self.url.reveal()).map_or_else(|_| "hidden".to_owned(), |uri| url::origin(&uri));
        let headers = self.headers.keys().flat_map(HeaderName::try_from).collect::<Vec<_>>();
        f.debug_struct("Config")
            .field("url", &origin)
            .field("format", &self.format)
            .field("source", &self.target.source)
            .field("secrets", &self.secrets.len())
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    OURS.contains(&name) || name.starts_with("ce-") || name.starts_with("webhook-")
}
