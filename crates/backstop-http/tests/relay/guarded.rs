//! The guard: what is not public is refused, by its address in the URL or by what a name resolves to.

use backstop_core::failure::Kind;
use backstop_http::{Status, Webhook};

use crate::receiver::{Receiver, sent};

#[test]
fn an_address_that_is_not_public_is_refused_when_the_webhook_is_built() {
    for url in [
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/hooks",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://172.16.0.1/",
        "http://192.168.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::]/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fc00::1]/",
        "http://[fe80::1]/",
        "http://[ff02::1]/",
        "https://me@127.0.0.1/",
        "http://example.com@127.0.0.1/",
    ] {
        let refused = Webhook::to(url).build().unwrap_err().to_string();
        assert!(refused.contains("url must"), "{url}: {refused}");
    }
    for url in ["https://1.1.1.1/", "https://[2606:4700:4700::1111]/", "https://example.com/"] {
        Webhook::to(url).build().unwrap();
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_loopback_is_blocked_and_nothing_is_sent() {
    let receiver = Receiver::new().await;
    for host in ["localhost", "LOCALHOST"] {
        let webhook = Webhook::to(format!("http://{host}:{}/", receiver.address.port())).build().unwrap();
        let failure = sent(&webhook).await.unwrap_err();
        assert_eq!((failure.class(), failure.kind()), ("blocked-address", Kind::Permanent), "{host}");
        assert!(failure.to_string().contains("allowed-networks"), "{failure}");
        assert_eq!(webhook.target().status(), Status::Available, "it says nothing about the target");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn an_allowed_network_is_reached_by_address_and_by_name() {
    let receiver = Receiver::new().await;
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", receiver.address.port());
        sent(&Webhook::to(url).allow_network("127.0.0.1").build().unwrap()).await.unwrap();
    }
    assert_eq!(receiver.arrived().len(), 2);
}

#[tokio::test]
async fn an_allowed_network_opens_no_other() {
    let receiver = Receiver::new().await;
    let url = format!("http://localhost:{}/", receiver.address.port());
    let webhook = Webhook::to(url).allow_network("10.0.0.0/8").build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap_err().class(), "blocked-address");
}
