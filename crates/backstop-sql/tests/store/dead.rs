//! Dead events: listed oldest first, counted, filtered and set back.

use backstop_core::Event;
use backstop_core::delivery::Settlement::Done;
use backstop_core::inspect::Count;
use backstop_sql::outbox::{BroughtBack, DeadEvents, EventState, Redriven};
use backstop_sql::store::{
    After, At, ClaimedBy, DatabaseKind, DeadEvent, DeadFilter, Done as Keep, Status, Store,
};

use crate::harness::*;

/// Six dead events `a` … `f` of two types about two kinds of aggregates, and one of each other status.
async fn bury_six(it: &Fresh<impl Database>) {
    let build = |(id, seconds): (char, i64)| {
        let refund = seconds % 2 == 1;
        Event::of(if refund { "RefundIssued" } else { "OrderPlaced" })
            .id(id.to_string())
            .aggregate(if seconds < 3 { "Order" } else { "Invoice" }, if refund { "7" } else { "42" })
            .occurred_at(moment(seconds))
            .json(&())
            .unwrap()
    };
    let events: Vec<_> = "abcdefxyz".chars().zip(0..).map(build).collect();
    it.insert(&events).await;
    for (id, died) in [("f", 10), ("e", 11), ("d", 12), ("c", 13), ("b", 14), ("a", 15)] {
        it.settle(id, died, dead("given up")).await;
    }
    it.settle("x", 10, Done).await;
    it.settle("y", 10, retry(1, "again")).await;
}

/// A backslash as the database's texts have it.
fn escaped(it: &Fresh<impl Database>) -> &'static str {
    if it.kind == DatabaseKind::Mysql { "\\\\" } else { "\\" }
}

fn dead_ids(events: &[DeadEvent]) -> String {
    events.iter().map(|event| event.id.as_str()).collect()
}

fn of_type(event_type: &str) -> DeadFilter {
    DeadFilter { event_type: Some(event_type.to_owned()), ..DeadFilter::default() }
}

database_suite! {
    over migrated

    /// Rules: O-481, O-484, O-485, O-486.
    async fn the_dead_are_listed_oldest_first_all_or_by_type_and_aggregate(it) {
        bury_six(&it).await;
        let list = async |filter: DeadFilter| dead_ids(&it.store.query_dead(&filter, None, 100).await.unwrap());
        assert_eq!(list(DeadFilter::default()).await, "abcdef");
        assert_eq!(list(of_type("RefundIssued")).await, "bdf");
        let of_invoices = DeadFilter { aggregate_type: Some("Invoice".to_owned()), ..DeadFilter::default() };
        assert_eq!(list(of_invoices.clone()).await, "def");
        assert_eq!(list(DeadFilter { aggregate_type: of_invoices.aggregate_type, ..of_type("OrderPlaced") }).await, "e");
        assert_eq!(list(of_type("orderplaced")).await, "", "case counts");
        assert_eq!(list(of_type("Nothing")).await, "");
    }

    async fn the_dead_can_be_narrowed_by_aggregate_id_ids_and_time(it) {
        bury_six(&it).await;
        let list = async |filter: DeadFilter| dead_ids(&it.store.query_dead(&filter, None, 100).await.unwrap());
        let all = DeadFilter::default;
        assert_eq!(list(DeadFilter { aggregate_id: Some("7".to_owned()), ..all() }).await, "bdf");
        let ids = |ids: &str| Some(ids.chars().map(String::from).collect());
        assert_eq!(list(DeadFilter { ids: ids("fxa"), ..all() }).await, "af", "x is not dead");
        assert_eq!(list(DeadFilter { ids: ids(""), ..all() }).await, "");
        let (from, before) = (Some(moment(1)), Some(moment(4)));
        assert_eq!(list(DeadFilter { created_from: from, created_before: before, ..all() }).await, "bcd");
    }

    async fn the_dead_can_be_narrowed_by_when_and_of_what_they_died(it) {
        bury_six(&it).await;
        for (id, error) in [("a", "timeout: no answer"), ("b", "100% Timeout_x"), ("c", "a\\b '; drop table")] {
            it.set(id, &format!("last_error = '{}'", error.replace('\'', "''").replace('\\', escaped(&it)))).await;
        }
        // Not everybody records when an event died; then its creation counts.
        it.set("d", "done_at = null, last_error = null").await;
        let list = async |filter: DeadFilter| dead_ids(&it.store.query_dead(&filter, None, 100).await.unwrap());
        let all = DeadFilter::default;
        let error = |text: &str| DeadFilter { error_contains: Some(text.to_owned()), ..DeadFilter::default() };
        for (text, wanted) in
            [("timeout", "a"), ("Timeout_", "b"), ("0%", "b"), ("_", "b"), ("\\b '; d", "c"), ("given", "ef"), ("x y", "")]
        {
            assert_eq!(list(error(text)).await, wanted, "{text}");
            assert_eq!(it.store.count_dead(&error(text)).await.unwrap(), wanted.len() as u64, "{text}");
        }
        let died = |from: i64, before: i64| DeadFilter {
            died_from: Some(moment(from)),
            died_before: Some(moment(before)),
            ..all()
        };
        assert_eq!(list(died(11, 14)).await, "ce");
        assert_eq!(list(died(3, 10)).await, "d");
        assert_eq!(list(DeadFilter { died_from: Some(moment(15)), ..all() }).await, "a");
    }

    /// Rules: O-486, O-487.
    async fn the_list_is_limited_and_goes_on_behind_any_place(it) {
        let twins = [event("b", 5), event("a", 5), event("c", 5), event("d", 1)];
        it.insert(&twins).await;
        for twin in &twins {
            it.settle(twin.id(), 10, dead("given up")).await;
        }
        let all = DeadFilter::default();
        let first = it.store.query_dead(&all, None, 2).await.unwrap();
        assert_eq!(dead_ids(&first), "da");
        let after = After { created_at: first[1].created_at, id: first[1].id.clone() };
        assert_eq!(dead_ids(&it.store.query_dead(&all, Some(&after), 2).await.unwrap()), "bc");
    }

    /// Rules: O-250.
    async fn a_dead_event_tells_what_an_operator_asks(it) {
        it.insert(&events("ab")).await;
        it.set("a", "attempts = 9").await;
        it.settle("a", 20, dead("schema: no total")).await;
        it.settle("b", 20, dead("x")).await;
        it.set("b", "headers = '[1]', done_at = null").await;
        let dead = it.store.query_dead(&DeadFilter::default(), None, 10).await.unwrap();
        let a = &dead[0];
        assert_eq!((a.attempts, a.error.as_deref()), (10, Some("schema: no total")));
        assert_eq!((a.created_at, a.died_at), (moment(0), Some(moment(20))));
        assert_eq!(a.event, Ok(event("a", 0)));
        assert!(dead[1].event.is_err(), "also one that cannot be decoded is shown");
        assert_eq!(dead[1].died_at, None);
    }

    /// Rules: O-483, O-490.
    async fn the_dead_are_counted_all_or_by_type(it) {
        bury_six(&it).await;
        assert_eq!(it.store.count_dead(&DeadFilter::default()).await.unwrap(), 6);
        assert_eq!(it.store.count_dead(&of_type("OrderPlaced")).await.unwrap(), 3);
        assert_eq!(it.store.count_dead(&of_type("Nothing")).await.unwrap(), 0);
    }

    async fn no_more_of_the_dead_are_looked_at_than_asked_for_however_few_match(it) {
        bury_six(&it).await;
        let all = DeadFilter::default();
        let one = DeadFilter { ids: Some(vec!["f".to_owned()]), ..DeadFilter::default() };
        for (filter, cap, events, capped) in [
            (&all, 7, 6, false),
            (&all, 6, 6, false),
            (&all, 5, 5, true),
            (&of_type("OrderPlaced"), 6, 3, false),
            (&of_type("OrderPlaced"), 4, 2, true),
            (&of_type("Nothing"), 5, 0, true),
            (&of_type("Nothing"), 6, 0, false),
            (&one, 1, 1, false),
        ] {
            let counted = it.store.count_dead_up_to(filter, cap).await.unwrap();
            assert_eq!(counted, Count { events, capped }, "{filter} up to {cap}");
        }
        assert_eq!(it.store.newest_dead().await.unwrap(), Some(moment(5)), "that of f");
    }

    async fn where_nothing_is_dead_nothing_is_the_newest(it) {
        it.insert(&events("ab")).await;
        assert_eq!(it.store.newest_dead().await.unwrap(), None);
        assert_eq!(it.store.count_dead_up_to(&DeadFilter::default(), 5).await.unwrap(), Count::exactly(0));
    }

    /// Rules: O-251, O-482, O-488.
    async fn replay_makes_a_dead_event_new_as_if_it_had_never_been_tried(it) {
        it.insert(&events("ab")).await;
        it.set("a", "attempts = 9").await;
        it.settle("a", 20, dead("given up")).await;
        it.set("a", "locked_by = 'somebody', locked_at = created_at").await;
        assert_eq!(it.store.replay_dead(at(30), &["a".to_owned()]).await.unwrap(), 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.attempts, a.available_at), (0, 0, Some(moment(30))));
        assert_eq!((a.last_error, a.done_at, a.locked_by, a.locked_at), (None, None, None, None));
        assert_eq!(ids(&it.poll(30, 10).await), "ab");
    }

    /// Rules: O-489.
    async fn replay_leaves_alone_what_is_not_dead(it) {
        it.insert(&events("abc")).await;
        it.settle("a", 10, Done).await;
        it.settle("b", 10, retry(5, "again")).await;
        let before = [it.state("a").await, it.state("b").await, it.state("c").await];
        let all: Vec<_> = ["a", "b", "c", "nobody"].map(str::to_owned).into();
        assert_eq!(it.store.replay_dead(at(30), &all).await.unwrap(), 0);
        assert_eq!([it.state("a").await, it.state("b").await, it.state("c").await], before);
        assert_eq!(it.store.replay_dead(at(30), &[]).await.unwrap(), 0);
    }

    async fn a_replayed_event_cannot_be_settled_under_the_claim_it_died_under(it) {
        it.insert(&events("a")).await;
        let claim = it.claim("node-1", 10, 1).await[0].claim.clone().unwrap();
        it.settle_under(Some(&claim), "a", 11, dead("given up")).await;
        it.store.replay_dead(at(20), &["a".to_owned()]).await.unwrap();
        assert_eq!(it.settle_under(Some(&claim), "a", 21, Done).await, 0);
        it.claim("node-1", 22, 1).await;
        assert_eq!(it.settle_under(Some(&claim), "a", 23, Done).await, 0);
    }

    async fn only_the_dead_are_redriven_or_discarded_and_the_statement_counts(it) {
        it.insert(&events("abcde")).await;
        for id in ["a", "b", "c"] {
            it.settle(id, 10, dead("given up")).await;
        }
        it.settle("d", 10, Done).await;
        let before = [it.state("d").await, it.state("e").await];
        let some: Vec<_> = ["a", "d", "e", "nobody"].map(str::to_owned).into();
        assert_eq!(it.store.redriven(at(30), &some).await.unwrap(), 1);
        let a = it.state("a").await;
        assert_eq!((a.status, a.done_at, a.last_error.as_deref()), (1, Some(moment(30)), Some("given up")));
        assert_eq!(it.store.redriven(at(31), &some).await.unwrap(), 0);
        assert_eq!(it.state("a").await.done_at, Some(moment(30)));

        let all: Vec<_> = ["a", "b", "c", "d", "e", "nobody"].map(str::to_owned).into();
        let of_another_type = DeadFilter { event_type: Some("Nothing".to_owned()), ..DeadFilter::default() };
        assert_eq!(it.store.discard_dead(&of_another_type, &all).await.unwrap(), 0, "what matches by now");
        assert_eq!(it.store.discard_dead(&DeadFilter::default(), &["b".to_owned()]).await.unwrap(), 1);
        assert_eq!(it.store.discard_dead(&DeadFilter::default(), &all).await.unwrap(), 1);
        assert_eq!(it.texts("select event_id from outbox_event order by event_id").await, ["a", "d", "e"]);
        assert_eq!([it.state("d").await, it.state("e").await], before);
        for none in [it.store.redriven(at(30), &[]).await, it.store.discard_dead(&DeadFilter::default(), &[]).await] {
            assert_eq!(none.unwrap(), 0);
        }
    }

    async fn a_redriven_event_is_deleted_where_what_is_done_is(it) {
        it.insert(&events("ab")).await;
        it.settle("a", 10, dead("given up")).await;
        let deleting = it.store.clone().done(Keep::Delete);
        let ids: Vec<_> = ["a", "b"].map(str::to_owned).into();
        assert_eq!(deleting.redriven(at(30), &ids).await.unwrap(), 1);
        assert!(it.find("a").await.is_none());
        assert_eq!(it.state("b").await.status, 0);
    }

    async fn each_event_is_found_by_its_id_and_tells_where_it_stands(it) {
        it.insert(&events("abcdef")).await;
        it.settle("a", 10, Done).await;
        it.settle("b", 10, dead("schema: no total")).await;
        it.settle("c", 10, retry(5, "timeout: no answer")).await;
        it.settle("d", 10, deferred(60)).await;
        it.set("e", "locked_by = 'node-7', locked_at = created_at").await;
        it.set("f", "headers = '[1]'").await;
        let found = async |id: &str, seconds| it.store.whereabouts(at(seconds), id).await.unwrap().unwrap();
        let state = async |id: &str, seconds| found(id, seconds).await.state(MINUTE);

        assert_eq!(state("a", 20).await, EventState::Done { at: Some(moment(10)) });
        let given_up = EventState::Dead { since: Some(moment(10)), attempts: 1, error: Some("schema: no total".to_owned()) };
        assert_eq!(state("b", 20).await, given_up);
        for (seconds, is_due) in [(14, false), (15, true)] {
            let EventState::Retrying { failed, next, is_due: told } = state("c", seconds).await else { panic!() };
            assert_eq!((failed.attempts, failed.error.as_deref()), (1, Some("timeout: no answer")));
            assert_eq!((next, told), (moment(15), is_due));
        }
        assert_eq!(state("d", 20).await, EventState::Deferred { until: moment(70) });
        for (seconds, ran_out) in [(64, false), (65, true)] {
            let EventState::Claimed { by, has_run_out, .. } = state("e", seconds).await else { panic!() };
            assert_eq!(by, ClaimedBy { owner: "node-7".to_owned(), at: Some(moment(4)) });
            assert_eq!(has_run_out, ran_out);
        }
        let f = found("f", 20).await;
        assert_eq!(f.state(MINUTE), EventState::Waiting { since: moment(5) });
        assert!(f.event.is_err(), "also one that cannot be decoded is found");
        assert_eq!((f.asked_at, found("b", 20).await.event.unwrap().id()), (moment(20), "b"));
        assert_eq!(it.store.whereabouts(at(20), "nobody").await.unwrap(), None);
        assert_eq!(it.store.whereabouts(at(20), "").await.unwrap(), None);
    }

    async fn a_copy_brings_its_event_back_whatever_has_become_of_the_row(it) {
        it.insert(&events("abc")).await;
        it.settle("a", 10, dead("given up")).await;
        it.settle("b", 10, Done).await;
        let dead_events = DeadEvents::of(std::sync::Arc::new(it.store.clone()));
        let back = async |id: &str| dead_events.bring_back(&event(id, 1)).await.unwrap();
        assert_eq!(back("a").await, BroughtBack::Replayed);
        assert_eq!((it.state("a").await.status, it.state("a").await.done_at), (0, None));
        assert_eq!(back("a").await, BroughtBack::Pending, "it is on its way already");
        assert_eq!(back("b").await, BroughtBack::Done);
        assert_eq!(back("c").await, BroughtBack::Pending);
        assert_eq!(back("new").await, BroughtBack::Appended);
        let row = it.store.whereabouts(At::Database, "new").await.unwrap().unwrap();
        assert_eq!((row.status(), row.event.unwrap()), (Some(Status::New), event("new", 1)));
        assert!(!it.store.bring_back(&event("new", 1)).await.unwrap(), "never twice");
        it.set("c", "status = 7").await;
        assert!(dead_events.bring_back(&event("c", 1)).await.is_err());
        assert_eq!(it.state("c").await.status, 7);
    }

    async fn a_letter_that_arrived_settles_a_dead_row_and_no_other(it) {
        it.insert(&events("ab")).await;
        it.settle("a", 10, dead("given up")).await;
        let dead_events = DeadEvents::of(std::sync::Arc::new(it.store.clone()));
        for (id, wanted) in
            [("a", Redriven::Settled), ("a", Redriven::NotDead), ("b", Redriven::NotDead), ("x", Redriven::NoRow)]
        {
            assert_eq!(dead_events.redriven(id).await.unwrap(), wanted, "{id}");
        }
        assert_eq!((it.state("a").await.status, it.state("b").await.status), (1, 0));
    }
}
