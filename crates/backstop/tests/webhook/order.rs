//! Strict order through every kind of outage: what an event waits for, all behind it wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use backstop::relay::Webhook;
use backstop::{Event, Outbox};
use backstop_testkit::{eventually_within, servers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Arrived, outage, rows};

const EVENTS: usize = 300;

/// How the receiver behaves: it takes events, says that it is busy, hangs up, or says nothing.
const WELL: u8 = 0;
const BUSY: u8 = 1;
const HANGS_UP: u8 = 2;
const SILENT: u8 = 3;

/// A receiver of one request a connection, which behaves as it is told.
async fn receive(listener: TcpListener, mood: Arc<AtomicU8>, arrived: Arrived) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (mood, arrived) = (mood.clone(), arrived.clone());
        tokio::spawn(async move {
            let (mut request, mut piece) = (Vec::new(), [0; 8192]);
            while !request.ends_with(b"}") {
                let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
                request.extend_from_slice(&piece[..count]);
            }
            let status = match mood.load(Ordering::SeqCst) {
                WELL => "204 No Content",
                BUSY => "503 Service Unavailable",
                HANGS_UP => return None,
                _ => std::future::pending().await,
            };
            if status.starts_with("204") {
                arrived.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            }
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.ok()
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_overtaken_while_a_target_is_busy_hangs_up_or_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = Webhook::to(format!("http://{}/hooks", listener.local_addr().unwrap()))
        .allow_network("127.0.0.0/8")
        .timeout(Duration::from_millis(200))
        .pause(Duration::from_millis(10))
        .breaker(outage::breaker())
        .build()
        .unwrap();
    let (mood, arrived) = (Arc::new(AtomicU8::new(WELL)), Arrived::default());
    tokio::spawn(receive(listener, mood.clone(), arrived.clone()));
    let database = servers::sqlite();
    let pool = database.pool().await;
    let builder = Outbox::ordered(pool.clone()).interval(Duration::from_millis(10));
    let outbox = builder.on("Order", "OrderPlaced", webhook).start().await.unwrap();
    let flapping = {
        let mood = mood.clone();
        tokio::spawn(async move {
            for next in [BUSY, WELL, HANGS_UP, WELL, SILENT, WELL, BUSY, HANGS_UP, SILENT, WELL] {
                mood.store(next, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        })
    };
    let ids: Vec<_> = (0..EVENTS).map(|number| format!("evt-{number:04}")).collect();
    for id in &ids {
        let mut tx = outbox.begin().await.unwrap();
        let event = Event::of("OrderPlaced").id(id).aggregate("Order", "one").json(&()).unwrap();
        tx.append(event).await.unwrap();
        tx.commit().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    flapping.await.unwrap();
    let done = async || rows(&pool).await.iter().all(|row| *row == (1, 0));
    eventually_within(Duration::from_secs(30), "everything arrives, with no attempt counted", done).await;
    outbox.close().await.unwrap();
    let id_of = |text: &String| text.split_once(r#""id":""#).map(|(_, rest)| rest[..8].to_owned());
    let mut order: Vec<_> = arrived.lock().unwrap().iter().filter_map(id_of).collect();
    order.dedup(); // an answer that was lost is sent again
    assert_eq!(order, ids);
}
