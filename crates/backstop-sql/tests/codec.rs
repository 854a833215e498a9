//! Headers through a codec of one's own.

#![cfg(feature = "sqlite")]

use std::time::Duration;

use backstop_core::Event;
use backstop_core::codec::{Codec, CodecError, Json};
use backstop_sql::TableName;
use backstop_sql::store::{At, Due, Order, SqlStore, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes JSON with its brackets turned around, so that nobody else can have written or read it.
struct Turned;

impl Codec for Turned {
    fn write<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError> {
        Ok(turn(&Json.write(value)?))
    }

    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, CodecError> {
        Json.read(&turn(text))
    }
}

fn turn(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '{' {
                '}'
            } else if c == '}' {
                '{'
            } else {
                c
            }
        })
        .collect()
}

/// Rules: O-038.
#[tokio::test]
async fn headers_pass_through_the_codec_that_was_given() {
    let database = backstop_testkit::servers::sqlite();
    let pool = backstop_sql::sqlite::open(database.path()).await.unwrap();
    let store = SqlStore::on(pool.clone(), TableName::default()).codec(Turned);
    store.migrate().await.unwrap();
    let event = Event::of("OrderPlaced").header("a", "b").json(&()).unwrap();
    let mut tx = pool.begin().await.unwrap();
    store.insert(&mut tx, std::slice::from_ref(&event), None).await.unwrap();
    tx.commit().await.unwrap();
    let kept: String = sqlx::query_scalar("select headers from outbox_event").fetch_one(&pool).await.unwrap();
    assert_eq!(kept, r#"}"a":"b"{"#);
    let due = Due {
        at: At::Database,
        skip_recent: Duration::ZERO,
        limit: 10,
        order: Order::Due,
        after: None,
        pair: None,
    };
    assert_eq!(store.poll(due).await.unwrap()[0].event, Ok(event));
}
