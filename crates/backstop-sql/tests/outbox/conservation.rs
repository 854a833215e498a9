//! Conservation: whatever handlers answer, every event that was appended is somewhere, and in one place only.

use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure, Outcome};
use backstop_testkit::eventually;
use backstop_testkit::handlers::Recording;
use proptest::prelude::*;

use crate::harness::{DEAD, DONE, Database, NEW, RETRY, Shop, shop};
use crate::steps::{HOUR, commit};

/// What a handler does with an event.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Handled,
    PutOff,
    GivenUp,
    FailsForNow,
    FailsForGood,
    Panics,
    NeverRouted,
}

impl Fate {
    fn status(self) -> i64 {
        match self {
            Self::Handled => DONE,
            Self::PutOff => NEW,
            Self::FailsForNow | Self::Panics => RETRY,
            Self::GivenUp | Self::FailsForGood | Self::NeverRouted => DEAD,
        }
    }

    fn answer(self) -> Result<Outcome, Failure> {
        match self {
            Self::Handled => Ok(Outcome::Done),
            Self::PutOff => Ok(Outcome::RetryAfter(HOUR)),
            Self::GivenUp => Ok(Outcome::dead()),
            Self::FailsForNow => Err(Failure::transient("timeout", "no answer")),
            Self::FailsForGood => Err(Failure::permanent("schema", "no total")),
            Self::Panics => panic!("on purpose"),
            Self::NeverRouted => unreachable!("nobody handles these"),
        }
    }

    /// Its number in the payload is its fate.
    fn event(self) -> Event {
        let kind = if matches!(self, Self::NeverRouted) { "Unknown" } else { "OrderPlaced" };
        Event::of(kind).aggregate("Order", "1").json(&(self as u8)).unwrap()
    }
}

const FATES: [Fate; 7] = [
    Fate::Handled,
    Fate::PutOff,
    Fate::GivenUp,
    Fate::FailsForNow,
    Fate::FailsForGood,
    Fate::Panics,
    Fate::NeverRouted,
];

/// Appends events of these fates, some hot and some by the poller, and checks where they are in the end.
async fn check(shop: &Shop<impl Database>, fates: Vec<(Fate, bool)>) {
    let shop = shop.another().await;
    let recorder = Recording::of(|event: Event| async move { FATES[event.payload::<usize>()?].answer() });
    let outbox = shop
        .outbox()
        .interval(Duration::from_millis(2))
        .hot_queue_capacity(5)
        .cold_queue_capacity(5)
        .batch_size(3)
        .retry_policy(|_: u32, _: Jitter| HOUR)
        .on("Order", "OrderPlaced", recorder.clone())
        .start()
        .await
        .unwrap();
    for (fate, hot) in &fates {
        if *hot { commit(&outbox, vec![fate.event()]).await } else { shop.insert(&[fate.event()]).await }
    }
    let expected = |status| fates.iter().filter(|(fate, _)| fate.status() == status).count();
    let metrics = outbox.metrics();
    eventually("every event to be settled", async || {
        let settled = metrics.dispatch_success.total()
            + metrics.dispatch_failure.total()
            + metrics.dispatch_dead.total()
            + metrics.dispatch_deferred.total();
        settled >= fates.len() as u64
    })
    .await;
    outbox.close().await.unwrap();
    for status in [NEW, DONE, RETRY, DEAD] {
        assert_eq!(usize::try_from(shop.count(status).await), Ok(expected(status)), "status {status}");
    }
    assert_eq!(usize::try_from(shop.rows().await), Ok(fates.len()));
    // At least once: between a commit and the word of it the poller may be faster than the hot path.
    let mut delivered = recorder.ids();
    delivered.sort_unstable();
    delivered.dedup();
    let routed = fates.iter().filter(|(fate, _)| !matches!(fate, Fate::NeverRouted)).count();
    assert_eq!(delivered.len(), routed);
}

database_suite! {
    over shop on 2 threads

    async fn appended_is_done_and_waiting_and_retrying_and_dead(shop) {
        let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
        let fate = || (prop::sample::select(&FATES[..]), any::<bool>());
        tokio::task::block_in_place(|| {
            proptest!(config, |(fates in prop::collection::vec(fate(), 0..40))| {
                tokio::runtime::Handle::current().block_on(check(&shop, fates));
            });
        });
    }
}
