//! How the dashboard opens, how long it bears a client, how it closes.

use std::sync::Arc;
use std::time::Duration;

use backstop_admin::{Admin, AdminError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::support::{Answer, Hanging, Open};

#[tokio::test]
async fn a_busy_port_is_one_clear_sentence() {
    let taken = Open::watching([]).await;
    let error = Admin::new().bind(taken.address).await.unwrap_err();
    let port = taken.address.port();
    let sentence = format!("port {port} on 127.0.0.1 is in use; choose another, or 0 for a free one");
    assert_eq!(error.to_string(), sentence);
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused() {
    for address in ["0.0.0.0:0", "192.0.2.7:7878", "[::]:0", "[2001:db8::1]:80"] {
        let error = Admin::new().bind(address.parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, AdminError::NotLoopback { .. }), "{address}");
        assert!(error.to_string().ends_with("add one, or use 127.0.0.1 or [::1]"), "{error}");
    }
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let dashboard = Open::watching([]).await;
    let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(Answer::read(&mut stream).await.code, 200);
    }
}

#[tokio::test]
async fn shutdown_waits_for_nobody_who_is_idle() {
    let dashboard = Open::watching([]).await;
    let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    Answer::read(&mut stream).await;

    dashboard.shutdown.begin();
    timeout(Duration::from_secs(1), dashboard.serving)
        .await
        .expect("an idle connection delays nothing")
        .unwrap();
    assert!(TcpStream::connect(dashboard.address).await.is_err(), "the port is free again");
}

#[tokio::test]
async fn a_hanging_client_does_not_stop_the_shutdown() {
    let dashboard = Open::watching([Arc::new(Hanging) as _]).await;
    let mut half = TcpStream::connect(dashboard.address).await.unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut silent = TcpStream::connect(dashboard.address).await.unwrap();
    let mut asking = TcpStream::connect(dashboard.address).await.unwrap();
    asking.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // The dashboard has read them all once it has answered somebody who came later.
    assert_eq!(dashboard.get("/").await.code, 200);

    dashboard.shutdown.begin();
    timeout(Duration::from_secs(5), dashboard.serving).await.expect("two seconds are enough").unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "its connection is closed");
}

// Paused time moves on by itself whenever all sides wait.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_request_is_let_go() {
    let dashboard = Open::watching([]).await;
    let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    let before = Instant::now();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(before.elapsed() <= Duration::from_secs(15), "{:?}", before.elapsed());
}

/// One request each five seconds: busy enough never to be let go for idling.
#[tokio::test(start_paused = true)]
async fn a_connection_has_its_time_however_busy_it_is() {
    let dashboard = Open::watching([]).await;
    let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
    let before = Instant::now();
    while stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_ok()
        && stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0)
    {
        assert!(before.elapsed() <= Duration::from_secs(90), "{:?}", before.elapsed());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(before.elapsed() >= Duration::from_secs(55), "{:?}", before.elapsed());
}

const MOST: usize = 128;
const ASK: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn of_more_clients_than_the_desk_bears_the_one_that_idles_the_longest_has_to_go() {
    let dashboard = Open::watching([]).await;
    let mut connected = Vec::new();
    for _ in 0..MOST {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        stream.write_all(ASK).await.unwrap();
        assert_eq!(Answer::read(&mut stream).await.code, 200);
        connected.push(stream);
    }
    // The first came first and asks again, so the second has idled the longest.
    connected[0].write_all(ASK).await.unwrap();
    assert_eq!(Answer::read(&mut connected[0]).await.code, 200);
    assert_eq!(dashboard.get("/health").await.code, 200, "there is room for one more");
    let ended = timeout(Duration::from_secs(5), connected[1].read(&mut [0])).await.expect("it had to go");
    assert_eq!(ended.unwrap_or(0), 0);
    for stays in [0, MOST - 1] {
        connected[stays].write_all(ASK).await.unwrap();
        assert_eq!(Answer::read(&mut connected[stays]).await.code, 200);
    }
}

#[tokio::test]
async fn those_who_only_hold_connections_keep_health_from_nobody() {
    let dashboard = Open::watching([]).await;
    let mut held = Vec::new();
    for number in 0..3 * MOST {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        // Some say nothing, and some never end what they say.
        if number % 2 == 0 {
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: loc").await.unwrap();
        }
        held.push(stream);
    }
    for path in ["/health", "/live", "/ready"] {
        let answer = timeout(Duration::from_secs(5), dashboard.get(path)).await;
        assert_eq!(answer.expect("nobody waits for those who idle").code, 200, "{path}");
    }
}

const UNFINISHED: &str = "POST /api/v1/operations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                          Content-Length: 100\r\n\r\n{";

/// As many as are connected at the same time, each of them with a request that is let in.
#[tokio::test]
async fn requests_that_are_still_arriving_take_nobodys_room() {
    let dashboard = Open::new(Admin::new().metrics(String::new)).await;
    let mut arriving = Vec::new();
    for _ in 0..3 * MOST {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        // One that had to go meanwhile need not write.
        let _ = stream.write_all(UNFINISHED.as_bytes()).await;
        arriving.push(stream);
    }
    for path in ["/health", "/live", "/ready", "/metrics", "/api/v1/components"] {
        let answer = timeout(Duration::from_secs(4), dashboard.get(path)).await;
        assert_eq!(answer.expect("nobody waits for the rest of a request").code, 200, "{path}");
    }
    // The last to come is heard to its end.
    let last = arriving.last_mut().unwrap();
    last.write_all(&[b' '; 99]).await.unwrap();
    assert_eq!(Answer::read(last).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_arrive_is_told_so() {
    let dashboard = Open::watching([]).await;
    let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
    stream.write_all(UNFINISHED.as_bytes()).await.unwrap();
    let before = Instant::now();
    let answer = Answer::read(&mut stream).await;
    assert!(before.elapsed() <= Duration::from_secs(6), "{:?}", before.elapsed());
    let told = "the request did not arrive within 5 s of its head";
    assert_eq!((answer.code, answer.json()["error"].as_str()), (408, Some(told)));
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "and its connection ends");
}

/// A client that is being answered is not one that idles.
#[tokio::test]
async fn whoever_is_being_answered_need_not_go() {
    let dashboard = Open::watching([Arc::new(Hanging) as _]).await;
    let mut asking = TcpStream::connect(dashboard.address).await.unwrap();
    asking.write_all(ASK).await.unwrap();
    // It has been read once somebody who came later is answered.
    assert_eq!(dashboard.get("/live").await.code, 200);
    let mut held = Vec::new();
    for _ in 0..2 * MOST {
        held.push(TcpStream::connect(dashboard.address).await.unwrap());
    }
    assert_eq!(dashboard.get("/live").await.code, 200);
    assert_eq!(Answer::read(&mut asking).await.code, 503, "its component hangs, and it is told so");
}
