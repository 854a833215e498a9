//! A target that is unavailable: nobody listens, nobody answers, the network swallows everything.

use std::time::Duration;

use backstop_core::Outcome;
use backstop_http::Status;
use backstop_testkit::proxy::Proxy;
use tokio::net::TcpListener;

use crate::receiver::{Receiver, local, raw, sent, unavailable};

const SOON: Duration = Duration::from_millis(100);

#[tokio::test]
async fn nobody_listens() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let webhook = local(&format!("http://{address}/")).build().unwrap();
    for _ in 0..20 {
        unavailable(sent(&webhook).await);
    }
    let Status::Unavailable(why) = webhook.target().status() else { panic!("{webhook:?}") };
    assert!(why.contains("cannot connect to 127.0.0.1"), "{why}");
}

#[tokio::test]
async fn the_name_does_not_resolve() {
    let webhook = local("http://no-such-host.invalid/").build().unwrap();
    unavailable(sent(&webhook).await);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    unavailable(sent(&local(&url).timeout(SOON).build().unwrap()).await);
}

#[tokio::test]
async fn a_server_that_hangs_up_before_it_answers_is_away() {
    for half in ["", "HTTP/1.1 200 O"] {
        let (url, _) = raw(half).await;
        unavailable(sent(&local(&url).build().unwrap()).await);
    }
}

#[tokio::test]
async fn a_black_hole_puts_events_off_and_they_arrive_when_it_is_over() {
    let receiver = Receiver::new().await;
    let proxy = Proxy::to(receiver.address.to_string()).await;
    let url = format!("http://{}/hooks", proxy.address());
    let webhook = local(&url).timeout(SOON).build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);

    proxy.black_hole(); // the connection that is kept stays open, and silent
    unavailable(sent(&webhook).await);
    unavailable(sent(&webhook).await); // over a new one

    proxy.cut();
    proxy.restore();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    assert_eq!(webhook.target().status(), Status::Available);
}

#[tokio::test]
async fn a_slow_network_is_no_outage() {
    let receiver = Receiver::new().await;
    let proxy = Proxy::to(receiver.address.to_string()).await;
    proxy.delay(SOON);
    let webhook =
        local(&format!("http://{}/hooks", proxy.address())).timeout(Duration::from_secs(10)).build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn connections_that_are_cut_or_refused_put_events_off() {
    let receiver = Receiver::new().await;
    let proxy = Proxy::to(receiver.address.to_string()).await;
    let webhook = local(&format!("http://{}/hooks", proxy.address())).build().unwrap();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
    proxy.refuse();
    proxy.cut();
    unavailable(sent(&webhook).await);
    proxy.restore();
    assert_eq!(sent(&webhook).await.unwrap(), Outcome::Done);
}
