//! What a publisher is set up with: every setting, once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use backstop_core::breaker;
use backstop_core::config;
use backstop_core::config::{Parsed, Secret, ValueKind};
use backstop_core::setting::Faults;
use backstop_core::target;
use rdkafka::config::ClientConfig;

use crate::builder::PublisherBuilder;

/// Longer times mean nothing, and librdkafka counts milliseconds in 31 bits.
const DAY: Duration = Duration::from_secs(86_400);
/// How long to wait for a topic that does not exist yet.
const TOPIC_IS_MADE: Duration = Duration::from_secs(5);
/// Far above what an event can have.
const RECORD_BYTES: &str = "8388608";
/// Properties on which the promise depends that a delivered event is safe, or that have their own setting.
const OURS: [&str; 20] = [
    "acks",
    "batch.num.messages",
    "bootstrap.servers",
    "client.id",
    "compression.codec",
    "compression.type",
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

backstop_core::choice! {
    /// How a CloudEvent is written.
    pub enum Format {
        /// The payload as the value, and the attributes as `ce_` headers.
        Binary = "binary",
        /// Attributes and payload together, as JSON.
        Structured = "structured",
    }
}

backstop_core::choice! {
    /// How the records of a request are compressed.
    pub enum Compression {
        /// Not at all.
        None = "none",
        /// By LZ4.
        Lz4 = "lz4",
        /// By Snappy.
        Snappy = "snappy",
    }
}

config! {
    /// What a [`Publisher`](crate::Publisher) is set up with. [`Publisher::of`](crate::Publisher::of) begins one.
    ///
    /// ```
    /// use backstop_kafka::{Compression, Config, Publisher};
    ///
    /// let config = Config { compression: Compression::Lz4, ..Config::to("localhost:9092", "orders") };
    /// assert_eq!(Publisher::of(config).build()?.target().name(), "orders");
    /// # Ok::<(), backstop_kafka::Error>(())
    /// ```
    #[derive(Clone, PartialEq)]
    pub struct Config {
        /// Brokers of the cluster, each as `host:port`.
        bootstrap_servers: Vec<String> = Vec::new()
            => "bootstrap-servers": many(BROKER), required("it says where the brokers are");
        /// The topic.
        topic: String = String::new() => "topic": one(TOPIC), required("it says where events go");
        /// The name by which operators know the target.
        name: Option<String> = None => "name": one(ValueKind::Text), unset("the topic");
        /// How the CloudEvent is written: in headers beside the payload, or all in the value.
        format: Format = Format::Binary => "format": one(Format::KIND);
        /// The name under which the brokers know the connection.
        client_id: String = "backstop".to_owned() => "client-id": one(ValueKind::Text);
        /// How long the brokers' confirmation may take, including librdkafka's own retries; after that the event
        /// waits, with its route held.
        timeout: Duration = Duration::from_secs(30)
            => "timeout": one(ValueKind::time(Duration::from_millis(1), DAY));
        /// How long a record waits for others to share its request. A longer time gives more throughput and more
        /// delay.
        linger: Duration = Duration::from_millis(2)
            => "linger": one(ValueKind::time(Duration::ZERO, Duration::from_secs(1)));
        /// How the records of a request are compressed.
        compression: Compression = Compression::None => "compression": one(Compression::KIND);
        /// Properties of librdkafka, such as `security.protocol` or `sasl.password`, and their values, which are never
        /// shown. In a settings file a value may be `env:NAME` or `file:PATH`. Properties on which the delivery
        /// promise depends, such as `acks`, are refused.
        properties: BTreeMap<String, Secret> = BTreeMap::new() => "properties": map(PROPERTY), unset("none");
        ..target: target::Config = target::Config::default() => {
            source: Option<String>,
            pause: Duration,
            disabled_pause: Duration,
            breaker: breaker::Config,
        }
    }
    rules: between;
    setters: PublisherBuilder.config;
}

const BROKER: ValueKind = ValueKind::Parsed(&Parsed {
    word: "`host:port`",
    rule: "a broker, as host:port",
    secret: false,
    check: |text| match () {
        () if !is_broker(text) => Err("must name at least one broker, as host:port".to_owned()),
        // librdkafka would take them for the host, and tell everybody that it cannot be found.
        () if text.contains('@') => {
            Err("must not hold a user name or password; set those as properties".to_owned())
        }
        () => Ok(()),
    },
});

const TOPIC: ValueKind = ValueKind::Parsed(&Parsed {
    word: "topic",
    rule: "a name of 1 to 249 letters, digits, dots, hyphens and underscores",
    secret: false,
    check: |text| {
        let rule = "must have 1 to 249 letters, digits, dots, hyphens and underscores";
        if is_topic(text) { Ok(()) } else { Err(rule.to_owned()) }
    },
});

const PROPERTY: ValueKind = ValueKind::Parsed(&Parsed {
    word: "text, or where it is kept",
    rule: "a text",
    secret: true,
    check: |_| Ok(()),
});

/// What must hold between settings.
fn between(config: &Config, faults: &mut Faults) {
    if config.linger >= config.timeout {
        faults.add("linger", "must be less than the timeout");
    }
    for (name, value) in &config.properties {
        // librdkafka would wait for a pipe.
        let is_odd = |found: &std::fs::Metadata| !found.is_file() && !found.is_dir();
        if name.starts_with("ssl.")
            && name.ends_with(".location")
            && Path::new(value.reveal()).metadata().is_ok_and(|it| is_odd(&it))
        {
            faults.add("properties", format!("must set {name} to a regular file"));
        }
        if is_ours(name) {
            let rule = format!("must not set {name}: use the setting for it, or leave it as it is");
            faults.add("properties", rule);
        }
    }
}

impl Config {
    /// Everything at its default but the brokers (`host:port`, separated by commas) and the topic.
    pub fn to(bootstrap_servers: impl AsRef<str>, topic: impl Into<String>) -> Self {
        let servers = bootstrap_servers.as_ref().split(',').map(|broker| broker.trim().to_owned());
        Self { bootstrap_servers: servers.collect(), topic: topic.into(), ..Self::default() }
    }

    /// The name of its target: the setting `name`, or the topic.
    pub fn target_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.topic)
    }

    /// What must be equal for a producer to be shared: everything that does not belong to one record or one target.
    pub(crate) fn of_connection(&self) -> Self {
        let Self { topic, name, format, target, .. } = Self::default();
        Self { topic, name, format, target, ..self.clone() }
    }

    /// The settings in librdkafka's words.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", self.bootstrap_servers.join(","))
            .set("client.id", &self.client_id)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", millis(self.timeout))
            .set("topic.metadata.propagation.max.ms", millis(TOPIC_IS_MADE.min(self.timeout)))
            // The topic decides what is too large; batches have their own limit.
            .set("message.max.bytes", RECORD_BYTES)
            // A topic that was made, and a leader that changed, is noticed soon.
            .set("topic.metadata.refresh.interval.ms", millis(TOPIC_IS_MADE))
            .set("linger.ms", millis(self.linger))
            .set("compression.type", self.compression.to_string())
            // The partition that Java's clients choose for a key, so that both use the same one.
            .set("partitioner", "murmur2_random")
            // A broker that comes back is noticed soon.
            .set("reconnect.backoff.max.ms", "1000")
            .set("allow.auto.create.topics", "false");
        for (name, value) in &self.properties {
            client.set(name, value.reveal());
        }
        client
    }
}

/// Names what is set, and hides the properties' values, and brokers that contain a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brokers = self.bootstrap_servers.iter().all(|broker| !broker.contains('@'));
        f.debug_struct("Config")
            .field("bootstrap_servers", &brokers.then_some(&self.bootstrap_servers))
            .field("topic", &self.topic)
            .field("format", &self.format)
            .field("properties", &self.properties.keys().map(|name| shown(name)).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The name of a property as it may be repeated: with name and value exchanged it is a secret.
pub(crate) fn shown(name: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._".contains(&byte);
    if name.len() <= 60 && name.bytes().all(is_plain) { name } else { "…" }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One broker cannot show the difference: what it has written, all replicas have.
    #[test]
    fn records_are_confirmed_by_all_replicas_and_counted_by_the_brokers() {
        let mut config = Config::to("localhost:9092", "orders");
        config.properties.insert("retries".to_owned(), "9".into());
        let client = config.client();
        assert_eq!((client.get("acks"), client.get("enable.idempotence")), (Some("all"), Some("true")));
        assert_eq!((client.get("partitioner"), client.get("retries")), (Some("murmur2_random"), Some("9")));
        // A name that somebody mistyped must not become a topic.
        assert_eq!(client.get("allow.auto.create.topics"), Some("false"));
    }
}
