//! The proxy in front of a small echo server: what passes, and what each fault looks like from both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use backstop_testkit::eventually;
use backstop_testkit::proxy::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// That nothing comes can only be shown by waiting a while.
const A_WHILE: Duration = Duration::from_millis(100);

/// Sends back what it gets, and counts the bytes and the connections that ended.
#[derive(Clone, Default)]
struct Echo {
    bytes: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Echo {
    async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = Self::default();
        let server = echo.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let _ = server.serve(stream).await;
                    server.ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        (echo, address)
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            self.bytes.fetch_add(count, Ordering::Relaxed);
            stream.write_all(&buffer[..count]).await?;
        }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

async fn proxied() -> (Echo, Proxy) {
    let (echo, address) = Echo::start().await;
    (echo, Proxy::to(address.to_string()).await)
}

/// A connection through which a word went there and back.
async fn connected(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(said(&mut client, "hello").await.unwrap(), "hello");
    client
}

async fn said(client: &mut TcpStream, word: &str) -> io::Result<String> {
    client.write_all(word.as_bytes()).await?;
    heard(client, word.len()).await
}

async fn heard(client: &mut TcpStream, count: usize) -> io::Result<String> {
    let mut answer = vec![0; count];
    client.read_exact(&mut answer).await?;
    Ok(String::from_utf8(answer).unwrap())
}

async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(A_WHILE, client.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn bytes_pass_both_ways_also_many() {
    let (_echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut from, mut to) = client.split();
    let mut received = vec![0; sent.len()];
    let (wrote, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut received));
    wrote.unwrap();
    read.unwrap();
    assert_eq!(received, sent);
}

#[tokio::test]
async fn a_half_closed_connection_still_brings_the_answer() {
    let (echo, proxy) = proxied().await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"last words").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "last words");
    eventually("the connection to end", async || proxy.connections() == 0 && echo.ended() == 1).await;
}

#[tokio::test]
async fn connections_are_counted_while_they_are_open() {
    let (_echo, proxy) = proxied().await;
    assert_eq!(proxy.connections(), 0);
    let (one, two) = (connected(&proxy).await, connected(&proxy).await);
    assert_eq!(proxy.connections(), 2);
    drop((one, two));
    eventually("both to end", async || proxy.connections() == 0).await;
}

#[tokio::test]
async fn a_cut_connection_is_seen_by_both_sides_and_a_new_one_passes() {
    let (echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    proxy.cut();
    let seen = client.read(&mut [0]).await.unwrap_err();
    assert_eq!(seen.kind(), io::ErrorKind::ConnectionReset);
    eventually("the server to see it", async || echo.ended() == 1).await;
    eventually("the proxy to forget it", async || proxy.connections() == 0).await;
    connected(&proxy).await;
}

#[tokio::test]
async fn a_stranded_connection_is_silent_until_it_is_cut_and_a_new_one_passes() {
    let (echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    proxy.strand();
    client.write_all(b"lost").await.unwrap();
    assert!(is_silent(&mut client).await);
    proxy.restore();
    assert!(is_silent(&mut client).await);
    let _another = connected(&proxy).await;
    assert_eq!((echo.bytes(), echo.ended()), (10, 0), "nothing came through, not even an end");
    proxy.cut();
    assert!(client.read(&mut [0]).await.is_err());
}

#[tokio::test]
async fn a_delay_is_added_to_each_direction() {
    let (_echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    proxy.delay(Duration::from_millis(50));
    let asked = Instant::now();
    said(&mut client, "slow").await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(100), "{:?}", asked.elapsed());

    proxy.delay(Duration::from_secs(3600));
    client.write_all(b"stuck").await.unwrap();
    assert!(is_silent(&mut client).await);
    proxy.cut();
    assert!(client.read(&mut [0]).await.is_err());
}

#[tokio::test]
async fn in_a_black_hole_nothing_gets_through_and_nothing_is_closed() {
    let (echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    let before = echo.bytes();
    proxy.black_hole();
    client.write_all(b"lost?").await.unwrap();
    assert!(is_silent(&mut client).await);
    assert_eq!((echo.bytes(), echo.ended(), proxy.connections()), (before, 0, 1));

    proxy.restore();
    assert_eq!(heard(&mut client, 5).await.unwrap(), "lost?");
}

#[tokio::test]
async fn answers_that_are_held_come_later_and_never_after_a_cut() {
    let (echo, proxy) = proxied().await;
    let (mut patient, mut unlucky) = (connected(&proxy).await, connected(&proxy).await);
    let before = echo.bytes();
    proxy.hold_answers();
    patient.write_all(b"later").await.unwrap();
    eventually("a server that hears it", async || echo.bytes() == before + 5).await;
    assert!(is_silent(&mut patient).await);
    proxy.restore();
    assert_eq!(heard(&mut patient, 5).await.unwrap(), "later");

    proxy.hold_answers();
    unlucky.write_all(b"never").await.unwrap();
    eventually("a server that hears it", async || echo.bytes() == before + 10).await;
    assert!(is_silent(&mut unlucky).await);
    proxy.cut();
    proxy.restore();
    assert!(heard(&mut unlucky, 5).await.is_err());
}

#[tokio::test]
async fn a_new_connection_in_a_black_hole_is_accepted_and_silent() {
    let (echo, proxy) = proxied().await;
    proxy.black_hole();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"anybody?").await.unwrap();
    assert!(is_silent(&mut client).await);
    assert_eq!(echo.bytes(), 0);

    proxy.cut();
    proxy.restore();
    assert!(client.read(&mut [0]).await.is_err());
    connected(&proxy).await;
    assert_eq!(echo.bytes(), "hello".len());
}

#[tokio::test]
async fn a_side_that_leaves_a_black_hole_is_missed_only_after_it() {
    let (echo, proxy) = proxied().await;
    let client = connected(&proxy).await;
    proxy.black_hole();
    drop(client);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!((echo.ended(), proxy.connections()), (0, 1));
    proxy.restore();
    eventually("the server to see it", async || echo.ended() == 1).await;
}

#[tokio::test]
async fn when_it_refuses_new_connections_are_closed_and_present_ones_go_on() {
    let (_echo, proxy) = proxied().await;
    let mut present = connected(&proxy).await;
    proxy.refuse();
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(matches!(refused.read(&mut [0]).await, Ok(0) | Err(_)));
    assert_eq!(said(&mut present, "still here").await.unwrap(), "still here");
    assert_eq!(proxy.connections(), 1);
    proxy.restore();
    connected(&proxy).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_connection() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::to(free.to_string()).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(matches!(client.read(&mut [0]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections_and_leaves_its_port() {
    let (echo, proxy) = proxied().await;
    let mut client = connected(&proxy).await;
    let address = proxy.address();
    drop(proxy);
    assert!(client.read(&mut [0]).await.is_err());
    eventually("the server to see it", async || echo.ended() == 1).await;
    eventually("the port to be left", async || TcpStream::connect(address).await.is_err()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_query_through_a_cut_fails_and_the_next_connection_works() {
    use sqlx::{Connection as _, PgConnection};

    let Some(database) = backstop_testkit::servers::postgres().await else { return };
    let proxy = Proxy::in_front_of(&database.url()).await;
    let url = proxy.through(&database.url());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("SELECT 1").execute(&mut connection).await.unwrap();
    proxy.cut();
    let failed = sqlx::query("SELECT 1").execute(&mut connection).await.unwrap_err();
    assert!(matches!(failed, sqlx::Error::Io(_)), "{failed}");
    PgConnection::connect(&url).await.unwrap();
}
