//! What is in a topic after events were published.

use std::collections::{BTreeMap, BTreeSet};

use backstop_core::{Event, Handler as _, Outcome};
use backstop_kafka::Publisher;
use backstop_testkit::servers::{self, KafkaSpace};
use tokio::task::JoinSet;

/// Publishes all of them, one after the other.
async fn publish(publisher: &Publisher, events: impl IntoIterator<Item = Event>) {
    for event in events {
        assert_eq!(publisher.handle(event).await.unwrap(), Outcome::Done);
    }
}

fn publisher(kafka: &KafkaSpace, topic: &str) -> Publisher {
    Publisher::to(kafka.bootstrap(), topic).source("/shop").build().unwrap()
}

fn numbered(number: usize, aggregate: &str) -> Event {
    let event = Event::of("OrderPlaced").id(format!("evt-{number}")).aggregate("Order", aggregate);
    event.json(&number).unwrap()
}

/// Rules: O-445.
#[tokio::test]
async fn a_record_has_the_aggregate_as_key_and_the_event_id_in_a_header() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = Event::of("OrderPlaced").id("evt-1").aggregate("Order", "42").tenant_id("acme");
    let event = event.header("traceparent", trace).payload_json(r#"{"total": 1.10, "to": "Zoë"}"#);
    publish(&publisher(&kafka, &topic), [event.build().unwrap()]).await;

    let found = kafka.records(&topic).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key.as_deref(), Some("42"));
    assert_eq!(found[0].value, r#"{"total": 1.10, "to": "Zoë"}"#, "byte for byte");
    for (name, value) in [
        ("ce_id", "evt-1"),
        ("ce_source", "/shop"),
        ("ce_specversion", "1.0"),
        ("ce_type", "OrderPlaced"),
        ("ce_subject", "42"),
        ("ce_aggregatetype", "Order"),
        ("ce_tenantid", "acme"),
        ("ce_traceparent", trace),
        ("traceparent", trace),
        ("content-type", "application/json"),
    ] {
        assert_eq!(found[0].headers.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[tokio::test]
async fn the_events_of_an_aggregate_share_a_partition_in_their_order() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 4, &[]).await;
    let events = (0..40).map(|number| numbered(number, &format!("order-{}", number % 8)));
    publish(&publisher(&kafka, &topic), events).await;

    let mut orders: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for record in kafka.records(&topic).await {
        orders.entry(record.key.unwrap()).or_default().push((record.partition, record.value));
    }
    assert_eq!(orders.len(), 8);
    for (number, (order, found)) in orders.into_iter().enumerate() {
        let partitions: BTreeSet<_> = found.iter().map(|(partition, _)| partition).collect();
        assert_eq!(partitions.len(), 1, "{order}");
        let values: Vec<_> = found.iter().map(|(_, value)| value.parse::<usize>().unwrap()).collect();
        assert_eq!(values, (0..5).map(|round| round * 8 + number).collect::<Vec<_>>(), "{order}");
    }
}

/// The hashes are those of the Java client's own tests: murmur2 of "21" and of "foobar".
#[tokio::test]
async fn a_key_goes_to_the_partition_where_java_clients_put_it() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 4, &[]).await;
    let java = |hash: i32| (hash & i32::MAX) % 4;
    publish(&publisher(&kafka, &topic), [numbered(1, "21"), numbered(2, "foobar")]).await;
    let places: BTreeMap<_, _> = kafka
        .records(&topic)
        .await
        .into_iter()
        .map(|record| (record.key.unwrap(), record.partition))
        .collect();
    assert_eq!((places["21"], places["foobar"]), (java(-973_932_308), java(-790_332_482)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_in_flight_at_once_and_each_is_confirmed() {
    const EVENTS: usize = 5000;
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 4, &[]).await;
    let publisher = publisher(&kafka, &topic);
    let mut waiting: JoinSet<_> = (0..EVENTS)
        .map(|number| {
            let publisher = publisher.clone();
            async move { publisher.handle(numbered(number, &number.to_string())).await.unwrap() }
        })
        .collect();
    while let Some(outcome) = waiting.join_next().await {
        assert_eq!(outcome.unwrap(), Outcome::Done);
    }
    let found = kafka.records(&topic).await;
    let ids: BTreeSet<_> = found.iter().map(|record| record.headers["ce_id"].clone()).collect();
    assert_eq!((found.len(), ids.len()), (EVENTS, EVENTS), "each once");
}

#[tokio::test]
async fn in_structured_mode_the_value_is_the_whole_event() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let publisher = Publisher::to(kafka.bootstrap(), &topic).structured().source("/shop").build().unwrap();
    let event = numbered(7, "42");
    publish(&publisher, [event.clone()]).await;
    let found = kafka.records(&topic).await;
    assert_eq!(found[0].key.as_deref(), Some("42"), "as in binary mode");
    assert_eq!(found[0].headers["content-type"], "application/cloudevents+json");
    let received = backstop_core::event::cloudevents::from_json(&found[0].value).unwrap();
    assert_eq!((received.event, received.source.as_str()), (event, "/shop"));
}

/// Nothing that an aggregate may be called, or a header may hold, breaks a record.
#[tokio::test]
async fn hostile_texts_arrive_as_they_are() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let strange = "\u{feff}💥 ../'\";--%00 \u{202e}";
    let event = Event::of("OrderPlaced").aggregate("Order", strange).header("note", strange);
    let event = event.header("Ünï cödé\r\nX: y", "a\r\nb").json(&strange).unwrap();
    publish(&publisher(&kafka, &topic), [event]).await;
    let found = kafka.records(&topic).await;
    assert_eq!(found[0].key.as_deref(), Some(strange));
    assert_eq!(found[0].headers["ce_note"], strange);
    let others: BTreeMap<String, String> = serde_json::from_str(&found[0].headers["ce_headers"]).unwrap();
    assert_eq!(others["Ünï cödé\r\nX: y"], "a\r\nb");
    assert_eq!(serde_json::from_str::<String>(&found[0].value).unwrap(), strange);
}
