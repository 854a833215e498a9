//! Payloads and texts that databases dislike: they come back as they went in.

use backstop_core::Event;
use backstop_core::delivery::Settlement::Done;
use backstop_core::event::limits;
use backstop_sql::store::{DatabaseKind, DeadFilter, Store};

use crate::harness::*;

/// Texts that break what is glued together in place of bound.
const HOSTILE: [&str; 13] = [
    "'",
    "\"",
    "\\",
    "\\'",
    "'; drop table outbox_event; --",
    "%",
    "_",
    "$1",
    "?",
    "{table}",
    "عربى‏",
    "😀𝕏",
    " x\t\n ",
];

fn carrying(id: &str, payload: &str) -> Event {
    Event::of("T").id(id).occurred_at(moment(0)).payload_json(payload).build().unwrap()
}

/// JSON of exactly so many bytes.
fn of_size(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

database_suite! {
    over migrated

    /// Rules: O-115.
    async fn payloads_come_back_byte_for_byte(it) {
        let payloads = [
            "null".to_owned(),
            "1e400000".to_owned(),
            "-0.0".to_owned(),
            "1.10".to_owned(),
            "123456789012345678901234567890.123456789".to_owned(),
            r#"{"b":1,"a":2,"b":3}"#.to_owned(),
            " {\r\n\t\"a\" :  [ 1 ,2 ] } ".to_owned(),
            r#""\u00e9 \ud83d\ude00 é 😀 \/ \\ \" \u007f""#.to_owned(),
            "{\"\u{2028}\":\"\u{202e}\u{feff}\"}".to_owned(),
            nested(31),
            nested(32),
            nested(128),
        ];
        for (number, payload) in payloads.iter().enumerate() {
            it.insert(&[carrying(&format!("{number:02}"), payload)]).await;
        }
        let polled = it.poll(10, 100).await;
        let claimed = it.claim("node-1", 10, 100).await;
        for ((payload, polled), claimed) in payloads.iter().zip(&polled).zip(&claimed) {
            assert_eq!(polled.event.as_ref().unwrap().payload_json(), payload);
            assert_eq!(claimed.event.as_ref().unwrap().payload_json(), payload);
        }
        assert_eq!((polled.len(), claimed.len()), (payloads.len(), payloads.len()));
    }

    /// Rules: O-115.
    async fn a_payload_may_have_a_mebibyte_to_the_byte(it) {
        let largest = of_size(limits::PAYLOAD_BYTES);
        it.insert(&[carrying("a", &largest)]).await;
        assert_eq!(it.poll(10, 1).await[0].event.as_ref().unwrap().payload_json(), largest);
    }

    /// Rules: O-266.
    async fn hostile_texts_in_every_field_come_back_as_they_went_in(it) {
        for (number, text) in HOSTILE.iter().enumerate() {
            let (id, seconds) = (format!("{number:02}{text}"), i64::try_from(number).unwrap());
            let event = Event::of(*text)
                .id(id.chars().take(limits::EVENT_ID).collect::<String>())
                .aggregate(*text, *text)
                .tenant_id(*text)
                .header(*text, *text)
                .occurred_at(moment(seconds))
                .json(text)
                .unwrap();
            it.insert(std::slice::from_ref(&event)).await;
            let rows = it.store.claim(&(*text).into(), MINUTE, due(seconds, 10)).await.unwrap();
            assert_eq!(rows.len(), 1, "{text:?}");
            assert_eq!(rows[0].event.as_ref(), Ok(&event));
            let claim = rows[0].claim.clone().unwrap();
            assert_eq!(&*claim.owner, *text);

            assert_eq!(it.settle_under(Some(&claim), event.id(), 100, dead(text)).await, 1, "{text:?}");
            let filter = DeadFilter {
                event_type: Some((*text).to_owned()),
                aggregate_type: Some((*text).to_owned()),
                aggregate_id: Some((*text).to_owned()),
                ids: Some(vec![event.id().to_owned()]),
                ..DeadFilter::default()
            };
            let dead = it.store.query_dead(&filter, None, 10).await.unwrap();
            assert_eq!((dead.len(), dead[0].error.as_deref()), (1, Some(*text)));
            assert_eq!(it.store.replay_dead(at(200), &[event.id().to_owned()]).await.unwrap(), 1);
            assert_eq!(it.settle(event.id(), 300, Done).await, 1);
        }
        assert_eq!(it.number("select count(*) from outbox_event").await, 13);
    }

    /// Rules: O-110, O-111, O-112, O-113, O-114, O-124.
    async fn every_column_holds_what_the_builder_lets_through_also_in_four_byte_characters(it) {
        let text = |chars: usize| "𝕏".repeat(chars);
        let event = Event::of(text(limits::EVENT_TYPE))
            .id(text(limits::EVENT_ID))
            .aggregate(text(limits::AGGREGATE_TYPE), text(limits::AGGREGATE_ID))
            .tenant_id(text(limits::TENANT_ID))
            .occurred_at(moment(0))
            .json(&())
            .unwrap();
        it.insert(std::slice::from_ref(&event)).await;
        let rows = it.claim(&text(128), 10, 1).await;
        assert_eq!(rows[0].event.as_ref(), Ok(&event));
        assert_eq!(it.state(event.id()).await.locked_by, Some(text(128)));
    }

    /// Rules: O-126.
    async fn every_moment_keeps_its_microseconds(it) {
        let micros = |micros| moment(0) + chrono::TimeDelta::microseconds(micros);
        let event = Event::of("T").id("a").occurred_at(micros(1)).available_at(micros(2)).json(&()).unwrap();
        it.insert(&[event]).await;
        let now = backstop_sql::store::At::Instant(micros(3));
        let due = backstop_sql::store::Due { at: now, ..due(0, 1) };
        let rows = it.store.claim(&"node-1".into(), MINUTE, due).await.unwrap();
        let event = rows[0].event.as_ref().unwrap();
        assert_eq!((event.occurred_at(), event.available_at()), (micros(1), Some(micros(2))));
        assert_eq!(it.state("a").await.locked_at, Some(micros(3)));
        let done = backstop_sql::store::Settle { id: "a".to_owned(), claim: None, attempts: None, generation: None, settlement: Done };
        it.store.settle(backstop_sql::store::At::Instant(micros(999_999)), &[done]).await.unwrap();
        assert_eq!(it.state("a").await.done_at, Some(micros(999_999)));
    }

    async fn a_json_column_that_was_there_before_returns_equal_json(it) {
        let altered = match it.kind {
            DatabaseKind::Postgres => {
                "alter table outbox_event alter payload type jsonb using payload::jsonb, \
                 alter headers type jsonb using headers::jsonb"
            }
            DatabaseKind::Mysql => "alter table outbox_event modify payload json not null",
            DatabaseKind::Sqlite => return,
        };
        it.run(altered).await;
        let payload = r#"{ "b": [1.50, "é"], "a": null }"#;
        let event = Event::of("T").id("a").header("k", "v").occurred_at(moment(0)).payload_json(payload).build();
        it.insert(&[event.unwrap()]).await;
        let rows = it.claim("node-1", 10, 1).await;
        let event = rows[0].event.as_ref().unwrap();
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(event.payload_json()), parsed(payload));
        assert_eq!(event.header("k"), Some("v"));
    }
}
