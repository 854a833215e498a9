//! The dashboard behind TLS: who speaks it is answered, who does not holds nobody up.

use std::sync::Arc;
use std::time::Duration;

use backstop_admin::{Admin, AdminError, Config, Tls};
use backstop_core::config::Config as _;
use backstop_core::setting::Faults;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::Open;

fn certified() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

fn tls(certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Tls {
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    Tls { certificate: Some(certificate.into()), key: Some(key.into()) }
}

/// Asks for a path as a client that trusts the certificate.
async fn get(dashboard: &Open, certified: &rcgen::CertifiedKey<rcgen::KeyPair>, path: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(dashboard.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn with_a_certificate_the_dashboard_speaks_tls_and_nothing_else() {
    let certified = certified();
    let dashboard = Open::new(Admin::new().tls(tls(&certified))).await;
    let answer = get(&dashboard, &certified, "/health").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let mut plain = TcpStream::connect(dashboard.address).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
}

#[tokio::test]
async fn those_who_never_end_their_handshake_hold_nobody_up() {
    let certified = certified();
    let dashboard = Open::new(Admin::new().tls(tls(&certified))).await;
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        let _ = stream.write_all(&[22, 3, 1]).await;
        held.push(stream);
    }
    let answer = timeout(Duration::from_secs(5), get(&dashboard, &certified, "/live")).await;
    assert!(answer.expect("nobody waits for them").starts_with("HTTP/1.1 200"));
    dashboard.shutdown.begin();
    timeout(Duration::from_secs(5), dashboard.serving).await.expect("nor does the end").unwrap();
}

#[tokio::test]
async fn a_certificate_and_a_key_that_cannot_be_used_are_faults_of_their_keys() {
    let told = |tls: Tls| {
        let mut faults = Faults::default();
        Config { tls, ..Config::default() }.check(&mut faults);
        faults.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (ours, other) = (tls(&certified()), tls(&certified()));
    assert_eq!(told(ours.clone()), [""; 0]);
    assert_eq!(told(Tls { key: None, ..ours.clone() }), ["tls.key is required beside `certificate`"]);
    let lone = Tls { certificate: None, ..ours.clone() };
    assert_eq!(told(lone), ["tls.certificate is required beside `key`"]);
    let mismatched = Tls { key: other.key.clone(), ..ours.clone() };
    let rule = "tls.key cannot be used with `certificate`: it is another certificate's";
    assert_eq!(told(mismatched.clone()), [rule]);
    let exchanged = Tls { certificate: ours.key.clone(), key: ours.certificate.clone() };
    assert_eq!(
        told(exchanged),
        [
            "tls.certificate must hold at least one certificate in PEM form, and no broken one",
            "tls.key must hold a private key in PEM form, without a password",
        ]
    );
    let refused = Admin::new().tls(mismatched).bind("127.0.0.1:0".parse().unwrap()).await.unwrap_err();
    assert!(
        matches!(&refused, AdminError::Tls { why } if why.contains("another certificate's")),
        "{refused}"
    );
}
