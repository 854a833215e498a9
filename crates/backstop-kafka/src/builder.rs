//! A publisher before it is built: its settings, and what is not a setting.

use std::sync::Arc;

use backstop_core::config::{Config as _, Secret};
use backstop_core::setting::Faults;
use backstop_core::target::{Name, Target};
use backstop_core::{Clock, SystemClock};
use rdkafka::error::KafkaError;

use crate::config::{Config, Format, shown};
use crate::connections::Connections;
use crate::error::Error;
use crate::publisher::{Publisher, Relay};

/// Gathers the settings of a [`Publisher`]: those of its [`Config`], one by one.
///
/// ```
/// use std::time::Duration;
/// use backstop_kafka::{Compression, Publisher};
///
/// let orders = Publisher::to("localhost:9092", "orders")
///     .structured()
///     .source("/shop/orders")
///     .linger(Duration::from_millis(1))
///     .compression(Compression::Lz4)
///     .property("socket.keepalive.enable", "true")
///     .build()?;
/// assert_eq!(orders.target().name(), "orders");
/// # Ok::<(), backstop_kafka::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder makes no publisher until `build` is called"]
pub struct PublisherBuilder {
    pub(crate) config: Config,
    component: Option<String>,
    number: u32,
    connections: Connections,
    clock: Arc<dyn Clock>,
}

impl From<Config> for PublisherBuilder {
    fn from(config: Config) -> Self {
        let (connections, clock) = (Connections::default(), Arc::new(SystemClock));
        Self { config, component: None, number: 1, connections, clock }
    }
}

impl PublisherBuilder {
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

    /// Writes the payload as the value and the attributes as headers: [`Format::Binary`], which is the default.
    pub fn binary(self) -> Self {
        self.format(Format::Binary)
    }

    /// Writes the whole event as JSON: [`Format::Structured`]. Defaults to [`binary`](Self::binary).
    pub fn structured(self) -> Self {
        self.format(Format::Structured)
    }

    /// Adds one of the [`properties`](Self::properties) of librdkafka. Defaults to none.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.config.properties.insert(name.into(), value.into());
        self
    }

    /// Shares a producer with other publishers that are given the same `Connections` and have equal settings.
    /// Defaults to its own producer.
    pub fn connections(mut self, connections: &Connections) -> Self {
        self.connections = connections.clone();
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
        self.config.check(&mut faults);
        if faults.is_empty() {
            faults.keep("properties", self.config.client().create_native_config().map_err(told));
        }
        Ok(faults.into_result()?)
    }

    /// Builds the publisher, or names every fault in its settings. Brokers that are unavailable are not a fault:
    /// events wait for them.
    pub fn build(self) -> Result<Publisher, Error> {
        self.check()?;
        let Self { config, component, number, connections, clock } = self;
        let mut faults = Faults::default();
        let connection = connections.of(&config).map_err(told);
        let Some(connection) = faults.keep("properties", connection) else {
            return Err(faults.into_vec().into());
        };
        let name = Name::from(config.target_name()).component(component).number(number);
        Ok(Publisher::new(Relay {
            connection,
            target: Target::new("topic", name, &config.target, clock),
            topic: config.topic,
            format: config.format,
            source: config.target.source_or_default().to_owned(),
            timeout: config.timeout,
        }))
    }
}

/// What librdkafka says about a configuration, without the value, which may be a secret, and without a name that may be one.
fn told(error: KafkaError) -> String {
    match error {
        // librdkafka quotes them.
        KafkaError::ClientConfig(_, said, name, value)
            if (!value.is_empty() && said.contains(&value)) || shown(&name) != name =>
        {
            format!("cannot be used: the value of {} is not understood", shown(&name))
        }
        KafkaError::ClientConfig(_, said, name, _) => {
            format!("cannot be used: {name} is not understood: {said}")
        }
        KafkaError::ClientCreation(said) => {
            format!("cannot be used: librdkafka cannot make a producer from them: {said}")
        }
        other => other.to_string(),
    }
}
