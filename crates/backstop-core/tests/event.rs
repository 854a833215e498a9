//! The rules of the envelope: fields, defaults, limits, times, types.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_core::event::{AggregateType, EventType, GLOBAL, limits};
use backstop_core::{Clock, Event, InvalidEvent, SystemClock, Timestamp};
use proptest::prelude::*;

fn noon() -> Timestamp {
    "2030-06-01T12:00:00Z".parse().unwrap()
}

/// The fields that a refused event names.
fn fields(refused: &Result<Event, InvalidEvent>) -> Vec<&'static str> {
    refused.as_ref().unwrap_err().faults().iter().map(|fault| fault.field).collect()
}

/// Rules: O-138, O-141, O-142, O-143, O-144, O-145, O-148, O-150.
#[test]
fn what_is_not_given_has_its_default() {
    let before = SystemClock.now();
    let event = Event::of("OrderPlaced").payload_json("{}").build().unwrap();
    assert_eq!(event.id().len(), 26);
    assert!(event.id().parse::<u64>().is_err() && event.id().chars().all(|c| c.is_ascii_alphanumeric()));
    assert!(event.occurred_at() >= before && event.occurred_at() <= SystemClock.now());
    assert_eq!(event.aggregate_type(), "__GLOBAL__");
    assert_eq!((event.aggregate_id(), event.tenant_id()), (None, None));
    assert!(event.headers().is_empty());
    assert_eq!(event.available_at(), None);
    assert!(!event.is_delayed());
}

#[test]
fn what_is_given_is_kept() {
    let event = Event::of("OrderPlaced")
        .id("order-42-placed")
        .aggregate("Order", "42")
        .tenant_id("acme")
        .header("traceparent", "00-1-2-03")
        .occurred_at(noon())
        .available_at(noon() + Duration::from_secs(5))
        .payload_json(r#" {"total": 1.10} "#)
        .build()
        .unwrap();
    assert_eq!((event.id(), event.event_type()), ("order-42-placed", "OrderPlaced"));
    assert_eq!((event.aggregate_type(), event.aggregate_id()), ("Order", Some("42")));
    assert_eq!((event.tenant_id(), event.header("traceparent")), (Some("acme"), Some("00-1-2-03")));
    assert_eq!(event.occurred_at(), noon());
    assert_eq!(event.available_at(), Some(noon() + Duration::from_secs(5)));
    assert_eq!(event.payload_json(), r#" {"total": 1.10} "#);
}

/// Rules: O-140, O-147.
#[test]
fn type_and_payload_are_required_and_every_fault_is_named_at_once() {
    let refused = Event::of("").build();
    assert_eq!(fields(&refused), ["event_type", "payload"]);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("event_type must not be empty"), "{text}");
    assert!(text.contains("payload is required"), "{text}");
}

/// Rules: O-146, O-156.
#[test]
fn headers_are_strings_and_a_copy_of_the_callers_map() {
    let mut headers = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let event = Event::of("E").headers(headers.clone()).payload_json("{}").build().unwrap();
    headers.insert("b".to_owned(), "2".to_owned());
    let kept: &BTreeMap<String, String> = event.headers();
    assert_eq!(kept, &BTreeMap::from([("a".to_owned(), "1".to_owned())]));
}

/// Rules: O-152, O-153, O-154.
#[test]
fn a_payload_may_have_a_mebibyte_and_not_one_byte_more() {
    assert_eq!(limits::PAYLOAD_BYTES, 1_048_576);
    // Two bytes for a character: the limit is in bytes, not in characters.
    let exact = format!("\"{}\"", "é".repeat((1_048_576 - 2) / 2));
    assert_eq!(exact.len(), 1_048_576);
    assert!(Event::of_json("E", exact.clone()).is_ok());
    let refused = Event::of_json("E", exact + " ");
    assert_eq!(fields(&refused), ["payload"]);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("1048576 bytes, this one has 1048577"), "{text}");
}

#[test]
fn an_event_is_the_same_for_all_who_hold_it() {
    let event = Event::of_json("E", "{}").unwrap();
    let other = event.clone();
    assert_eq!(event, other);
    assert!(std::ptr::eq(event.payload_json(), other.payload_json()));
}

/// Rules: O-157.
#[test]
fn the_payload_reads_as_a_type_and_says_so_when_it_cannot() {
    let event = Event::of_json("OrderPlaced", r#"{"total":7}"#).unwrap();
    assert_eq!(event.payload::<BTreeMap<String, u32>>().unwrap()["total"], 7);
    let error = event.payload::<Vec<u32>>().unwrap_err();
    assert!(error.to_string().contains("payload of OrderPlaced"), "{error}");
}

/// Rules: O-151, O-165, O-174.
#[test]
fn a_delay_counts_from_when_it_happened_and_shows_as_available_at() {
    let event = Event::of("E")
        .occurred_at(noon())
        .deliver_after(Duration::from_secs(1800))
        .payload_json("{}")
        .build();
    assert_eq!(event.unwrap().available_at(), Some(noon() + Duration::from_secs(1800)));
    let tiny =
        Event::of("E").occurred_at(noon()).deliver_after(Duration::from_nanos(1)).payload_json("{}").build();
    assert!(tiny.unwrap().is_delayed());
}

/// Rules: O-159, O-160, O-161, O-162.
#[test]
fn delivery_times_that_make_no_sense_are_refused() {
    let event = || Event::of("E").occurred_at(noon()).payload_json("{}");
    let minute = Duration::from_secs(60);
    let cases = [
        (
            event().available_at(noon() + minute).deliver_after(minute).build(),
            "deliver_after",
            "together with available_at",
        ),
        (event().deliver_after(Duration::ZERO).build(), "deliver_after", "longer than zero"),
        (event().deliver_after_ms(-1).build(), "deliver_after", "longer than zero"),
        (event().deliver_after_ms(0).build(), "deliver_after", "longer than zero"),
        (event().deliver_after(Duration::MAX).build(), "deliver_after", "must end by the year 9999"),
        (
            event().deliver_after(minute * 60 * 24 * 366 * 8000).build(),
            "deliver_after",
            "must end by the year 9999",
        ),
        (
            event().available_at(noon() + minute * 60 * 24 * 366 * 8000).build(),
            "available_at",
            "years 1 to 9999",
        ),
        (
            event().occurred_at(noon() - minute * 60 * 24 * 366 * 2100).build(),
            "occurred_at",
            "years 1 to 9999",
        ),
        (event().available_at(noon() - minute).build(), "available_at", "before occurred_at"),
    ];
    for (refused, field, rule) in cases {
        assert_eq!(fields(&refused), [field]);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(rule), "{text}");
    }
    assert_eq!(
        event().deliver_after_ms(5).build().unwrap().available_at(),
        Some(noon() + Duration::from_millis(5))
    );
}

/// Rules: O-163, O-166, O-167, O-168, O-173.
#[test]
fn an_event_is_delayed_only_when_it_is_available_later_than_it_happened() {
    let at = |available_at| {
        Event::of("E").occurred_at(noon()).available_at(available_at).payload_json("{}").build()
    };
    assert!(at(noon() + Duration::from_micros(1)).unwrap().is_delayed());
    let same = at(noon()).unwrap();
    assert_eq!((same.is_delayed(), same.available_at()), (false, Some(noon())));
    assert!(!Event::of_json("E", "{}").unwrap().is_delayed());
}

enum User {
    Created,
}

impl EventType for User {
    fn name(&self) -> &str {
        match self {
            User::Created => "USER_CREATED",
        }
    }
}

enum Aggregates {
    User,
}

impl AggregateType for Aggregates {
    fn name(&self) -> &str {
        match self {
            Aggregates::User => "USER",
        }
    }
}

/// Rules: O-169, O-170, O-171, O-172, O-182, O-183, O-184, O-185, O-186, O-188, O-190.
#[test]
fn types_are_enums_or_strings() {
    let typed = Event::of(User::Created).aggregate_type(Aggregates::User).payload_json("{}").build().unwrap();
    assert_eq!((typed.event_type(), typed.aggregate_type()), ("USER_CREATED", "USER"));

    let named = Event::of("UserCreated").aggregate_type("User").payload_json("{}").build().unwrap();
    assert_eq!((named.event_type(), named.aggregate_type()), ("UserCreated", "User"));

    let dynamic: (String, String) = ("Dynamic".to_owned(), "Custom".to_owned());
    let made = Event::of(&dynamic.0).aggregate(&dynamic.1, "1").payload_json("{}").build().unwrap();
    assert_eq!((made.event_type(), made.aggregate_type()), ("Dynamic", "Custom"));

    assert_eq!(Event::of_json(User::Created, "[]").unwrap().payload_json(), "[]");
    assert_eq!(Event::of_json("UserCreated", "{}").unwrap().aggregate_type(), GLOBAL);
    assert_eq!(GLOBAL, "__GLOBAL__");
}

/// Rules: O-127, O-128, O-129, O-130, O-131.
#[test]
fn names_are_bounded_in_characters_not_empty_and_without_nul() {
    type With = fn(String) -> Result<Event, InvalidEvent>;
    let base = || Event::of("E").payload_json("{}");
    let with: [(&str, usize, With); 5] = [
        ("event_id", 36, |text| Event::of("E").id(text).payload_json("{}").build()),
        ("event_type", 128, |text| Event::of(text).payload_json("{}").build()),
        ("aggregate_type", 64, |text| Event::of("E").aggregate_type(text).payload_json("{}").build()),
        ("aggregate_id", 128, |text| Event::of("E").aggregate_id(text).payload_json("{}").build()),
        ("tenant_id", 64, |text| Event::of("E").tenant_id(text).payload_json("{}").build()),
    ];
    for (field, most, with) in with {
        assert!(with("é".repeat(most)).is_ok(), "{field}");
        for wrong in ["é".repeat(most + 1), String::new(), "a\0b".to_owned()] {
            assert_eq!(fields(&with(wrong)), [field]);
        }
    }
    assert_eq!(fields(&base().header("a\0", "1").build()), ["headers"]);
    assert_eq!(fields(&base().header("a", "1\0").build()), ["headers"]);
    assert_eq!(fields(&base().header("", "1").build()), ["headers"]);
}

#[test]
fn debug_shows_names_and_sizes_but_no_payload_and_no_header_value() {
    let event = Event::of("E").header("authorization", "hunter2").json("secret-payload").unwrap();
    let shown =
        format!("{event:?} {:?}", Event::of("E").payload_json("secret-payload").header("a", "hunter2"));
    assert!(shown.contains("authorization") && shown.contains("16 bytes"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("secret"), "{shown}");
}

proptest! {
    #[test]
    fn the_builder_accepts_exactly_what_its_rules_allow(
        event_type in ".{0,130}",
        aggregate_id in proptest::option::of(".{0,130}"),
        payload in ".{0,20}",
    ) {
        let mut builder = Event::of(event_type.as_str()).payload_json(payload.clone());
        if let Some(id) = &aggregate_id {
            builder = builder.aggregate_id(id.clone());
        }
        let name_is_fine = |text: &str, most: usize| {
            (1..=most).contains(&text.chars().count()) && !text.contains('\0')
        };
        let json: Result<serde_json::Value, _> = serde_json::from_str(&payload);
        let allowed = name_is_fine(&event_type, 128)
            && aggregate_id.as_deref().is_none_or(|id| name_is_fine(id, 128))
            && json.is_ok();
        prop_assert_eq!(builder.build().is_ok(), allowed);
    }

    #[test]
    fn times_are_kept_to_the_microsecond(seconds in 0_i64..4_000_000_000, nanos in 0_u32..1_000_000_000) {
        let given = chrono::DateTime::from_timestamp(seconds, nanos).unwrap();
        let event = Event::of("E").occurred_at(given).payload_json("{}").build().unwrap();
        let lost = given - event.occurred_at();
        prop_assert!(lost >= chrono::TimeDelta::zero() && lost < chrono::TimeDelta::microseconds(1));
    }
}
