//! The settings of a publisher: each has a default, and every fault is reported at once.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::setting::Faults;
use backstop_core::target::{self, Name, Pace, Target};
use backstop_core::{Clock, SystemClock, breaker};
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;

use crate::connection::Connection;
use crate::error::Error;
use crate::publisher::{Publisher, Relay};
use crate::record::Mode;

/// Longer times mean nothing, and librdkafka counts milliseconds in 31 bits.
const DAY: Duration = Duration::from_secs(86_400);
/// So long is a topic that nobody knows taken for one that is being made.
const TOPIC_IS_MADE: Duration = Duration::from_secs(5);
/// Far above what an event can have.
const RECORD_BYTES: &str = "8388608";
/// Properties on which the promise rests that a delivered event is safe, or that have a method of their own.
const OURS: [&str; 18] = [
    "acks",
    "batch.num.messages",
    "bootstrap.servers",
    "client.id",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "dr_cb",
    "dr_msg_cb",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.ms",
    "message.timeout.ms",
    "metadata.broker.list",
    "queue.buffering.max.ms",
    "request.required.acks",
    "test.mock.num.brokers",
    "transactional.id",
    // librdkafka would call the text as a function.
    "ut_handle_ProduceResponse",
];

/// Gathers the settings of a [`Publisher`].
///
/// ```
/// use std::time::Duration;
/// use backstop_kafka::Publisher;
///
/// let orders = Publisher::to("localhost:9092", "orders")
///     .structured()
///     .source("/shop/orders")
///     .linger(Duration::from_millis(1))
///     .property("compression.type", "lz4")
///     .build()?;
/// assert_eq!(orders.target().name(), "orders");
/// # Ok::<(), backstop_kafka::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder makes no publisher until `build` is called"]
pub struct PublisherBuilder {
    bootstrap_servers: String,
    topic: String,
    name: Option<String>,
    used_for: Option<String>,
    mode: Mode,
    source: String,
    client_id: String,
    timeout: Duration,
    linger: Duration,
    properties: Vec<(String, String)>,
    breaker: breaker::Config,
    pace: Pace,
    clock: Arc<dyn Clock>,
}

impl PublisherBuilder {
    pub(crate) fn new(bootstrap_servers: String, topic: String) -> Self {
        Self {
            bootstrap_servers,
            topic,
            name: None,
            used_for: None,
            mode: Mode::Binary,
            source: "/outbox/outbox".to_owned(),
            client_id: "backstop".to_owned(),
            timeout: Duration::from_secs(30),
            linger: Duration::from_millis(2),
            properties: Vec::new(),
            breaker: target::default_breaker(),
            pace: Pace::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Says whose events go there, as `orders: OrderPlaced`. It is the label `for` of the target's metrics, and keeps two
    /// with the same name apart. Defaults to nothing.
    pub fn used_for(mut self, what: impl Into<String>) -> Self {
        self.used_for = Some(what.into());
        self
    }

    /// The name by which operators know the target. Defaults to the topic.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Writes the payload as the value and the attributes as `ce_` headers. This is the default.
    pub fn binary(mut self) -> Self {
        self.mode = Mode::Binary;
        self
    }

    /// Writes the whole event as JSON, attributes and payload together. Defaults to [`binary`](Self::binary).
    pub fn structured(mut self) -> Self {
        self.mode = Mode::Structured;
        self
    }

    /// The `source` of every event: a URI reference that names the system which sends it.
    /// Defaults to `/outbox/outbox`, an outbox by its default name.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// The name under which the brokers know the connection. Defaults to `backstop`.
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = id.into();
        self
    }

    /// How long the brokers' confirmation may take, librdkafka's own tries included; after that the event is put
    /// off. Defaults to 30 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How long a record waits for others to share its request. More is faster in bulk, and later for each.
    /// Defaults to 2 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets a property of librdkafka, such as `compression.type`, `security.protocol` or `sasl.password`. Its value is never
    /// shown. Refused are those on which the delivery promise rests, such as `acks`. Defaults to none.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// When the brokers are left alone, and how they are tried again. Defaults to: after 5 failures in a row, or
    /// when half of the last 100 records failed; for 30 s; then 2 probes decide.
    pub fn breaker(mut self, config: breaker::Config) -> Self {
        self.breaker = config;
        self
    }

    /// How long an event is put off when the brokers are away; spread by half, and added to the time for
    /// which the breaker is open. Defaults to 5 s.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pace.pause = pause;
        self
    }

    /// How long an event is put off while the target is [disabled](Target::disable). Defaults to 1 h.
    pub fn park(mut self, park: Duration) -> Self {
        self.pace.park = park;
        self
    }

    /// Where the breaker reads the time, for tests that move it. Defaults to the machine's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Names every fault in the settings, without a connection to anybody.
    ///
    /// ```
    /// use backstop_kafka::Publisher;
    ///
    /// assert!(Publisher::to("localhost:9092", "orders").check().is_ok());
    /// assert!(Publisher::to("localhost:9092", "orders").property("linger", "soon").check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let mut faults = Faults::default();
        self.check_settings(&mut faults);
        if faults.is_empty() {
            faults.keep("property", self.config().create_native_config().map_err(told));
        }
        Ok(faults.into_result()?)
    }

    /// Ends the settings, or names every fault in them. Brokers that are away are no fault: events wait for them.
    pub fn build(self) -> Result<Publisher, Error> {
        self.check()?;
        let mut faults = Faults::default();
        let connection = Connection::open(self.config(), self.timeout).map_err(told);
        let Some(connection) = faults.keep("property", connection) else {
            return Err(faults.into_vec().into());
        };
        let name = Name::from(self.name.unwrap_or_else(|| self.topic.clone())).used_for(self.used_for);
        Ok(Publisher::new(Relay {
            connection,
            target: Target::new("topic", name, self.breaker, self.pace, self.clock),
            topic: self.topic,
            mode: self.mode,
            source: self.source,
            timeout: self.timeout,
        }))
    }

    fn check_settings(&self, faults: &mut Faults) {
        let mut brokers = self.bootstrap_servers.split(',').map(str::trim);
        if !brokers.all(is_broker) {
            faults.add("bootstrap_servers", "must name at least one broker, as host:port");
        } else if self.bootstrap_servers.contains('@') {
            // librdkafka would take them for the host, and tell everybody that it cannot be found.
            faults.add(
                "bootstrap_servers",
                "must not hold a user name or password, which are properties of their own",
            );
        }
        if !is_topic(&self.topic) {
            faults.add("topic", "must have 1 to 249 letters, digits, dots, hyphens and underscores");
        }
        if self.source.is_empty() || !self.source.bytes().all(|byte| byte.is_ascii_graphic()) {
            faults.add("source", "must be a URI reference such as /shop/orders");
        }
        for (setting, time) in
            [("timeout", self.timeout), ("pause", self.pace.pause), ("park", self.pace.park)]
        {
            faults.within(setting, time, Duration::from_millis(1)..=DAY);
        }
        faults.at_most("linger", self.linger, Duration::from_secs(1));
        if self.linger >= self.timeout {
            faults.add("linger", "must be less than the timeout");
        }
        for (name, value) in &self.properties {
            // librdkafka would wait for a pipe.
            let is_odd = |found: &std::fs::Metadata| !found.is_file() && !found.is_dir();
            if name.starts_with("ssl.")
                && name.ends_with(".location")
                && Path::new(value).metadata().is_ok_and(|it| is_odd(&it))
            {
                faults.add("property", format!("{name} must name a regular file"));
            }
            if is_ours(name) {
                let rule = format!("must not set {name}: use the method for it, or leave it as it is");
                faults.add("property", rule);
            }
        }
    }

    /// The settings in librdkafka's words.
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap_servers)
            .set("client.id", &self.client_id)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", millis(self.timeout))
            .set("topic.metadata.propagation.max.ms", millis(TOPIC_IS_MADE.min(self.timeout)))
            // What is too large is for the topic to say; batches have a bound of their own.
            .set("message.max.bytes", RECORD_BYTES)
            // A topic that was made, and a leader that changed, is noticed soon.
            .set("topic.metadata.refresh.interval.ms", millis(TOPIC_IS_MADE))
            .set("linger.ms", millis(self.linger))
            // Where Java's clients put a key, so that both meet in the same partition.
            .set("partitioner", "murmur2_random")
            // A broker that comes back is noticed soon.
            .set("reconnect.backoff.max.ms", "1000")
            .set("allow.auto.create.topics", "false");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }
}

/// librdkafka takes the properties of topics under a second name.
fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || name.strip_prefix("topic.").is_some_and(|name| OURS.contains(&name))
}

fn is_broker(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn is_topic(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// What librdkafka says about a configuration, without the value, which may be a secret.
fn told(error: KafkaError) -> String {
    match error {
        // librdkafka quotes the value.
        KafkaError::ClientConfig(_, said, name, value) if !value.is_empty() && said.contains(&value) => {
            format!("{name} is not understood")
        }
        KafkaError::ClientConfig(_, said, name, _) => format!("{name} is not understood: {said}"),
        KafkaError::ClientCreation(said) => format!("makes no producer: {said}"),
        other => other.to_string(),
    }
}

/// Names what is set, and hides the properties' values.
impl fmt::Debug for PublisherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("PublisherBuilder")
            .field("bootstrap_servers", &Some(&self.bootstrap_servers).filter(|them| !them.contains('@')))
            .field("topic", &self.topic)
            .field("mode", &self.mode)
            .field("properties", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One broker cannot show the difference: what it has written, all replicas have.
    #[test]
    fn records_are_confirmed_by_all_replicas_and_counted_by_the_brokers() {
        let config = Publisher::to("localhost:9092", "orders").property("retries", "9").config();
        assert_eq!((config.get("acks"), config.get("enable.idempotence")), (Some("all"), Some("true")));
        assert_eq!((config.get("partitioner"), config.get("retries")), (Some("murmur2_random"), Some("9")));
        // A name that somebody mistyped must not become a topic.
        assert_eq!(config.get("allow.auto.create.topics"), Some("false"));
    }
}
