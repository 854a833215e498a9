//! One trace: captured where an event is appended, restored around its handler, passed on to what follows from it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::trace::TraceContext;
use backstop_core::{Event, Failure};
use backstop_sql::Outbox;
use backstop_sql::outbox::{Builder, SingleNode};
use sqlx::Sqlite;

use crate::harness::{DONE, Shop, order};
use crate::steps::until_status;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01";

/// The id of an event, and the trace in which its handler ran.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// An outbox that tries again at once.
fn soon(shop: &Shop) -> Builder<Sqlite, SingleNode> {
    let moment = Duration::from_millis(5);
    shop.outbox().interval(moment).retry_policy(move |_: u32, _: Jitter| moment)
}

async fn outbox(shop: &Shop, seen: &Seen, fail_first: bool) -> Outbox<Sqlite> {
    let seen = Arc::clone(seen);
    let handler = move |event: Event| {
        let seen = Arc::clone(&seen);
        async move {
            tokio::task::yield_now().await;
            let trace = TraceContext::current().map(|trace| trace.traceparent().to_owned());
            let mut seen = seen.lock().unwrap();
            seen.push((event.id().to_owned(), trace));
            let first = seen.len() == 1;
            if fail_first && first { Err(Failure::transient("busy", "try again")) } else { Ok(()) }
        }
    };
    soon(shop).on("Order", "OrderPlaced", handler).start().await.unwrap()
}

async fn append(outbox: &Outbox<Sqlite>, event: Event) {
    let mut tx = outbox.begin().await.unwrap();
    tx.append(event).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn the_trace_of_the_transaction_is_that_of_the_handler_also_from_the_row() {
    let (shop, seen) = (Shop::open().await, Seen::default());
    let outbox = outbox(&shop, &seen, true).await;
    let trace = TraceContext::new(PARENT).unwrap().with_state("vendor=1");
    trace.scope(append(&outbox, order("1"))).await;
    until_status(&shop, "1", DONE).await;
    outbox.close().await.unwrap();

    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, vec![("1".to_owned(), Some(PARENT.to_owned())); 2], "the second try read the row");
    let headers: String =
        sqlx::query_scalar("select headers from outbox_event").fetch_one(&shop.pool).await.unwrap();
    assert!(headers.contains(PARENT) && headers.contains("vendor=1"), "{headers}");
}

#[tokio::test]
async fn an_event_keeps_a_trace_of_its_own_and_without_any_there_is_none() {
    let (shop, seen) = (Shop::open().await, Seen::default());
    let outbox = outbox(&shop, &seen, false).await;
    let own = Event::of("OrderPlaced").id("own").aggregate("Order", "1").header("traceparent", OTHER);
    TraceContext::new(PARENT).unwrap().scope(append(&outbox, own.json(&()).unwrap())).await;
    append(&outbox, order("none")).await;
    for id in ["own", "none"] {
        until_status(&shop, id, DONE).await;
    }
    outbox.close().await.unwrap();

    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, [("none".to_owned(), None), ("own".to_owned(), Some(OTHER.to_owned()))]);
}

/// A handler that appends goes on in the trace of the event that it handles.
#[tokio::test]
async fn what_a_handler_appends_belongs_to_the_same_trace() {
    let (shop, seen) = (Shop::open().await, Seen::default());
    let next = Outbox::writer_only(shop.pool.clone()).start().await.unwrap();
    let noted = Arc::clone(&seen);
    let outbox = soon(&shop)
        .on("Order", "OrderPlaced", move |_: Event| {
            let next = next.clone();
            async move {
                let mut tx = next.begin().await?;
                let paid = Event::of("OrderPaid").id("paid").aggregate("Order", "1").json(&()).unwrap();
                tx.append(paid).await?;
                tx.commit().await?;
                Ok::<(), backstop_sql::Error>(())
            }
        })
        .on("Order", "OrderPaid", move |event: Event| {
            let trace = TraceContext::current().map(|trace| trace.traceparent().to_owned());
            noted.lock().unwrap().push((event.id().to_owned(), trace));
            async {}
        })
        .start()
        .await
        .unwrap();
    TraceContext::new(PARENT).unwrap().scope(append(&outbox, order("1"))).await;
    until_status(&shop, "1", DONE).await;
    until_status(&shop, "paid", DONE).await;
    outbox.close().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [("paid".to_owned(), Some(PARENT.to_owned()))]);
}
