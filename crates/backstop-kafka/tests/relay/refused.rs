//! Records that the brokers do not take, and topics that they do not have.

use std::time::Duration;

use backstop_core::breaker::Config;
use backstop_core::failure::Kind;
use backstop_core::inspect::{Health, Inspect as _};
use backstop_core::{Event, Handler as _, Outcome};
use backstop_kafka::{Publisher, PublisherBuilder, Status};
use backstop_testkit::eventually_within;
use backstop_testkit::servers::{self, KafkaSpace};
use tokio::task::JoinSet;

fn to(kafka: &KafkaSpace, topic: &str) -> PublisherBuilder {
    Publisher::to(kafka.bootstrap(), topic).timeout(Duration::from_secs(20))
}

fn of_bytes(bytes: usize) -> Event {
    Event::of("OrderPlaced").json(&"x".repeat(bytes)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_record_is_not_condemned_for_the_size_of_its_company() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("small", 1, &[("max.message.bytes", "2000")]).await;
    // Long enough that all of them share a request, which is too large.
    let publisher = to(&kafka, &topic).linger(Duration::from_millis(200)).build().unwrap();
    let mut waiting: JoinSet<_> = (0..40)
        .map(|_| {
            let publisher = publisher.clone();
            async move { publisher.handle(of_bytes(200)).await }
        })
        .collect();
    while let Some(answer) = waiting.join_next().await {
        assert_eq!(answer.unwrap().unwrap(), Outcome::Done);
    }
    assert_eq!(kafka.records(&topic).await.len(), 40);
}

#[tokio::test]
async fn a_record_that_is_too_large_by_itself_is_refused_for_good() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("small", 1, &[("max.message.bytes", "2000")]).await;
    let publisher = to(&kafka, &topic).build().unwrap();
    let at_the_broker = publisher.handle(of_bytes(5000)).await.unwrap_err();
    let narrow = to(&kafka, &topic).property("message.max.bytes", "1000").build().unwrap();
    let before_it = narrow.handle(of_bytes(1500)).await.unwrap_err();
    for failure in [at_the_broker, before_it] {
        assert_eq!((failure.class(), failure.kind()), ("kafka-message-size-too-large", Kind::Permanent));
    }
    assert_eq!(publisher.target().status(), Status::Available, "that says nothing against the brokers");
    assert_eq!(publisher.handle(of_bytes(10)).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn without_its_topic_an_event_waits_until_somebody_makes_it() {
    let Some(kafka) = servers::kafka().await else { return };
    let publisher = to(&kafka, &kafka.topic("late")).timeout(Duration::from_secs(6));
    let breaker = Config { wait_in_open: Duration::from_millis(100), ..Config::default() };
    let publisher = publisher.pause(Duration::from_millis(10)).breaker(breaker).build().unwrap();
    let failure = publisher.handle(of_bytes(10)).await.unwrap_err();
    assert!(failure.is_unavailable(), "{failure:?}");
    assert!(
        matches!(publisher.target().status(), Status::Unavailable(why) if why.contains("there is no topic"))
    );

    let topic = kafka.create_topic("late", 1, &[]).await;
    let goes_out = async || publisher.handle(of_bytes(10)).await.is_ok();
    eventually_within(Duration::from_secs(30), "the event goes out", goes_out).await;
    assert!(!kafka.records(&topic).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_sees_that_the_topic_is_missing() {
    let Some(kafka) = servers::kafka().await else { return };
    let publisher = to(&kafka, &kafka.topic("missing")).name("orders").build().unwrap();
    let mut waiting: JoinSet<_> = (0..8)
        .map(|_| {
            let publisher = publisher.clone();
            async move { publisher.handle(of_bytes(10)).await.unwrap_err() }
        })
        .collect();
    while let Some(failure) = waiting.join_next().await {
        assert!(failure.unwrap().is_unavailable());
    }
    let report = publisher.target().report().await;
    assert_eq!((report.kind, report.name.as_str()), ("topic", "orders"));
    let Health::Down(why) = report.health else { panic!("{:?}", report.health) };
    assert!(why.contains("there is no topic") && why.contains("create it"), "{why}");
}

/// Clocks that disagree are nobody's fault among the events: here the broker takes every record for too old.
#[tokio::test]
async fn a_time_that_the_brokers_refuse_is_an_outage() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("late", 1, &[("message.timestamp.before.max.ms", "1")]).await;
    let publisher = to(&kafka, &topic).linger(Duration::from_millis(200)).build().unwrap();
    let failure = publisher.handle(of_bytes(10)).await.unwrap_err();
    assert!(failure.is_unavailable(), "{failure:?}");
}
