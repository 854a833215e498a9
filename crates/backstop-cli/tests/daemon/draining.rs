//! The drain time-out: a handler that hangs does not hold the end, and its event is not lost.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::receiver::Receiver;
use crate::support::Place;

#[tokio::test]
async fn a_handler_that_hangs_ends_with_the_drain_timeout_and_its_event_is_delivered_by_the_next_start() {
    // The system takes connections for it, and nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  dispatcher: {{drain-timeout-ms: 300}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http: {{url: 'http://{}/hooks', timeout: 10m, allowed-networks: 127.0.0.0/8}}
server: {{address: '127.0.0.1:0'}}
",
        listener.local_addr().unwrap()
    );
    let place = Place::with(&settings);
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    // It hangs in its handler once the connection is there.
    let (hanging, _) = listener.accept().unwrap();

    let began = Instant::now();
    let ended = daemon.end("-TERM").with(1);
    // A margin for a busy machine; the request itself would wait for ten minutes.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    for told in ["outbox (backstop.yaml:1:1) did not stop cleanly", "handlers did not finish in time"] {
        assert!(ended.complained.contains(told), "{told}: {}", ended.complained);
    }
    assert_eq!(orders.row("o-1").await, (0, 0), "NEW, and no attempt counted");
    drop(hanging);

    let receiver = Receiver::on(listener, 200);
    let again = place.serve();
    assert!(receiver.next().unwrap().body.contains(r#""id":"o-1""#));
    orders.until("o-1", 1).await;
    again.end("-TERM").with(0);
}
