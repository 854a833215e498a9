//! Limits: of what is sent, and of what a target may send back.

use std::time::Duration;

use backstop_core::failure::Kind;
use backstop_core::{Event, Handler as _, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::receiver::{Receiver, local, raw, sent, status};

#[tokio::test]
async fn an_event_over_the_limit_is_not_sent() {
    let receiver = Receiver::new().await;
    let large = Event::of("E").json(&"x".repeat(2000)).unwrap();
    for webhook in [receiver.webhook().structured(), receiver.webhook().binary()] {
        let failure = webhook.request_limit(2000).build().unwrap().handle(large.clone()).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), ("too-large", Kind::Permanent));
    }
    assert!(receiver.arrived().is_empty());
}

#[tokio::test]
async fn the_largest_payload_passes_whatever_the_limit_of_an_answer() {
    let receiver = Receiver::new().await;
    let large = Event::of("E").json(&"x".repeat(1_048_000)).unwrap();
    let webhook = receiver.webhook().response_head_limit(8192).response_limit(0).build().unwrap();
    assert_eq!(webhook.handle(large).await.unwrap(), Outcome::Done);
    assert!(receiver.only().body.len() > 1_048_000);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off_and_its_status_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let wrote = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 16 * 1024];
        let _ = stream.read(&mut bytes).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut written = 0_usize;
        while stream.write_all(&bytes).await.is_ok() {
            written += bytes.len();
        }
        written
    });
    let webhook = local(&url).response_limit(10_000).build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    let written = wrote.await.unwrap();
    assert!(written < 100_000_000, "{written} bytes were taken before the connection was closed");
}

#[tokio::test]
async fn an_answer_whose_body_never_ends_is_judged_by_its_status_in_time() {
    let (url, _) = raw("HTTP/1.1 422 No\r\ncontent-length: 10\r\n\r\nhm").await;
    let webhook = local(&url).timeout(Duration::from_millis(200)).build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap_err().class(), "http-422");
}

/// One byte and then silence, on a connection that stays open.
#[tokio::test]
async fn an_answer_whose_body_falls_silent_is_judged_by_its_status_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut vec![0; 16 * 1024]).await;
        stream.write_all(b"HTTP/1.1 422 No\r\ncontent-length: 10\r\n\r\nh").await.unwrap();
        std::future::pending::<()>().await;
    });
    let webhook = local(&url).timeout(Duration::from_millis(200)).build().unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), sent(&webhook)).await.expect("it ends");
    assert_eq!(answer.unwrap_err().class(), "http-422");
}

#[tokio::test]
async fn a_long_answer_within_the_limit_keeps_its_connection() {
    let receiver = Receiver::answering((0..4).map(|_| status(200).saying(vec![b'x'; 50_000]))).await;
    let webhook = receiver.webhook().build().unwrap();
    for _ in 0..4 {
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn too_many_headers_are_a_failure() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for head in [long, many] {
        let (url, _) = raw(head).await;
        let webhook = local(&url).response_head_limit(8192).build().unwrap();
        let failure = sent(&webhook).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), ("bad-response", Kind::Transient));
    }
}
