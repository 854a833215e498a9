//! A producer that met a fatal error, on librdkafka's mock cluster, which makes errors on demand.

use std::time::Duration;

use backstop_core::{Event, Handler as _, Outcome};
use backstop_kafka::Publisher;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka_sys::types::{RDKafkaApiKey, RDKafkaRespErr};

fn event() -> Event {
    Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"]).unwrap()
}

#[tokio::test]
async fn a_producer_that_cannot_go_on_is_replaced_and_the_event_waits_untouched() {
    let cluster: MockCluster<'_, DefaultProducerContext> = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let publisher = Publisher::to(cluster.bootstrap_servers(), "orders").timeout(Duration::from_secs(10));
    let publisher = publisher.build().unwrap();
    assert_eq!(publisher.handle(event()).await.unwrap(), Outcome::Done);

    let lost_count = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER];
    cluster.request_errors(RDKafkaApiKey::Produce, &lost_count);
    let failure = publisher.handle(event()).await.unwrap_err();
    assert!(failure.is_unavailable(), "{failure:?}");
    assert_eq!(publisher.handle(event()).await.unwrap(), Outcome::Done, "by a fresh producer");
}
