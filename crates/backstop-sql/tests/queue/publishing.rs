//! Publishing: in a transaction of its own and in the caller's, what the row holds, and that it lasts.

use std::time::Duration;

use backstop_core::Event;
use backstop_sql::{Error, Queue};

use crate::harness::*;

database_suite! {
    over empty

    /// Rules: Q-001, Q-007, Q-011, Q-033, Q-034, Q-035, Q-071, Q-076.
    async fn a_published_event_is_one_pending_row_without_attempts(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        let row = it.queued(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.attempts), ("PENDING", 0));
        assert_eq!((row.processing_started_at, row.available_at, row.last_error), (None, None, None));
        assert_eq!(row.event_type.as_deref(), Some("Numbered"));
        assert_eq!(row.created_at, row.updated_at);
        assert_eq!(it.rows().await, (1, 0), "and nothing else");
        let claimed = queue.poll().await.unwrap().unwrap();
        assert_eq!((claimed.id(), claimed.event().payload::<u32>().unwrap()), (id, 7));
        queue.close().await.unwrap();
    }

    async fn the_event_comes_back_as_it_went_in(it) {
        let queue = it.queue().name("shop").start().await.unwrap();
        let event = Event::of("OrderPlaced")
            .aggregate("Order", "42")
            .tenant_id("acme")
            .header("source-system", "checkout")
            .payload_json(r#"{ "total": 1.10, "note": "ünïcode" }"#)
            .build()
            .unwrap();
        let id = queue.publish(event.clone()).await.unwrap();
        let json = it.texts("select event from events".replace("event ", if it.kind.name() == "PostgreSQL" { "event::text " } else { "event " }).as_str()).await;
        assert!(json[0].contains(r#""source":"/queue/shop""#) && json[0].contains(r#""specversion":"1.0""#), "{json:?}");
        let claimed = queue.poll().await.unwrap().unwrap();
        assert_eq!((claimed.id(), claimed.event()), (id, &event));
    }

    async fn many_are_published_together_in_the_order_of_their_ids(it) {
        let queue = it.started().await;
        let ids = queue.publish_all((0..1_203).map(event).collect()).await.unwrap();
        assert_eq!(ids.len(), 1_203);
        assert!(ids.is_sorted());
        for (place, id) in [(0, ids[0]), (600, ids[600]), (1_202, ids[1_202])] {
            let found = queue.operations().find(id).await.unwrap().unwrap();
            assert_eq!(found.event.unwrap().payload::<u32>().unwrap(), place);
        }
        assert!(queue.publish_all(Vec::new()).await.unwrap().is_empty());
    }

    async fn what_a_transaction_publishes_exists_from_its_commit_on(it) {
        let queue = it.started().await;
        let mut tx = it.pool.begin().await.unwrap();
        let published = queue.publish_in(&mut *tx, event(1)).await.unwrap();
        let ids = published.ids().to_vec();
        if it.kind.name() != "SQLite" {
            assert!(queue.poll().await.unwrap().is_none(), "nobody sees it before");
        }
        tx.commit().await.unwrap();
        published.committed();
        assert_eq!(queue.poll().await.unwrap().unwrap().id(), ids[0]);
    }

    async fn what_a_transaction_rolls_back_never_was(it) {
        let queue = it.started().await;
        let mut tx = it.pool.begin().await.unwrap();
        let published = queue.publish_all_in(&mut *tx, vec![event(1), event(2)]).await.unwrap();
        assert_eq!(published.ids().len(), 2);
        tx.rollback().await.unwrap();
        drop(published);
        assert_eq!(it.rows().await, (0, 0));
    }

    async fn without_a_transaction_nothing_is_published_in_one(it) {
        let queue = it.started().await;
        let mut connection = it.connections.connection().await.unwrap();
        let refused = queue.publish_in(&mut *connection, event(1)).await.unwrap_err();
        assert!(matches!(refused, Error::NoTransaction), "{refused}");
        assert!(!connection.in_transaction());
        assert_eq!(it.rows().await, (0, 0));
    }

    /// Rules: Q-002.
    async fn a_published_event_survives_its_process(it) {
        let queue = it.started().await;
        let id = queue.publish(event(7)).await.unwrap();
        queue.close().await.unwrap();
        drop(queue);
        let later: Queue<_> = it.started().await;
        assert_eq!(later.poll().await.unwrap().unwrap().id(), id);
    }

    async fn a_delayed_event_is_not_taken_before_its_time(it) {
        let queue = it.started().await;
        let later = Event::of("Numbered").deliver_after(Duration::from_secs(3_600)).json(&1).unwrap();
        let id = queue.publish(later).await.unwrap();
        let row = it.queued(id).await.unwrap();
        assert!(row.available_at.is_some());
        assert!(queue.poll().await.unwrap().is_none());
        it.set_row(id, &format!("available_at = {}", it.sql_moment(0))).await;
        assert_eq!(queue.poll().await.unwrap().unwrap().id(), id);
    }
}
