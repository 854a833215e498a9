//! A sample tells how many rows of each kind are unfinished, and how old the oldest due one is, up to a cap.

use std::time::Duration;

use backstop_core::Event;
use backstop_core::event::GLOBAL;
use backstop_sql::store::{Sample, Sampled, Status, Store};

use crate::harness::*;

fn of_kind(id: &str, seconds: i64, aggregate: &str, kind: &str) -> Event {
    let event = Event::of(kind).id(id).occurred_at(moment(seconds)).payload_json("{}");
    let event = if aggregate == GLOBAL { event } else { event.aggregate(aggregate, "1") };
    event.build().unwrap()
}

/// Its kinds in an order that does not depend on the database.
fn sorted(mut sample: Sample) -> Vec<(String, String, Status, u64, Option<Duration>)> {
    sample.kinds.sort_by_key(|kind| (kind.status, kind.aggregate_type.clone(), kind.event_type.clone()));
    let told = |Sampled { aggregate_type, event_type, status, events, waited, .. }| {
        (aggregate_type, event_type, status, events, waited)
    };
    sample.kinds.into_iter().map(told).collect()
}

fn kind(
    aggregate: &str,
    kind: &str,
    status: Status,
    events: u64,
    waited: Option<u64>,
) -> (String, String, Status, u64, Option<Duration>) {
    (aggregate.to_owned(), kind.to_owned(), status, events, waited.map(Duration::from_secs))
}

database_suite! {
    over migrated

    async fn a_sample_counts_by_kind_and_status_and_knows_the_oldest_due_row(it) {
        assert_eq!(it.store.sample(at(0), 10).await.unwrap(), Some(Sample::default()));
        it.insert(&[
            of_kind("old", 0, "Order", "OrderPlaced"),
            of_kind("new", 50, "Order", "OrderPlaced"),
            of_kind("tick", 60, GLOBAL, "Tick"),
            of_kind("fails", 10, "Order", "OrderPlaced"),
            of_kind("dies", 20, "Order", "OrderPaid"),
            of_kind("done", 5, "Order", "OrderPaid"),
            // A later try: it is pending and not due.
            of_kind("ahead", 1, "Order", "OrderPaid"),
        ]).await;
        it.settle("fails", 30, retry(5, "no")).await;
        it.settle("dies", 30, dead("never")).await;
        it.settle("done", 30, backstop_core::delivery::Settlement::Done).await;
        it.settle("ahead", 30, deferred(3_600)).await;
        let sample = it.store.sample(at(100), 10).await.unwrap().unwrap();
        assert_eq!(sample.capped, []);
        let oldest = sample.kinds.iter().filter_map(|kind| kind.oldest_due).min();
        assert_eq!(oldest, Some(moment(0)));
        assert_eq!(sorted(sample), [
            kind("Order", "OrderPaid", Status::New, 1, None),
            kind("Order", "OrderPlaced", Status::New, 2, Some(100)),
            kind(GLOBAL, "Tick", Status::New, 1, Some(40)),
            kind("Order", "OrderPlaced", Status::Retry, 1, Some(90)),
            kind("Order", "OrderPaid", Status::Dead, 1, None),
        ]);
    }

    /// Those that have been due the longest are the ones that count.
    async fn a_sample_ends_at_its_cap_and_says_so(it) {
        it.insert(&[
            of_kind("a", 0, "Order", "OrderPlaced"),
            of_kind("b", 1, "Order", "OrderPlaced"),
            of_kind("c", 2, "Order", "OrderPaid"),
        ]).await;
        let sample = it.store.sample(at(10), 2).await.unwrap().unwrap();
        assert_eq!(sample.capped, [Status::New]);
        assert_eq!(sorted(sample), [kind("Order", "OrderPlaced", Status::New, 2, Some(10))]);
    }

    /// A claimed row is waiting all the same, however long its handler takes.
    async fn a_claimed_row_is_part_of_a_sample(it) {
        it.insert(&[of_kind("a", 0, "Order", "OrderPlaced")]).await;
        assert_eq!(it.claim("node-1", 5, 10).await.len(), 1);
        let sample = it.store.sample(at(30), 10).await.unwrap().unwrap();
        assert_eq!(sorted(sample), [kind("Order", "OrderPlaced", Status::New, 1, Some(30))]);
    }
}
