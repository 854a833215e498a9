//! Polling: which rows are due, how many, in which order, and that nothing is written.

use std::time::Duration;

use backstop_core::delivery::Settlement::Done;
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::store::{At, DatabaseKind, Due, Order, Pair, Row, Store};

use crate::harness::*;

database_suite! {
    over migrated

    /// Rules: O-227, O-260.
    async fn only_new_and_retrying_rows_are_read(it) {
        it.insert(&events("abcd")).await;
        it.settle("b", 10, Done).await;
        it.settle("c", 10, retry(0, "again")).await;
        it.settle("d", 10, dead("given up")).await;
        assert_eq!(ids(&it.poll(20, 10).await), "ac");
    }

    /// Rules: O-261.
    async fn a_row_is_due_from_its_moment_on_and_not_before(it) {
        let later = Event::of("Later").id("a").occurred_at(moment(0)).available_at(moment(100)).json(&()).unwrap();
        it.insert(&[later]).await;
        assert_eq!(ids(&it.poll(99, 10).await), "");
        assert_eq!(ids(&it.poll(100, 10).await), "a");
    }

    /// Rules: O-262.
    async fn rows_younger_than_skip_recent_are_left_alone(it) {
        it.insert(&events("abc")).await;
        let due = |seconds| Due { skip_recent: Duration::from_secs(10), ..due(seconds, 10) };
        assert_eq!(ids(&it.store.poll(due(11)).await.unwrap()), "ab");
        assert_eq!(ids(&it.store.poll(due(12)).await.unwrap()), "abc");
    }

    /// Rules: O-263.
    async fn rows_are_handed_on_by_creation_then_id(it) {
        it.insert(&[event("d", 5), event("c", 5), event("e", 3), event("b", 5)]).await;
        it.settle("e", 10, retry(20, "later than all")).await;
        assert_eq!(ids(&it.poll(60, 10).await), "ebcd");
    }

    /// Rules: O-263, O-264.
    async fn of_too_many_those_that_have_been_due_longest_are_chosen_or_for_strict_order_the_oldest(it) {
        it.insert(&events("abcdef")).await;
        it.settle("a", 10, retry(30, "due at 40")).await;
        it.settle("b", 10, deferred(20)).await; // due at 30
        assert_eq!(ids(&it.poll(60, 4).await), "cdef");
        assert_eq!(ids(&it.poll(60, 5).await), "bcdef");
        let strict = |limit| Due { order: Order::Created, ..due(60, limit) };
        assert_eq!(ids(&it.store.poll(strict(2)).await.unwrap()), "ab");
        assert_eq!(ids(&it.store.poll(Due { at: at(35), ..strict(2) }).await.unwrap()), "bc");
    }

    async fn a_look_can_go_on_behind_the_last_row_of_the_one_before(it) {
        it.insert(&[event("a", 1), event("b", 1), event("c", 1), event("d", 2), event("e", 3)]).await;
        it.settle("b", 10, retry(0, "due at 10")).await;
        let (mut seen, mut after) = (String::new(), None);
        for _ in 0..3 {
            let rows = it.store.poll(Due { after: after.as_ref(), ..due(60, 2) }).await.unwrap();
            seen.push_str(&ids(&rows));
            after = rows.iter().filter_map(Row::place).max().or(after);
        }
        // Chosen by when they are due (a, c, d, e, then b), and each look handed on by creation.
        assert_eq!(seen, "acdeb");
        assert_eq!(ids(&it.store.poll(Due { after: after.as_ref(), ..due(60, 2) }).await.unwrap()), "");
        let claimed = it.claim("node-1", 20, 1).await; // a
        let behind = claimed[0].place();
        let due = Due { after: behind.as_ref(), ..due(60, 2) };
        let claimed = it.store.claim(&"node-1".into(), MINUTE, due).await.unwrap();
        assert_eq!(ids(&claimed), "cd");
    }

    /// Rules: O-176, O-177, O-178, O-179, O-259.
    async fn a_row_comes_back_as_the_event_that_went_in_whoever_its_tenant_is(it) {
        let whole = |id: &str, tenant: Option<&str>, seconds| {
            let mut event = Event::of("OrderPlaced")
                .id(id)
                .aggregate("Order", "42")
                .header("source", "checkout")
                .occurred_at(moment(seconds))
                .available_at(moment(seconds + 1))
                .payload_json(r#"{"total":1.10}"#);
            if let Some(tenant) = tenant {
                event = event.tenant_id(tenant);
            }
            event.build().unwrap()
        };
        let events = [whole("a", Some("acme"), 0), whole("b", Some("globex"), 1), whole("c", None, 2)];
        it.insert(&events).await;
        it.settle("b", 10, retry(0, "again")).await;
        let rows = it.poll(20, 10).await;
        let read: Vec<_> = rows.iter().map(|row| row.event.clone().unwrap()).collect();
        assert_eq!(read[0], events[0]);
        assert_eq!(read[2], events[2]);
        // A row that was tried has moved; everything else is the same.
        assert_eq!(read[1].available_at(), Some(moment(10)));
        assert_eq!(read[1].tenant_id(), Some("globex"));
        assert_eq!(rows.iter().map(|row| row.attempts).collect::<Vec<_>>(), [0, 1, 0]);
        assert!(rows.iter().all(|row| row.claim.is_none()));
    }

    /// Rules: O-265.
    async fn polling_neither_respects_nor_takes_claims(it) {
        it.insert(&events("ab")).await;
        it.claim("node-1", 10, 1).await;
        let before = (it.state("a").await, it.state("b").await);
        assert_eq!(ids(&it.poll(20, 10).await), "ab");
        assert_eq!((it.state("a").await, it.state("b").await), before);
    }

    /// Rules: O-116.
    async fn headers_that_are_null_or_empty_are_no_headers(it) {
        it.insert(&events("abc")).await;
        it.set("b", "headers = '{}'").await;
        it.set("c", "headers = 'null'").await;
        let mut read = it.poll(10, 10).await;
        if it.kind == DatabaseKind::Sqlite {
            it.set("c", "headers = ' '").await; // the others let no such text in
            read.extend(it.poll(10, 10).await);
        }
        assert!(read.iter().all(|row| row.event.as_ref().unwrap().headers().is_empty()));
    }

    /// Rules: O-108.
    async fn a_header_without_a_value_is_left_out_and_its_row_is_read(it) {
        it.insert(&events("ab")).await;
        it.set("a", r#"headers = '{"a":null}'"#).await;
        it.set("b", r#"headers = '{"a":null,"b":"2"}'"#).await;
        let rows = it.poll(10, 10).await;
        let headers: Vec<_> = rows.iter().map(|row| row.event.as_ref().unwrap().headers().clone()).collect();
        assert_eq!(headers, [[].into(), [("b".to_owned(), "2".to_owned())].into()]);
    }

    async fn a_row_that_cannot_be_decoded_says_why_and_does_not_fail_the_others(it) {
        it.insert(&events("abcd")).await;
        it.set("a", r#"headers = '{"a":null,"b":true}'"#).await;
        it.set("b", "headers = '[1]'").await;
        it.set("c", r#"headers = '{"a":1}'"#).await;
        let rows = it.poll(10, 10).await;
        assert_eq!(ids(&rows), "abcd");
        for row in &rows[..3] {
            let problem = row.event.as_ref().unwrap_err();
            assert!(problem.starts_with("headers are not a map of strings"), "{problem}");
        }
        assert!(rows[3].event.is_ok());
        assert_eq!(it.claim("node-1", 10, 10).await.iter().filter(|row| row.event.is_ok()).count(), 1);
    }

    async fn a_moment_that_no_calendar_has_spoils_its_own_row_only(it) {
        it.insert(&events("ab")).await;
        match it.kind {
            DatabaseKind::Postgres => it.set("a", "created_at = '-infinity'").await,
            DatabaseKind::Mysql => {
                let mut connection = it.connections.connection().await.unwrap();
                for text in ["set session sql_mode = ''", "update outbox_event set created_at = 0 where event_id = 'a'"] {
                    connection.execute(&it.statement(text)).await.unwrap();
                }
            }
            DatabaseKind::Sqlite => it.set("a", "created_at = '1999'").await,
        }
        let rows = it.poll(10, 10).await;
        assert_eq!(ids(&rows), "ab");
        assert!(rows[0].event.is_err() && rows[1].event.is_ok());
    }

    async fn the_databases_own_clock_is_the_present_in_utc(it) {
        let now = SystemClock.now();
        let at = |offset: i64| now + chrono::TimeDelta::seconds(offset);
        let event = |id: &str, seconds| Event::of("T").id(id).occurred_at(at(seconds)).json(&()).unwrap();
        let future = Event::of("T").id("future").available_at(at(600)).json(&()).unwrap();
        it.insert(&[event("past", -30), event("recent", -10), future]).await;
        let due = |skip_recent| Due { at: At::Database, skip_recent, limit: 10, order: Order::Due, after: None, pair: None };
        assert_eq!(ids(&it.store.poll(due(Duration::ZERO)).await.unwrap()), "pastrecent");
        assert_eq!(ids(&it.store.poll(due(Duration::from_secs(25))).await.unwrap()), "past");
        let claimed = it.store.claim(&"node-1".into(), MINUTE, due(Duration::ZERO)).await.unwrap();
        assert_eq!(ids(&claimed), "pastrecent");
        let taken = it.state("past").await.locked_at.unwrap() - now;
        assert!((-1..60).contains(&taken.num_seconds()), "{taken}");
        assert!(it.store.claim(&"node-2".into(), MINUTE, due(Duration::ZERO)).await.unwrap().is_empty());
    }

    async fn the_census_counts_each_status_up_to_a_cap(it) {
        it.insert(&events("abcdefg")).await;
        it.settle("a", 10, Done).await;
        it.settle("b", 10, dead("x")).await;
        it.settle("c", 10, retry(1, "x")).await;
        let census = it.store.census(3).await.unwrap();
        let count = |count: backstop_core::inspect::Count| (count.events, count.capped);
        assert_eq!(count(census.waiting), (3, true));
        assert_eq!(count(census.retrying), (1, false));
        assert_eq!(count(census.dead), (1, false));
        assert_eq!(count(census.done), (1, false));
    }

    /// Rules: O-250.
    async fn the_troubled_are_the_dead_then_the_retrying_with_the_tries_people_expect(it) {
        it.insert(&events("abc")).await;
        it.settle("a", 10, retry(5, "slow")).await;
        it.set("b", "attempts = 9").await;
        it.settle("b", 10, dead("given up")).await;
        let troubled = it.store.troubled(10).await.unwrap();
        let shown: Vec<_> = troubled.iter().map(|it| (it.id.as_str(), it.place, it.attempts)).collect();
        assert_eq!(shown, [("b", "dead", 10), ("a", "retrying", 1)]);
        assert_eq!(troubled[1].next_attempt_at, Some(moment(15)));
        assert_eq!(troubled[1].error.as_deref(), Some("slow"));
        assert_eq!(it.store.troubled(1).await.unwrap().len(), 1);
    }

    async fn rows_of_a_pair_of_types_are_read_alone_and_all_pairs_are_told(it) {
        let of = |id: &str, aggregate: Option<&str>, event_type: &'static str| {
            let event = Event::of(event_type).id(id).occurred_at(moment(1));
            match aggregate {
                Some(aggregate) => event.aggregate(aggregate.to_owned(), "1"),
                None => event,
            }
            .json(&())
            .unwrap()
        };
        it.insert(&[
            of("a", Some("Order"), "Placed"),
            of("b", Some("Order"), "Paid"),
            of("c", Some("Invoice"), "Paid"),
            of("d", None, "Tick"),
            of("e", Some("Order"), "Placed"),
        ])
        .await;
        // As a plain insert of another program may leave it.
        it.run("update outbox_event set aggregate_type = null where event_id = 'd'").await;
        let mut pairs = it.store.pending_pairs().await.unwrap().unwrap();
        pairs.sort_by_key(|pair| (pair.aggregate_type.clone(), pair.event_type.clone()));
        let pair = |aggregate: Option<&str>, event_type: &str| Pair {
            aggregate_type: aggregate.map(str::to_owned),
            event_type: event_type.to_owned(),
        };
        let all = [
            (pair(None, "Tick"), "d"),
            (pair(Some("Invoice"), "Paid"), "c"),
            (pair(Some("Order"), "Paid"), "b"),
            (pair(Some("Order"), "Placed"), "ae"),
        ];
        assert_eq!(pairs, all.clone().map(|(pair, _)| pair));
        for (pair, found) in &all {
            let due = Due { pair: Some(pair), ..due(60, 10) };
            assert_eq!(ids(&it.store.poll(due).await.unwrap()), *found);
        }
        let nobody = pair(Some("Order"), "Lost");
        assert!(it.store.poll(Due { pair: Some(&nobody), ..due(60, 10) }).await.unwrap().is_empty());
    }

    async fn what_became_due_since_the_last_question_is_told_and_what_was_there_before_is_not(it) {
        let late = |id: &str, created, due| {
            let event = Event::of("OrderPlaced").id(id).occurred_at(moment(created)).available_at(moment(due));
            event.payload_json("{}").build().unwrap()
        };
        it.insert(&[late("a", 0, 100), late("b", 0, 200), event("c", 150)]).await;
        let next = async |seconds, since: Option<i64>| {
            let next = it.store.next_due(at(seconds), since.map(moment)).await.unwrap().unwrap();
            assert_eq!(next.asked_at, moment(seconds));
            next.after.map(|after| after.as_secs())
        };
        assert_eq!(next(50, None).await, Some(50));
        assert_eq!(next(110, Some(50)).await, Some(0), "it became due meanwhile");
        assert_eq!(next(111, Some(110)).await, Some(39), "created at 150, and due then");
        assert_eq!(next(160, Some(140)).await, Some(40), "one that was created meanwhile was not scheduled");
        assert_eq!(next(250, Some(240)).await, None);
    }
}
