//! `backstop dlq redrive` to a topic: what the brokers confirm is removed, and nothing else.

use backstop_testkit::servers;

use crate::{complained, dlq, filled, left, text};

#[tokio::test]
async fn an_entry_is_removed_when_the_brokers_have_confirmed_it() {
    let Some(kafka) = servers::kafka().await else { return };
    let topic = kafka.create_topic("orders", 1, &[]).await;
    let place = filled();
    let to = format!("kafka://{}/{topic}", kafka.bootstrap());
    let output = dlq(&["redrive", text(place.path()), "--to", &to, "--type", "OrderPlaced"]);
    assert!(output.status.success(), "{output:?}");
    assert!(complained(&output).contains("2 delivered, 0 failed"), "{output:?}");
    assert_eq!(left(&place), 2, "what is of another type, and what is damaged");
    let found = kafka.records(&topic).await;
    let told: Vec<_> = found.iter().map(|it| (&*it.headers["ce_id"], &*it.headers["ce_source"])).collect();
    assert_eq!(told, [("42", "/shop"), ("43", "/shop")]);
}

#[test]
fn brokers_that_are_away_take_nothing_and_a_place_without_a_topic_is_refused() {
    let place = filled();
    let path = text(place.path());
    let to =
        ["redrive", path, "--to", "kafka://127.0.0.1:9/orders", "--timeout", "300ms", "--patience", "1ms"];
    let output = dlq(&to);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complained(&output).contains("did not confirm"), "{output:?}");
    assert_eq!(left(&place), 4);

    for (to, told) in [
        ("kafka://127.0.0.1:9", "kafka://host:port/topic"),
        ("kafka://h/t", "--to must name at least one broker, as host:port"),
    ] {
        let output = dlq(&["redrive", path, "--to", to]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(complained(&output).contains(told), "{}", complained(&output));
    }
}
