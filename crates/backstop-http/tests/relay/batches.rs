//! Batches: events that are delivered at the same time share a request and its answer.

use std::time::Duration;

use backstop_core::clock::Tick;
use backstop_core::inspect::Inspect as _;
use backstop_core::{Clock, Event, Failure, Handler as _, Outcome, SystemClock, Timestamp};
use backstop_http::Webhook;

use crate::receiver::{Receiver, status, unavailable};

const LINGER: Duration = Duration::from_millis(200);

fn event(number: usize) -> Event {
    Event::of("OrderPlaced").id(format!("evt-{number}")).json(&number).unwrap()
}

async fn all(webhook: &Webhook, count: usize) -> Vec<Result<Outcome, Failure>> {
    let sending: Vec<_> = (0..count)
        .map(|number| {
            let webhook = webhook.clone();
            tokio::spawn(async move { webhook.handle(event(number)).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in sending {
        answers.push(task.await.unwrap());
    }
    answers
}

/// How many events each request held, as the SDK reads them.
fn sizes(receiver: &Receiver) -> Vec<usize> {
    let read = |body: &[u8]| serde_json::from_slice::<Vec<cloudevents::Event>>(body).unwrap().len();
    receiver.arrived().iter().map(|arrived| read(&arrived.body)).collect()
}

#[tokio::test]
async fn concurrent_events_arrive_in_one_request() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(100, LINGER).build().unwrap();
    for answer in all(&webhook, 10).await {
        assert_eq!(answer.unwrap(), Outcome::Done);
    }
    assert_eq!(sizes(&receiver), [10]);
    assert_eq!(receiver.only().header("content-type"), Some("application/cloudevents-batch+json"));
}

#[tokio::test]
async fn a_full_batch_does_not_wait() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(5, Duration::from_secs(3600)).build().unwrap();
    assert!(all(&webhook, 10).await.into_iter().all(|answer| answer.unwrap() == Outcome::Done));
    assert_eq!(sizes(&receiver), [5, 5]);
}

#[tokio::test]
async fn a_batch_stays_within_the_limit_of_a_request() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(100, LINGER).request_limit(500).build().unwrap();
    assert!(all(&webhook, 9).await.into_iter().all(|answer| answer.unwrap() == Outcome::Done));
    assert_eq!(sizes(&receiver).iter().sum::<usize>(), 9);
    assert!(receiver.arrived().iter().all(|arrived| arrived.body.len() <= 500));

    let large = Event::of("E").json(&"x".repeat(600)).unwrap();
    assert_eq!(webhook.handle(large).await.unwrap_err().class(), "too-large");
}

#[tokio::test]
async fn a_target_that_is_unavailable_is_so_for_the_whole_batch() {
    let receiver = Receiver::answering([status(503)]).await;
    let webhook = receiver.webhook().batched(3, LINGER).build().unwrap();
    for answer in all(&webhook, 3).await {
        unavailable(answer);
    }
    assert_eq!(sizes(&receiver), [3]);
}

#[tokio::test]
async fn one_bad_event_does_not_bury_the_others() {
    // The batch is refused; alone, the first and the third are taken.
    let receiver = Receiver::answering([status(422), status(204), status(422), status(204)]).await;
    let webhook = receiver.webhook().batched(3, LINGER).build().unwrap();
    let answers = all(&webhook, 3).await;
    assert_eq!(sizes(&receiver), [3, 1, 1, 1]);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
    let refused = answers.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.class(), "http-422");
    assert_eq!(counted(&webhook).await, [2, 0, 1], "each event once, however often it was sent");
}

/// What an operator reads of the target: delivered, deferred, failed.
async fn counted(webhook: &Webhook) -> Vec<u64> {
    webhook.target().report().await.flows.iter().map(|flow| flow.total).collect()
}

#[tokio::test]
async fn a_target_counts_events_and_not_requests() {
    let receiver = Receiver::answering([status(204), status(503)]).await;
    let webhook = receiver.webhook().batched(10, LINGER).build().unwrap();
    assert!(all(&webhook, 10).await.into_iter().all(|answer| answer.unwrap() == Outcome::Done));
    assert_eq!(counted(&webhook).await, [10, 0, 0]);
    for answer in all(&webhook, 10).await {
        unavailable(answer);
    }
    assert_eq!((receiver.arrived().len(), counted(&webhook).await), (2, vec![10, 10, 0]));
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_the_others_answered() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(100, LINGER).build().unwrap();
    let first = tokio::spawn({
        let webhook = webhook.clone();
        async move { webhook.handle(event(0)).await }
    });
    tokio::task::yield_now().await; // it has begun the batch
    let second = tokio::spawn({
        let webhook = webhook.clone();
        async move { webhook.handle(event(1)).await }
    });
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(second.await.unwrap().unwrap(), Outcome::Done);
    assert_eq!(sizes(&receiver), [1], "the one that nobody waits for comes again by itself");
}

#[tokio::test]
async fn an_event_that_cannot_be_written_fails_alone() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(2, LINGER).build().unwrap();
    let broken = crate::hostile::restored("{no json");
    assert_eq!(webhook.handle(broken).await.unwrap_err().class(), "payload");
    assert!(receiver.arrived().is_empty());
}

/// A clock that fails whoever asks for the time of day: what sends a batch dies before it has an answer.
#[derive(Debug)]
struct Broken;

impl Clock for Broken {
    fn now(&self) -> Timestamp {
        panic!("on purpose")
    }

    fn ticks(&self) -> Tick {
        SystemClock.ticks()
    }
}

#[tokio::test]
async fn without_an_answer_an_event_waits_and_is_not_taken_for_delivered() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().batched(2, LINGER).clock(Broken).build().unwrap();
    for answer in all(&webhook, 2).await {
        unavailable(answer);
    }
    assert!(receiver.arrived().is_empty());
}
