//! What a test does with a topic: make it, and read what is in it.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::metadata::MetadataPartition;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::kafka::KafkaSpace;

const PATIENCE: Duration = Duration::from_secs(30);

/// A record as it was found in a topic, its bytes as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// The partition it was in.
    pub partition: i32,
    /// Its key.
    pub key: Option<String>,
    /// Its value.
    pub value: String,
    /// Its headers; each name appears once.
    pub headers: BTreeMap<String, String>,
}

impl KafkaSpace {
    /// Makes the topic of that name, with settings such as `("max.message.bytes", "2000")`, and gives its full name.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub async fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) -> String {
        let topic = self.topic(name);
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("a client for administrators");
        let fresh = NewTopic::new(&topic, partitions, TopicReplication::Fixed(1));
        let fresh = settings.iter().fold(fresh, |topic, (name, value)| topic.set(name, value));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let deadline = Instant::now() + PATIENCE;
        // A broker that has just begun knows of no controller yet.
        loop {
            match admin.create_topics([&fresh], &options).await.map(|made| made[0].clone()) {
                Ok(Ok(_)) => return topic,
                other if Instant::now() > deadline => panic!("the topic {topic} was not made: {other:?}"),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Reads the topic of that full name from its beginning to its present end.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub async fn records(&self, topic: &str) -> Vec<FoundRecord> {
        let (config, topic) = (self.config(), topic.to_owned());
        spawn_blocking(move || read(&config, &topic)).await.expect("a reader")
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.bootstrap())
            .set("group.id", format!("{}reader", self.prefix()))
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "50")
            .set("fetch.queue.backoff.ms", "5");
        config
    }
}

fn read(config: &ClientConfig, topic: &str) -> Vec<FoundRecord> {
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("the partitions of the topic");
    let partitions = metadata.topics()[0].partitions().iter().map(MetadataPartition::id);
    let mut ends = BTreeMap::new();
    let mut assigned = TopicPartitionList::new();
    for partition in partitions {
        let (_, end) = consumer.fetch_watermarks(topic, partition, PATIENCE).expect("the end of a partition");
        if end > 0 {
            ends.insert(partition, end);
            assigned.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
        }
    }
    consumer.assign(&assigned).expect("partitions to read");
    let mut found = Vec::new();
    while !ends.is_empty() {
        let message = consumer.poll(PATIENCE).expect("a record before the end").expect("a readable record");
        if message.offset() + 1 >= ends.get(&message.partition()).copied().unwrap_or_default() {
            ends.remove(&message.partition());
        }
        let text =
            |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text");
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let headers: Vec<_> = headers.map(|header| (header.key.to_owned(), text(header.value))).collect();
        let names = headers.len();
        let headers: BTreeMap<_, _> = headers.into_iter().collect();
        assert_eq!(headers.len(), names, "a header stands twice");
        let key = message.key().map(|key| text(Some(key)));
        found.push(FoundRecord {
            partition: message.partition(),
            key,
            value: text(message.payload()),
            headers,
        });
    }
    found
}
