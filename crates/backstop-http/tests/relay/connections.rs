//! Connections: kept, used again, bounded, encrypted.

use std::sync::Arc;
use std::time::Duration;

use backstop_core::Outcome;
use backstop_http::{Connections, Status};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::receiver::{Receiver, local, sent, status, unavailable};

#[tokio::test]
async fn one_connection_serves_many_events() {
    let receiver = Receiver::answering([status(200).saying("thank you"), status(422).saying("no")]).await;
    let webhook = receiver.webhook().build().unwrap();
    for _ in 0..50 {
        let _ = sent(&webhook).await;
    }
    assert_eq!((receiver.arrived().len(), receiver.connections()), (50, 1));
}

#[tokio::test]
async fn webhooks_with_equal_settings_share_a_connection_if_they_are_told_to() {
    let receiver = Receiver::new().await;
    let shared = Connections::default();
    let first = receiver.webhook().connections(&shared).build().unwrap();
    let second = receiver.webhook().name("another").connections(&shared).build().unwrap();
    for _ in 0..3 {
        assert_eq!(sent(&first).await.unwrap(), Outcome::Done);
        assert_eq!(sent(&second).await.unwrap(), Outcome::Done);
    }
    assert_eq!((receiver.arrived().len(), receiver.connections()), (6, 1));
    assert_eq!(sent(&receiver.webhook().build().unwrap()).await.unwrap(), Outcome::Done);
    assert_eq!(receiver.connections(), 2, "nobody told the third");
}

#[tokio::test]
async fn events_side_by_side_have_connections_side_by_side() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().build().unwrap();
    for _ in 0..5 {
        let sending: Vec<_> = (0..8)
            .map(|_| {
                let webhook = webhook.clone();
                tokio::spawn(async move { sent(&webhook).await.unwrap() })
            })
            .collect();
        for task in sending {
            assert_eq!(task.await.unwrap(), Outcome::Done);
        }
    }
    assert_eq!(receiver.arrived().len(), 40);
    assert!(receiver.connections() <= 8, "{}", receiver.connections());
}

#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_costs_nothing() {
    let receiver = Receiver::answering([status(204).with("connection", "close")]).await;
    let webhook = receiver.webhook().build().unwrap();
    for _ in 0..3 {
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    }
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn no_more_connections_are_kept_than_are_allowed() {
    let receiver = Receiver::new().await;
    let webhook = receiver.webhook().idle_connections(0).build().unwrap();
    for _ in 0..3 {
        assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    }
    assert_eq!(receiver.connections(), 3);
}

/// A server with TLS that answers every request with 204, and its certificate as PEM.
async fn encrypted(name: &str) -> (String, String) {
    let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/hooks", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = vec![0; 16 * 1024];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    (url, certified.cert.pem())
}

#[tokio::test]
async fn a_target_with_tls_is_reached_if_its_certificate_is_vouched_for() {
    let (url, pem) = encrypted("localhost").await;
    let trusting = local(&url).root_certificate(pem).build().unwrap();
    assert_eq!(sent(&trusting).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_or_of_another_name_keeps_events_waiting() {
    let (url, _) = encrypted("localhost").await;
    let (_, stranger) = encrypted("localhost").await;
    let (other_name, pem) = encrypted("example.com").await;
    for webhook in [local(&url).root_certificate(stranger), local(&other_name).root_certificate(pem)] {
        let webhook = webhook.build().unwrap();
        for _ in 0..5 {
            unavailable(sent(&webhook).await);
        }
        let Status::Unavailable(why) = webhook.target().status() else { panic!("{webhook:?}") };
        assert!(why.contains("the TLS handshake with localhost failed"), "{why}");
    }
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", silent.local_addr().unwrap().port());
    let (_, pem) = encrypted("localhost").await;
    let webhook = local(&url).root_certificate(pem).connect_timeout(Duration::from_millis(50));
    let webhook = webhook.timeout(Duration::from_secs(3600)).build().unwrap();
    for _ in 0..5 {
        let answer = tokio::time::timeout(Duration::from_secs(20), sent(&webhook)).await;
        unavailable(answer.expect("it ends"));
    }
    let Status::Unavailable(why) = webhook.target().status() else { panic!("{webhook:?}") };
    assert!(why.contains("no connection to localhost within 50ms"), "{why}");
}
