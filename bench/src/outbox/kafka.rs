//! From a backlog on PostgreSQL to Kafka, and the two halves of it by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use backstop_kafka::Publisher;
use backstop_sql::Outbox;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use sqlx::PgPool;

use super::ours::relayed;
use crate::contender::Drained;

/// How many records may be under way at once.
const IN_FLIGHT: usize = 1_000;
const PARTITIONS: i32 = 4;

fn brokers() -> Result<String> {
    std::env::var("BACKSTOP_TEST_KAFKA_BOOTSTRAP").context("BACKSTOP_TEST_KAFKA_BOOTSTRAP is not set")
}

/// A topic that is gone when this is dropped by [`Topic::delete`].
struct Topic {
    name: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Topic {
    async fn create() -> Result<Self> {
        let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", brokers()?).create()?;
        let name = format!("bench-{}-{}", std::process::id(), fresh_number());
        let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        for made in admin.create_topics([&topic], &AdminOptions::new()).await? {
            made.map_err(|(name, code)| anyhow::anyhow!("the topic {name} was not made: {code}"))?;
        }
        Ok(Self { name, admin })
    }

    async fn delete(self) -> Result<()> {
        self.admin.delete_topics(&[&self.name], &AdminOptions::new()).await?;
        Ok(())
    }
}

fn fresh_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The outbox, with a publisher for a handler.
pub(super) async fn multi_node(pool: PgPool, events: u32) -> Result<Drained> {
    let topic = Topic::create().await?;
    let publisher = Publisher::to(brokers()?, &topic.name).build()?;
    let start = Instant::now();
    let outbox = Outbox::multi_node(pool)
        .claim_locking(Duration::from_secs(300))
        .batch_size(500)
        .worker_count(IN_FLIGHT)
        .on("Order", "OrderPlaced", publisher)
        .start()
        .await?;
    let drained = relayed(outbox, start, events).await?;
    topic.delete().await?;
    Ok(drained)
}

/// Counts the records that the brokers confirmed.
#[derive(Clone, Default)]
struct Confirmed(Arc<AtomicU32>, Arc<AtomicU32>);

impl ClientContext for Confirmed {}

impl ProducerContext for Confirmed {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.0 } else { &self.1 };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same records by librdkafka alone, as fast as it takes them.
pub(super) async fn raw_produce(events: u32) -> Result<Drained> {
    let topic = Topic::create().await?;
    let brokers = brokers()?;
    let name = topic.name.clone();
    let took = tokio::task::spawn_blocking(move || produce(&brokers, &name, events)).await??;
    topic.delete().await?;
    Ok(Drained { events, took })
}

fn produce(brokers: &str, topic: &str, events: u32) -> Result<Duration> {
    let confirmed = Confirmed::default();
    let producer: ThreadedProducer<Confirmed> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "2")
        .create_with_context(confirmed.clone())?;
    let start = Instant::now();
    for number in 1..=events {
        let (id, key) = (format!("{number:026}"), number.to_string());
        let payload = serde_json::json!({"order": number, "text": "x".repeat(170)}).to_string();
        let mut record = BaseRecord::to(topic).key(&key).payload(&payload).headers(headers(&id, &key));
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => bail!(error),
            }
        }
    }
    while confirmed.0.load(Ordering::Relaxed) < events {
        ensure!(confirmed.1.load(Ordering::Relaxed) == 0, "a record was not confirmed");
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = start.elapsed();
    producer.flush(Duration::from_secs(10))?;
    Ok(took)
}

/// As many as the publisher writes.
fn headers(id: &str, key: &str) -> OwnedHeaders {
    [
        ("ce_specversion", "1.0"),
        ("ce_id", id),
        ("ce_source", "/outbox/outbox"),
        ("ce_type", "OrderPlaced"),
        ("ce_subject", key),
        ("ce_time", "2030-01-31T12:00:00.123456Z"),
        ("content-type", "application/json"),
        ("ce_aggregatetype", "Order"),
    ]
    .into_iter()
    .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }))
}
