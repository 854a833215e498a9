//! Writers whose clocks differ from the database's: no row is due before it was created, and none is deferred.

use std::time::Duration;

use backstop_core::event::Stored;
use backstop_core::{Clock, Event, SystemClock, Timestamp};
use backstop_sql::TableName;
use backstop_sql::store::{At, Due, Order, Settle, SqlStore, Store};
use chrono::TimeDelta;

use crate::harness::*;

/// How far the writers' clocks are ahead.
const SKEWS: [(&str, TimeDelta); 5] = [
    ("ahead", TimeDelta::milliseconds(50)),
    ("far-ahead", TimeDelta::hours(1)),
    ("behind", TimeDelta::milliseconds(-50)),
    ("far-behind", TimeDelta::hours(-1)),
    ("right", TimeDelta::zero()),
];

/// Events as a writer whose clock shows `now` makes them: with no word on when they are due, and with each kind of it.
fn written(skew: &str, now: Timestamp) -> Vec<Event> {
    let event = |kind: &str| Event::of("T").id(format!("{skew}:{kind}")).occurred_at(now);
    let yesterday = now - TimeDelta::days(1);
    let stored = Stored {
        id: format!("{skew}:passed-on"),
        event_type: "T".to_owned(),
        occurred_at: now,
        aggregate_type: None,
        aggregate_id: None,
        tenant_id: None,
        headers: [].into(),
        payload_json: "{}".to_owned(),
        available_at: Some(now - TimeDelta::seconds(1)),
    };
    vec![
        event("plain").json(&()).unwrap(),
        event("at-once").available_at(now).json(&()).unwrap(),
        event("soon").deliver_after(Duration::from_micros(1)).json(&()).unwrap(),
        event("later").deliver_after(MINUTE).json(&()).unwrap(),
        event("yesterday").occurred_at(yesterday).json(&()).unwrap(),
        event("since").occurred_at(yesterday).available_at(now).json(&()).unwrap(),
        Event::restore(stored),
    ]
}

/// Events of every writer, in one statement for each.
async fn filled(it: &Fresh<impl Database>) -> Vec<String> {
    let mut ids = Vec::new();
    for (skew, ahead) in SKEWS {
        let events = written(skew, SystemClock.now() + ahead);
        it.insert(&events).await;
        ids.extend(events.iter().map(|event| event.id().to_owned()));
    }
    ids
}

/// Rows that are due before they were created, which the Java framework takes for broken, or created after now.
async fn broken(it: &Fresh<impl Database>, ids: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    for id in ids {
        let row = it.state(id).await;
        if row.available_at < row.created_at || row.created_at > Some(SystemClock.now()) {
            broken.push(format!("{id}: {row:?}"));
        }
    }
    broken
}

fn due_now() -> Due<'static> {
    Due { at: At::Database, ..due(0, 100) }
}

database_suite! {
    over migrated

    async fn no_row_is_due_before_it_was_created_however_far_the_writers_clock_is_off(it) {
        let ids = filled(&it).await;
        assert_eq!(broken(&it, &ids).await, [""; 0], "inserted");
        let settled = async |settlement: backstop_core::delivery::Settlement| {
            let settle = |id: &String| {
                Settle { id: id.clone(), claim: None, attempts: None, generation: None, settlement: settlement.clone() }
            };
            let settles: Vec<_> = ids.iter().map(settle).collect();
            assert_eq!(it.store.settle(At::Database, &settles).await.unwrap(), ids.len() as u64);
        };
        for after in [0, 1] {
            settled(retry(after, "again")).await;
            assert_eq!(broken(&it, &ids).await, [""; 0], "tried again after {after} s");
            settled(deferred(after)).await;
            assert_eq!(broken(&it, &ids).await, [""; 0], "deferred for {after} s");
        }
        settled(dead("given up")).await;
        assert_eq!(it.store.replay_dead(At::Database, &ids).await.unwrap(), ids.len() as u64);
        assert_eq!(broken(&it, &ids).await, [""; 0], "replayed");
        assert_eq!(it.store.poll(due_now()).await.unwrap().len(), ids.len(), "and all are due");
    }

    /// Rules: O-149, O-232.
    async fn a_row_was_created_when_its_event_happened_unless_that_is_still_to_come(it) {
        let (before, ahead) = (SystemClock.now(), SystemClock.now() + TimeDelta::hours(1));
        let event = |id: &str| Event::of("T").id(id);
        it.insert(&[
            event("then").occurred_at(moment(7)).json(&()).unwrap(),
            event("ahead").occurred_at(ahead).json(&()).unwrap(),
            event("told").occurred_at(ahead).deliver_after(MINUTE).json(&()).unwrap(),
        ]).await;
        let after = SystemClock.now();
        assert_eq!(it.state("then").await.created_at, Some(moment(7)));
        for id in ["ahead", "told"] {
            let created_at = it.state(id).await.created_at.unwrap();
            assert!(created_at >= before && created_at <= after, "{id}: {created_at}");
        }
        let told = it.state("told").await.available_at;
        assert_eq!(told, Some(ahead + MINUTE), "the moment that an application names is its own");
        let rows = it.store.poll(due_now()).await.unwrap();
        let read = rows.iter().find(|row| row.id == "ahead").unwrap();
        let happened = read.event.as_ref().unwrap().occurred_at();
        assert_eq!(Some(happened), it.state("ahead").await.created_at, "what the table says is what a handler sees");
    }

    async fn events_of_one_append_keep_their_order_when_the_writers_clock_is_ahead(it) {
        let ahead = SystemClock.now() + TimeDelta::hours(1);
        let events: Vec<_> = (0..40).rev().zip(0..).map(|(id, place)| {
            let occurred_at = ahead + TimeDelta::microseconds(place);
            Event::of("T").id(format!("{id:02}")).occurred_at(occurred_at).json(&()).unwrap()
        }).collect();
        let (first, second) = events.split_at(20);
        it.insert(first).await;
        it.insert(second).await;
        for order in [Order::Created, Order::Due] {
            let rows = it.store.poll(Due { order, ..due_now() }).await.unwrap();
            let read: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(read, events.iter().map(Event::id).collect::<Vec<_>>(), "{order:?}");
        }
    }

    async fn a_row_from_the_future_is_tried_again_when_it_should_be(it) {
        it.insert(&events("abc")).await;
        let ahead = SystemClock.now() + TimeDelta::hours(1);
        for id in ["a", "b", "c"] {
            let mut statement = it.statement("update outbox_event set available_at = ");
            statement.bind(ahead).push(", created_at = ").bind(ahead).push(" where event_id = ").bind(id);
            let mut connection = it.connections.connection().await.unwrap();
            connection.execute(&statement).await.unwrap();
        }
        let settle = |id: &str, settlement| Settle { id: id.to_owned(), claim: None, attempts: None, generation: None, settlement };
        let settles = [settle("a", retry(0, "again")), settle("b", deferred(0)), settle("c", dead("given up"))];
        assert_eq!(it.store.settle(At::Database, &settles).await.unwrap(), 3);
        assert_eq!(it.store.replay_dead(At::Database, &["c".to_owned()]).await.unwrap(), 1);
        let all = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(broken(&it, &all).await, [""; 0]);
        // Also where young rows are left to whoever wrote them, and where only the order of creation counts.
        let due = Due { order: Order::Created, ..due_now() };
        assert_eq!(it.store.poll(due).await.unwrap().len(), 3);
    }
}

/// A pool whose sessions have that mode.
async fn in_mode(it: &Fresh<impl Database>, mode: &'static str) -> sqlx::MySqlPool {
    let options = sqlx::mysql::MySqlPoolOptions::new().max_connections(1);
    let options = options.after_connect(move |connection, _| {
        Box::pin(async move {
            let set = format!("set session sql_mode = '{mode}'");
            sqlx::Executor::execute(connection, sqlx::AssertSqlSafe(set)).await.map(drop)
        })
    });
    options.connect(&it.url).await.unwrap()
}

backstop_testkit::suite! {
    over { mysql: migrated::<sqlx::MySql> }

    async fn a_date_of_zeros_does_not_hold_up_what_is_replayed_with_it(it) {
        it.insert(&events("ab")).await;
        for id in ["a", "b"] {
            it.settle(id, 10, dead("given up")).await;
        }
        let zero = "update outbox_event set created_at = 0 where event_id = 'a'";
        sqlx::query(zero).execute(&in_mode(&it, "").await).await.unwrap();
        // As MySQL's sessions are unless told otherwise.
        let strict = in_mode(&it, "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE").await;
        let store = SqlStore::on(strict, TableName::default());
        assert_eq!(store.replay_dead(At::Database, &["a", "b"].map(str::to_owned)).await.unwrap(), 2);
        assert_eq!(it.state("b").await.created_at, Some(moment(1)));
    }
}
