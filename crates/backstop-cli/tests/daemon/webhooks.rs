//! A row that is inserted with plain SQL becomes a webhook.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::support::{PATIENCE, Place};

/// A web server that says 204 to everything and tells what it was sent: the head in lower case, and the body.
fn receiver() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(request) = read(&mut reader) {
                    let _ = sender.send(request);
                    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
                    if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, requests)
}

fn read(reader: &mut impl BufRead) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

#[tokio::test]
async fn a_row_that_any_program_inserts_becomes_a_signed_cloud_event() {
    let (address, requests) = receiver();
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http:
        url: http://{address}/hooks
        format: binary
        secrets: env:HOOK_SECRET
        allowed-networks: 127.0.0.0/8
server: {{address: '127.0.0.1:0'}}
"
    );
    let place = Place::with(&settings).variable("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let daemon = place.serve();
    let options = SqliteConnectOptions::new().filename(place.file("orders.db"));
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    connection
        .execute(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
             available_at, created_at) values ('o-1', 'OrderPlaced', 'Order', '42', '{\"total\":1.10}', 0, \
             strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'))",
        )
        .await
        .unwrap();

    let (head, body) = requests.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", daemon.log()));
    assert!(head.starts_with("post /hooks http/1.1"), "{head}");
    for header in ["ce-id: o-1", "ce-source: /outbox/orders", "ce-subject: 42", "webhook-signature: v1,"] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert_eq!(body, r#"{"total":1.10}"#);
    let done = "select status from outbox_event where event_id = 'o-1'";
    while sqlx::query_scalar::<_, i64>(done).fetch_one(&mut connection).await.unwrap() != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let ended = daemon.end("-TERM").with(0);
    assert!(!ended.complained.contains("MfKQ9r8G"), "no secret is logged");
}
