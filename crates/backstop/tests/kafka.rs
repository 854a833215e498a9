//! An outbox that delivers to Kafka: an outage buries nothing, whatever kind it is.

mod outage;

use std::collections::BTreeSet;
use std::time::Duration;

use backstop::relay::{Publisher, Status};
use backstop::{Event, Outbox};
use backstop_testkit::servers::{self, KafkaSpace, PrivateKafka};
use backstop_testkit::{eventually, eventually_within};
use sqlx::{Sqlite, SqlitePool};

const EVENTS: usize = 20;
/// From the end of an outage to the last delivery: a broker's start and the clients' way back to it.
const RECOVERY: Duration = Duration::from_secs(60);

fn publisher(kafka: &KafkaSpace, topic: &str) -> Publisher {
    Publisher::to(kafka.bootstrap(), topic)
        .timeout(Duration::from_millis(500))
        .pause(Duration::from_millis(10))
        .breaker(outage::breaker())
        .build()
        .unwrap()
}

async fn outbox(pool: SqlitePool, publisher: &Publisher) -> Outbox<Sqlite> {
    outage::impatient(pool, publisher.clone()).worker_count(EVENTS).start().await.unwrap()
}

/// Appends `EVENTS` of them, whose ids begin with `name`.
async fn append(outbox: &Outbox<Sqlite>, name: &str) {
    let mut tx = outbox.begin().await.unwrap();
    for number in 0..EVENTS {
        let id = format!("{name}-{number}");
        tx.append(Event::of("OrderPlaced").id(&id).aggregate("Order", &id).json(&["tea"]).unwrap())
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
}

/// Status and attempts of the events whose ids begin with `name`.
async fn rows(pool: &SqlitePool, name: &str) -> Vec<(i64, i64)> {
    sqlx::query_as("select status, attempts from outbox_event where event_id like ?")
        .bind(format!("{name}-%"))
        .fetch_all(pool)
        .await
        .unwrap()
}

/// Appends while the brokers are unavailable, and shows that everything waits untouched. Two attempts would be
/// used up meanwhile, if they counted.
async fn all_wait(outbox: &Outbox<Sqlite>, pool: &SqlitePool, publisher: &Publisher, name: &str) {
    let before = outbox.metrics().dispatch_held.total();
    append(outbox, name).await;
    let held = || outbox.metrics().dispatch_held.total() - before;
    eventually_within(Duration::from_secs(30), "it was probed again and again", async || held() >= 6).await;
    assert_eq!(rows(pool, name).await, [(0, 0); EVENTS], "{name}: NEW, and no attempt counted");
    assert!(matches!(publisher.target().status(), Status::Unavailable(_)), "{:?}", publisher.target());
}

/// Shows that everything arrives once the outage is over, with no attempt counted.
async fn all_arrive(pool: &SqlitePool, broker: &PrivateKafka, topic: &str, name: &str) {
    let done = [(1, 0); EVENTS];
    eventually_within(RECOVERY, "everything arrives", async || rows(pool, name).await == done).await;
    let found = broker.space().records(topic).await;
    let ids: BTreeSet<_> = found.iter().map(|record| record.headers["ce_id"].as_str()).collect();
    let missing: Vec<_> = (0..EVENTS)
        .map(|number| format!("{name}-{number}"))
        .filter(|id| !ids.contains(id.as_str()))
        .collect();
    assert!(missing.is_empty(), "settled and not in the topic: {missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_are_away_for_longer_than_all_retries_bury_nothing() {
    let Some(mut broker) = servers::private_kafka().await else { return };
    let kafka = broker.space();
    let topic = kafka.create_topic("orders", 2, &[]).await;
    let database = servers::sqlite();
    let pool = database.pool().await;
    let publisher = publisher(&kafka, &topic);
    let outbox = outbox(pool.clone(), &publisher).await;
    append(&outbox, "calm").await;
    eventually("the first events arrive", async || rows(&pool, "calm").await == [(1, 0); EVENTS]).await;

    broker.freeze();
    all_wait(&outbox, &pool, &publisher, "frozen").await;
    broker.thaw();
    all_arrive(&pool, &broker, &topic, "frozen").await;

    broker.network().black_hole();
    all_wait(&outbox, &pool, &publisher, "lost").await;
    broker.network().cut();
    broker.network().restore();
    all_arrive(&pool, &broker, &topic, "lost").await;

    broker.stop().await;
    all_wait(&outbox, &pool, &publisher, "stopped").await;
    broker.start().await;
    all_arrive(&pool, &broker, &topic, "stopped").await;

    broker.kill().await;
    all_wait(&outbox, &pool, &publisher, "killed").await;
    broker.start().await;
    all_arrive(&pool, &broker, &topic, "killed").await;
    outbox.close().await.unwrap();
    assert_eq!(publisher.target().status(), Status::Available);
}

/// With the usual time-out of 30 s for a confirmation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_stop_answering_are_noticed_long_before_a_confirmation_is_given_up() {
    let Some(mut broker) = servers::private_kafka().await else { return };
    let kafka = broker.space();
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let database = servers::sqlite();
    let pool = database.pool().await;
    let publisher = Publisher::to(kafka.bootstrap(), &topic).build().unwrap();
    let outbox = outage::impatient(pool.clone(), publisher.clone()).start().await.unwrap();
    append(&outbox, "calm").await;
    eventually("the first events arrive", async || rows(&pool, "calm").await == [(1, 0); EVENTS]).await;

    broker.freeze();
    append(&outbox, "frozen").await;
    let noticed = async || matches!(publisher.target().status(), Status::Unavailable(_));
    eventually_within(Duration::from_secs(10), "the brokers to be unavailable", noticed).await;
    assert_eq!(outbox.metrics().dispatch_failure.total(), 0);
    // What was on its way may still arrive, and does.
    broker.thaw();
    all_arrive(&pool, &broker, &topic, "frozen").await;

    broker.stop().await;
    append(&outbox, "stopped").await;
    eventually_within(Duration::from_secs(5), "the brokers to be unavailable", noticed).await;
    let Status::Unavailable(why) = publisher.target().status() else { panic!("{:?}", publisher.target()) };
    assert!(why.starts_with("all brokers are down"), "the client's own word: {why}");
    assert_eq!(rows(&pool, "stopped").await, [(0, 0); EVENTS]);
    broker.start().await;
    all_arrive(&pool, &broker, &topic, "stopped").await;
    outbox.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_strict_order_nothing_is_overtaken_while_the_broker_is_frozen_or_stopped() {
    let Some(mut broker) = servers::private_kafka().await else { return };
    let kafka = broker.space();
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let database = servers::sqlite();
    let pool = database.pool().await;
    let publisher = publisher(&kafka, &topic);
    let builder = Outbox::ordered(pool.clone()).interval(Duration::from_millis(10));
    let outbox = builder.on("Order", "OrderPlaced", publisher.clone()).start().await.unwrap();
    let stages = ["calm", "frozen", "thawed", "stopped", "started"];
    for stage in stages {
        match stage {
            "frozen" => broker.freeze(),
            "thawed" => broker.thaw(),
            "stopped" => broker.stop().await,
            "started" => broker.start().await,
            _ => {}
        }
        append(&outbox, stage).await;
        if matches!(stage, "frozen" | "stopped") {
            let noticed = async || matches!(publisher.target().status(), Status::Unavailable(_));
            eventually("the brokers to be unavailable", noticed).await;
            // What comes now is behind what waits already.
            append(&outbox, &format!("{stage}-more")).await;
        }
    }
    let all: Vec<_> = ["calm", "frozen", "frozen-more", "thawed", "stopped", "stopped-more", "started"]
        .iter()
        .flat_map(|name| (0..EVENTS).map(move |number| format!("{name}-{number}")))
        .collect();
    let done = async || rows(&pool, "%").await == vec![(1, 0); all.len()];
    eventually_within(RECOVERY, "everything arrives, with no attempt counted", done).await;
    outbox.close().await.unwrap();
    let found = broker.space().records(&topic).await;
    let mut ids: Vec<_> = found.iter().map(|record| record.headers["ce_id"].clone()).collect();
    ids.dedup(); // a record whose confirmation was lost is sent again
    assert_eq!(ids, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_the_topic_refuses_is_dead_at_once_and_the_others_arrive() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("small", 1, &[("max.message.bytes", "2000")]).await;
    let database = servers::sqlite();
    let pool = database.pool().await;
    let publisher = Publisher::to(kafka.bootstrap(), &topic).build().unwrap();
    let outbox = outbox(pool.clone(), &publisher).await;
    let mut tx = outbox.begin().await.unwrap();
    for (id, bytes) in [("small-0", 10), ("large", 5000), ("small-1", 10)] {
        let event = Event::of("OrderPlaced").id(id).aggregate("Order", id).json(&"x".repeat(bytes)).unwrap();
        tx.append(event).await.unwrap();
    }
    tx.commit().await.unwrap();

    eventually("the small ones arrive", async || rows(&pool, "small").await == [(1, 0); 2]).await;
    let dead = "select last_error from outbox_event where event_id = 'large' and status = 3";
    let dead = async || sqlx::query_scalar::<_, String>(dead).fetch_optional(&pool).await.unwrap();
    eventually("the large one is given up", async || dead().await.is_some()).await;
    let error = dead().await.unwrap();
    assert!(error.starts_with("kafka-message-size-too-large: the record was refused"), "{error}");
    outbox.close().await.unwrap();
}
