//! An outbox that delivers to a webhook: an outage buries nothing, a refusal buries one event at once.

#[path = "webhook/order.rs"]
mod order;
mod outage;
#[path = "webhook/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop::relay::{Status, Webhook};
use backstop::retry::Exponential;
use backstop::{Event, Failure, Handler as _, Outbox};
use backstop_testkit::proxy::Proxy;
use backstop_testkit::{eventually, servers};
use sqlx::{Sqlite, SqlitePool};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const EVENTS: usize = 20;

/// The requests that arrived, each with its head.
type Arrived = Arc<Mutex<Vec<String>>>;

/// A receiver that takes everything, except what it is told to refuse.
fn receive(listener: TcpListener) -> Arrived {
    let arrived = Arrived::default();
    let noting = Arc::clone(&arrived);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&noting)));
        }
    });
    arrived
}

async fn answer(mut stream: TcpStream, arrived: Arrived) -> Option<()> {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        if body.len() < length.parse().ok()? {
            continue;
        }
        let status = if body.contains("unwanted") { "422 Unprocessable Entity" } else { "204 No Content" };
        arrived.lock().unwrap().push(text.clone());
        stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.ok()?;
        request.clear();
    }
}

fn webhook(address: SocketAddr) -> Webhook {
    Webhook::to(format!("http://{address}/hooks"))
        .allow_network("127.0.0.0/8")
        .timeout(Duration::from_millis(250))
        .pause(Duration::from_millis(10))
        .breaker(outage::breaker())
        .build()
        .unwrap()
}

async fn outbox(pool: SqlitePool, webhook: &Webhook) -> Outbox<Sqlite> {
    outage::impatient(pool, webhook.clone()).start().await.unwrap()
}

async fn append(outbox: &Outbox<Sqlite>, ids: impl IntoIterator<Item = String>) {
    let mut tx = outbox.begin().await.unwrap();
    for id in ids {
        let event = Event::of("OrderPlaced").id(&id).aggregate("Order", &id).json(&["tea"]).unwrap();
        tx.append(event).await.unwrap();
    }
    tx.commit().await.unwrap();
}

async fn rows(pool: &SqlitePool) -> Vec<(i64, i64)> {
    sqlx::query_as("select status, attempts from outbox_event").fetch_all(pool).await.unwrap()
}

/// Appends while the target is unavailable, shows that everything waits untouched, ends the outage, and shows that
/// everything arrives.
async fn survives(address: SocketAddr, end_the_outage: impl FnOnce() -> Arrived) {
    let database = servers::sqlite();
    let pool = database.pool().await;
    let webhook = webhook(address);
    let outbox = outbox(pool.clone(), &webhook).await;
    append(&outbox, (0..EVENTS).map(|number| format!("evt-{number}"))).await;

    // Two attempts would be used up by now, if they counted.
    let held = || outbox.metrics().dispatch_held.total();
    eventually("it was probed again and again", async || held() >= 10).await;
    assert!(rows(&pool).await.iter().all(|row| *row == (0, 0)), "NEW, and no attempt counted");
    assert!(matches!(webhook.target().status(), Status::Unavailable(_)), "{:?}", webhook.target());

    let arrived = end_the_outage();
    eventually("everything arrives", async || rows(&pool).await.iter().all(|row| *row == (1, 0))).await;
    outbox.close().await.unwrap();
    let bodies = arrived.lock().unwrap().clone();
    let ids: BTreeSet<_> = (0..EVENTS).filter(|number| is_in(&bodies, &format!("evt-{number}"))).collect();
    assert_eq!(ids.len(), EVENTS, "{bodies:?}");
}

fn is_in(bodies: &[String], id: &str) -> bool {
    bodies.iter().any(|body| body.contains(&format!(r#""id":"{id}""#)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_stopped_for_longer_than_all_retries_buries_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap().to_string()).await;
    proxy.refuse();
    let arrived = receive(listener);
    survives(proxy.address(), || {
        proxy.restore();
        arrived
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_behind_a_black_hole_for_longer_than_all_retries_buries_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap().to_string()).await;
    proxy.black_hole();
    let arrived = receive(listener);
    survives(proxy.address(), || {
        proxy.cut();
        proxy.restore();
        arrived
    })
    .await;
}

/// A frozen process: the system still takes connections for it, and nobody reads from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_frozen_for_longer_than_all_retries_buries_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    survives(listener.local_addr().unwrap(), || receive(listener)).await;
}

/// A real process, stopped by SIGSTOP while it is being delivered to, and continued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_process_that_is_stopped_during_delivery_and_continued_buries_nothing() {
    let Some(process) = process::Receiver::start() else { return };
    let database = servers::sqlite();
    let pool = database.pool().await;
    let webhook = webhook(process.address);
    let outbox = outbox(pool.clone(), &webhook).await;
    append(&outbox, ["before".to_owned()]).await;
    let done = async || rows(&pool).await.iter().all(|row| *row == (1, 0));
    eventually("the target works", done).await;

    process.stop();
    append(&outbox, (0..EVENTS).map(|number| format!("evt-{number}"))).await;
    let held = || outbox.metrics().dispatch_held.total();
    eventually("it was probed again and again", async || held() >= 10).await;
    let waiting = rows(&pool).await.iter().filter(|row| **row == (0, 0)).count();
    assert_eq!(waiting, EVENTS, "NEW, and no attempt counted");

    process.go_on();
    eventually("everything arrives", done).await;
    assert_eq!(outbox.metrics().dispatch_dead.total() + outbox.metrics().dispatch_failure.total(), 0);
    outbox.close().await.unwrap();
    let bodies = process.bodies();
    assert!((0..EVENTS).all(|number| is_in(&bodies, &format!("evt-{number}"))), "{bodies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_is_dead_at_once_and_the_others_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let database = servers::sqlite();
    let pool = database.pool().await;
    let outbox = outbox(pool.clone(), &webhook(listener.local_addr().unwrap())).await;
    let arrived = receive(listener);
    append(&outbox, ["wanted-1", "unwanted", "wanted-2"].map(str::to_owned)).await;

    eventually("all three are settled", async || rows(&pool).await.iter().all(|row| row.0 != 0)).await;
    let dead: Vec<(String, String)> =
        sqlx::query_as("select event_id, last_error from outbox_event where status = 3")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(
        dead,
        [("unwanted".to_owned(), "http-422: the target answered 422 Unprocessable Entity".to_owned())]
    );
    outbox.close().await.unwrap();
    assert_eq!(arrived.lock().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_leads_from_the_transaction_to_the_receiver_also_when_it_is_tried_again() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = webhook(listener.local_addr().unwrap());
    let arrived = receive(listener);
    let database = servers::sqlite();
    let pool = database.pool().await;
    let traces = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&traces);
    let outbox = Outbox::single_node(pool.clone())
        .on("Order", "OrderPlaced", move |event: Event| {
            let (seen, webhook) = (Arc::clone(&seen), webhook.clone());
            async move {
                seen.lock().unwrap().push(event.header("traceparent").map(str::to_owned));
                // The first try comes from memory, the second from the row.
                if seen.lock().unwrap().len() == 1 {
                    return Err(Failure::transient("busy", "come again"));
                }
                webhook.handle(event).await
            }
        })
        .retry_policy(Exponential { base: Duration::from_millis(1), max: Duration::from_millis(1) })
        .interval(Duration::from_millis(10))
        .start()
        .await
        .unwrap();
    let order =
        Event::of("OrderPlaced").aggregate("Order", "1").header("traceparent", TRACE).json(&()).unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.append(order).await.unwrap();
    tx.commit().await.unwrap();
    eventually("it arrives", async || rows(&pool).await == [(1, 1)]).await;
    outbox.close().await.unwrap();

    assert_eq!(*traces.lock().unwrap(), [Some(TRACE.to_owned()), Some(TRACE.to_owned())]);
    let [request] = &arrived.lock().unwrap()[..] else { panic!("one request") };
    assert!(request.contains(&format!("traceparent: {TRACE}\r\n")), "{request}");
    assert!(request.contains(&format!(r#""traceparent":"{TRACE}""#)), "{request}");
}
