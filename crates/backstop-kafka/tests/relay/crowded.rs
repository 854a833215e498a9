//! More events at once than librdkafka's queue holds.

use std::time::Duration;

use backstop_core::{Event, Failure, Handler as _, Outcome};
use backstop_kafka::Publisher;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const EVENTS: usize = 12;

/// Publishes events side by side, through a queue that holds one.
async fn publish(brokers: &str, limit: Duration) -> Vec<Result<Outcome, Failure>> {
    let publisher = Publisher::to(brokers, "orders").timeout(limit).linger(Duration::ZERO);
    let publisher = publisher.property("queue.buffering.max.messages", "1").build().unwrap();
    let mut waiting: JoinSet<_> = (0..EVENTS)
        .map(|number| {
            let publisher = publisher.clone();
            async move { publisher.handle(Event::of("OrderPlaced").json(&number).unwrap()).await }
        })
        .collect();
    let mut answers = Vec::new();
    while let Some(answer) = waiting.join_next().await {
        answers.push(answer.unwrap());
    }
    answers
}

#[tokio::test]
async fn an_event_that_finds_the_queue_full_waits_for_room() {
    let cluster: MockCluster<'_, DefaultProducerContext> = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let answers = publish(&cluster.bootstrap_servers(), Duration::from_secs(30)).await;
    assert!(
        answers.iter().all(|answer| matches!(answer, Ok(Outcome::Done))) && answers.len() == EVENTS,
        "{answers:?}"
    );
}

/// Each that waits for the one before it would take twelve seconds in all.
#[tokio::test]
async fn nobody_waits_for_room_for_longer_than_a_confirmation_may_take() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let brokers = silent.local_addr().unwrap().to_string();
    let publishing = publish(&brokers, Duration::from_secs(1));
    let answers = tokio::time::timeout(Duration::from_secs(7), publishing).await.expect("it ends");
    let unavailable = |answer: &Result<_, Failure>| answer.as_ref().is_err_and(Failure::is_unavailable);
    assert!(answers.iter().all(unavailable), "{answers:?}");
}
