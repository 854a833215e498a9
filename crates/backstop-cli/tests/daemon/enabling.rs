//! A disabled target is enabled again, and dead events are moved, through the API of a daemon that runs.

use backstop_admin::{Role, Token};

use crate::receiver::Receiver;
use crate::support::{Daemon, Place};

fn hash(token: &str) -> String {
    Token::of("", Role::Viewer, token).hash_in_hex()
}

/// A daemon with a webhook whose target may be disabled for a moment only, and tokens for an operator and a viewer.
fn settings(urls: &[String]) -> String {
    let handler = |(number, url): (usize, &String)| {
        format!(
            "    - aggregate-type: Order
      event-type: {}
      http: {{url: '{url}', allowed-networks: 127.0.0.0/8, disabled-pause: 100ms}}
",
            ["OrderPlaced", "OrderPaid"][number]
        )
    };
    let handlers: String = urls.iter().enumerate().map(handler).collect();
    format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
{handlers}server:
  address: '127.0.0.1:0'
  tokens:
    - {{name: hands, role: operator, sha256: {}}}
    - {{name: eyes, role: viewer, sha256: {}}}
",
        hash("do"),
        hash("see")
    )
}

fn place(urls: &[String]) -> Place {
    Place::with(&settings(urls)).variable("BACKSTOP_TOKEN", "do").variable("SEE", "see")
}

fn url(daemon: &Daemon) -> String {
    format!("http://{}", daemon.address)
}

#[tokio::test]
async fn a_target_that_was_gone_is_enabled_and_gets_its_events() {
    let receiver = Receiver::answering(410);
    let place = place(&[receiver.url()]);
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    let origin = receiver.url().trim_end_matches("/hooks").to_owned();
    let to = url(&daemon);
    let listed = daemon.wait_for(|| {
        let listed = place.run(&["target", "list", "--url", &to]).with(0).said;
        listed.contains("disabled").then_some(listed)
    });
    let line =
        format!("webhook  orders: OrderPlaced (Order) → {origin}  degraded  disabled; its events wait");
    assert!(listed.starts_with(&line), "{listed}");
    assert_eq!(orders.row("o-1").await, (0, 0), "as it was, and no attempt is counted");
    let why = daemon.wait_for(|| {
        let why = place.run(&["outbox", "why", "o-1", "--url", &to]).with(0).said;
        why.contains("its route Order/OrderPlaced is held").then_some(why)
    });
    assert!(!why.contains("next probe") && why.contains("`backstop target enable`"), "{why}");

    receiver.answer(200);
    let enable =
        |name: &str, more: &[&str]| place.run(&[&["target", "enable", name, "--url", &to], more].concat());
    let refused = enable(&origin, &["--token", "env:SEE"]).with(1);
    assert!(
        refused.complained.contains("answers 403: the role of this access token does not allow this"),
        "{refused:?}"
    );
    let unknown = enable("http://elsewhere\x1b[2J", &[]).with(1).complained;
    assert!(unknown.contains("there is no target http://elsewhere\\u{1b}[2J; there are"), "{unknown}");
    assert!(unknown.contains(&origin), "{unknown}");

    let enabled = enable(&origin, &[]).with(0);
    assert!(
        enabled.complained.contains("it is enabled; its events flow again within a second"),
        "{enabled:?}"
    );
    orders.until("o-1", 1).await;
    let again = enable(&format!("orders: OrderPlaced (Order) → {origin}"), &[]).with(0);
    assert!(again.complained.contains("it was not disabled"), "{again:?}");
    let log = daemon.end("-TERM").with(0).complained;
    let audit =
        log.lines().find(|line| line.contains("an operator's change")).unwrap_or_else(|| panic!("{log}"));
    for told in ["backstop::audit", "by=\"hands\"", "operation=Enable", "changed=1"] {
        assert!(audit.contains(told), "{told}: {audit}");
    }
}

#[tokio::test]
async fn an_event_whose_route_is_held_says_so_with_its_target_and_the_next_probe() {
    let receiver = Receiver::answering(503);
    let place = place(&[receiver.url()]);
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    let (to, origin) = (url(&daemon), receiver.url().trim_end_matches("/hooks").to_owned());
    let why = daemon.wait_for(|| {
        let why = place.run(&["outbox", "why", "o-1", "--url", &to]).with(0).said;
        why.contains("; the next probe comes at ").then_some(why)
    });
    assert!(why.contains("\nits route Order/OrderPlaced is held for target "), "{why}");
    assert!(why.contains(&origin) && why.contains("it comes by itself when a probe succeeds"), "{why}");
    let told = place.run(&["outbox", "why", "o-1", "--json", "--url", &to]).with(0).said;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["route"], &told["paused"]["state"]), (&"Order/OrderPlaced".into(), &"held".into()));
    daemon.wait_for(|| {
        let (_, health) = daemon.get("/health", "Authorization: Bearer see\r\n");
        let told = health.contains("Order/OrderPlaced since 2") && health.contains(", next probe at 2");
        told.then_some(())
    });
    // The table is told without the daemon.
    let alone = place.run(&["outbox", "why", "o-1", "--url", "http://127.0.0.1:1"]).with(0).said;
    let unknown = "whether its route is held is not known: cannot reach http://127.0.0.1:1";
    assert!(alone.contains("is waiting for its first attempt") && alone.contains(unknown), "{alone}");

    receiver.answer(200);
    orders.until("o-1", 1).await;
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn of_two_targets_with_one_name_the_whole_name_says_which() {
    let receiver = Receiver::answering(200);
    let urls = [receiver.url(), receiver.url()];
    let place = place(&urls);
    let daemon = place.serve();
    let (to, origin) = (url(&daemon), receiver.url().trim_end_matches("/hooks").to_owned());
    let ended = place.run(&["target", "enable", &origin, "--url", &to]).with(1);
    assert!(
        ended.complained.contains(&format!("2 targets are called {origin}; name one as a whole")),
        "{ended:?}"
    );
    place.run(&["target", "enable", &format!("orders: OrderPaid (Order) → {origin}"), "--url", &to]).with(0);
    daemon.end("-TERM").with(0);
}

#[tokio::test]
async fn the_api_replays_and_discards_what_the_command_does() {
    let receiver = Receiver::answering(422);
    let place = place(&[receiver.url()]);
    let daemon = place.serve();
    let orders = place.orders().await;
    for id in ["o-1", "o-2", "o-3"] {
        orders.insert(id).await;
        orders.until(id, 3).await;
    }
    receiver.answer(200);
    let ask = |token: &str, operation: &str, ids: &str| {
        let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let body = format!(r#"{{"kind":"outbox","name":"orders","operation":"{operation}","ids":{ids}}}"#);
        daemon.send("POST", "/api/v1/operations", &headers, &body)
    };
    assert_eq!(ask("see", "discard", r#"["o-1"]"#).0, 403);
    let (code, answer) = ask("do", "replay", r#"["o-1","nobody"]"#);
    assert_eq!(code, 200, "{answer}");
    assert!(answer.contains("1 of 2 events were dead, and are replayed"), "{answer}");
    orders.until("o-1", 1).await;
    let (_, answer) = ask("do", "discard", r#"["o-1","o-2"]"#);
    assert!(answer.contains("1 of 2 events were dead, and are discarded"), "{answer}");
    let (_, metrics) = daemon.get("/metrics", "Authorization: Bearer see\r\n");
    for counted in [r#"outbox_replay{outbox="orders"} 1"#, r#"outbox_discard{outbox="orders"} 1"#] {
        assert!(metrics.contains(counted), "{counted}");
    }
    assert_eq!(orders.row("o-3").await.0, 3);
    assert_eq!(ask("do", "enable", "[]").0, 409);
    daemon.end("-TERM").with(0);
}

#[test]
fn bad_input_is_told_in_a_sentence() {
    let place = place(&["http://127.0.0.1:9/hooks".to_owned()]);
    for (arguments, told) in [
        (
            &["list"][..],
            "server.address has port 0 in the settings file, so the port is not known; name it with --url",
        ),
        (
            &["list", "--url", "https://127.0.0.1:9"],
            "cannot reach https://127.0.0.1:9; is `backstop serve` running there?",
        ),
        (
            &["list", "--url", "http://127.0.0.1:9", "--ca", "ca.pem"],
            "--ca is for a daemon with TLS, and http://127.0.0.1:9 is asked without",
        ),
        (
            &["list", "--url", "https://127.0.0.1:9", "--ca", "missing.pem"],
            "--ca cannot be used: cannot read missing.pem: No such file",
        ),
        (
            &["list", "--url", "https://127.0.0.1:9", "--ca", "backstop.yaml"],
            "--ca cannot be used: backstop.yaml must hold at least one certificate in PEM form",
        ),
        (&["list", "--url", "http://u:hunter2@127.0.0.1:9"], "--url must be the address of the dashboard"),
        (
            &["list", "--url", "http://127.0.0.1:9"],
            "cannot reach http://127.0.0.1:9; is `backstop serve` running there?",
        ),
        (
            &["list", "--token", "hunter2", "--url", "http://127.0.0.1:9"],
            "--token cannot be used: give env:NAME or file:PATH",
        ),
        (&["enable", "x", "--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
    ] {
        let ended = place.run(&[&["target"], arguments].concat()).with(1);
        assert!(ended.complained.contains(told), "{arguments:?}: {}", ended.complained);
        assert!(!ended.complained.contains("hunter2"), "{}", ended.complained);
    }
    let receiver = Receiver::answering(200);
    receiver.say("\x1b[2J");
    let to = receiver.url().trim_end_matches("/hooks").to_owned();
    let ended = place.run(&["target", "enable", "x", "--url", &to]).with(1);
    assert!(!ended.complained.contains('\x1b'), "{ended:?}");
    let daemon = place.serve();
    let ended = place.variable("BACKSTOP_TOKEN", "").run(&["target", "list", "--url", &url(&daemon)]).with(1);
    assert!(ended.complained.contains("name one with --token, or set BACKSTOP_TOKEN"), "{ended:?}");
}
