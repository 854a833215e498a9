//! What the dashboard says about the components it watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_admin::{Admin, Readiness};
use backstop_core::inspect::{Count, Flow, Health, Paused, Place, Report, Route, Times, Troubled};
use backstop_core::{Clock, SystemClock};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Hanging, Open, Saying, report};

#[tokio::test]
async fn health_is_as_bad_as_the_worst_component() {
    let up = || Saying::health("orders", Health::Up);
    let slow = || Saying::health("emails", Health::Degraded("the poller is late".into()));
    let gone = || Saying::health("audit", Health::Down("no connection".into()));

    let answer = Open::watching([up() as _]).await.get("/health").await;
    assert_eq!(answer.code, 200);
    let orders = json!({"kind": "outbox", "name": "orders", "status": "UP"});
    assert_eq!(answer.json(), json!({"status": "UP", "components": [orders]}));

    let answer = Open::watching([up() as _, slow() as _]).await.get("/health").await;
    assert_eq!((answer.code, &answer.json()["status"]), (200, &json!("DEGRADED")));
    assert_eq!(answer.json()["components"][1]["why"], "the poller is late");

    let answer = Open::watching([slow() as _, gone() as _]).await.get("/health").await;
    assert_eq!((answer.code, &answer.json()["status"]), (503, &json!("DOWN")));
}

#[tokio::test]
async fn a_desk_that_watches_nothing_is_up() {
    let dashboard = Open::watching([]).await;
    assert_eq!(dashboard.get("/health").await.json(), json!({"status": "UP", "components": []}));
    assert_eq!(dashboard.get("/api/v1/components").await.json(), json!([]));
}

#[tokio::test]
async fn alive_is_who_answers_and_ready_is_who_has_started_and_can_work() {
    let readiness = Readiness::starting();
    let component = Saying::health("orders", Health::Degraded("slow".into()));
    let dashboard = Open::new(Admin::new().readiness(readiness.clone()).watch(component)).await;
    let ready = async || {
        let answer = dashboard.get("/ready").await;
        (answer.code, answer.json())
    };
    assert_eq!(ready().await, (503, json!({"status": "DOWN", "why": "it is being started"})));
    readiness.started();
    assert_eq!(ready().await, (200, json!({"status": "UP"})), "who works in part can be given work");
    readiness.ending();
    assert_eq!(ready().await, (503, json!({"status": "DOWN", "why": "it is shutting down"})));
    let live = dashboard.get("/live").await;
    assert_eq!((live.code, live.json()), (200, json!({"status": "UP"})));

    let down = Saying::health("orders", Health::Down("connection refused".into()));
    let answer = Open::watching([down as _]).await.get("/ready").await;
    let why = json!({"status": "DOWN", "why": "outbox orders: connection refused"});
    assert_eq!((answer.code, answer.json()), (503, why));
}

#[tokio::test]
async fn those_who_ask_how_it_is_are_answered_also_where_too_much_is_asked() {
    let dashboard = Open::new(Admin::new().metrics(String::new).watch(Arc::new(Hanging))).await;
    let mut asking = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        stream.write_all(b"GET /api/v1/components HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        asking.push(stream);
    }
    while !dashboard.get("/").await.body.contains("too many requests") {}
    assert_eq!(dashboard.get("/live").await.code, 200);
    assert_eq!(dashboard.get("/metrics").await.code, 200);
    assert_eq!(dashboard.get("/").await.code, 503, "it is still busy");
    for path in ["/health", "/ready"] {
        let answer = dashboard.get(path).await;
        assert_eq!((answer.code, &answer.json()["status"]), (503, &json!("DOWN")), "a component hangs");
    }
}

#[tokio::test]
async fn a_component_that_hangs_is_down_and_holds_nobody_up() {
    let dashboard = Open::watching([Arc::new(Hanging) as _, Saying::health("orders", Health::Up) as _]).await;
    let reports = dashboard.get("/api/v1/components").await.json();
    assert_eq!(reports[0]["health"], json!({"status": "down", "why": "did not answer within 2 s"}));
    assert_eq!((&reports[1]["name"], &reports[1]["health"]), (&json!("orders"), &json!({"status": "up"})));
}

#[tokio::test]
async fn a_report_arrives_whole_and_hostile_text_arrives_as_text() {
    let hostile = "<img src=x onerror=alert(1)>\"\u{0}\u{202e}</script>";
    let now = SystemClock.now();
    let troubled = Troubled {
        id: "01K3".into(),
        event_type: hostile.into(),
        aggregate_type: "Order".into(),
        aggregate_id: None,
        place: "dead",
        attempts: 10,
        error: Some(hostile.into()),
        occurred_at: now,
        next_attempt_at: None,
    };
    let component = Saying(Report {
        places: vec![Place { name: "dead", meaning: "Given up.", count: Count::up_to(100, 250) }],
        flows: vec![Flow { name: "delivered", meaning: "Handled.", total: 7 }],
        troubled: vec![troubled],
        routes: vec![Route {
            name: hostile.into(),
            waiting: Count::exactly(3),
            retrying: Count::exactly(0),
            dead: Count::up_to(100, 250),
            oldest_due: Some(now),
            paused: Some(Paused {
                target: Some(hostile.into()),
                next_probe: Some(now),
                ..Paused::since(now, "unavailable", hostile)
            }),
        }],
        times: vec![Times { name: "waiting", meaning: "Due.", bounds: &[0.5, 1.0], counts: vec![4, 0, 1] }],
        ..report(hostile, Health::Up)
    });
    let answer = Open::watching([Arc::new(component) as _]).await.get("/api/v1/components").await;
    assert!(answer.body.contains(r#"<img src=x onerror=alert(1)>\"\u0000"#), "{}", answer.body);
    let expected = json!([{
        "kind": "outbox",
        "name": hostile,
        "health": {"status": "up"},
        "places": [{"name": "dead", "meaning": "Given up.", "count": {"events": 100, "capped": true}}],
        "flows": [{"name": "delivered", "meaning": "Handled.", "total": 7}],
        "troubled": [{
            "id": "01K3",
            "event_type": hostile,
            "aggregate_type": "Order",
            "aggregate_id": null,
            "place": "dead",
            "attempts": 10,
            "error": hostile,
            "occurred_at": now,
            "next_attempt_at": null,
        }],
        "routes": [{
            "name": hostile,
            "waiting": {"events": 3, "capped": false},
            "retrying": {"events": 0, "capped": false},
            "dead": {"events": 100, "capped": true},
            "oldest_due": now,
            "paused": {
                "state": "unavailable", "why": hostile, "since": now, "target": hostile, "next_probe": now,
            },
        }],
        "times": [{"name": "waiting", "meaning": "Due.", "bounds": [0.5, 1.0], "counts": [4, 0, 1]}],
    }]);
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn metrics_are_rendered_at_each_scrape() {
    let scrapes = AtomicU32::new(0);
    let render = move || format!("scrapes {}\n", scrapes.fetch_add(1, Ordering::Relaxed));
    let dashboard = Open::new(Admin::new().metrics(render)).await;
    let answer = dashboard.get("/metrics").await;
    assert_eq!((answer.code, answer.body.as_str()), (200, "scrapes 0\n"));
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(dashboard.get("/metrics").await.body, "scrapes 1\n");
}

#[tokio::test]
async fn without_metrics_the_path_says_so() {
    let answer = Open::watching([]).await.get("/metrics").await;
    assert_eq!((answer.code, answer.body.as_str()), (404, "this process gathers no metrics\n"));
}

#[tokio::test]
async fn the_page_and_everything_it_names_are_served() {
    let dashboard = Open::watching([]).await;
    let page = dashboard.get("/").await;
    assert_eq!((page.code, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let mut named = references(&page.body, &["href=\"/assets/", "src=\"/assets/"]);
    let mut served = BTreeSet::new();
    while let Some(name) = named.pop() {
        let asset = dashboard.get(&format!("/assets/{name}")).await;
        assert_eq!((asset.code, asset.header("cache-control")), (200, Some("no-store")), "{name}");
        if served.insert(name) {
            named.extend(references(&asset.body, &["from \"./"]));
        }
    }
    let files = [
        "app.js",
        "component.js",
        "dom.js",
        "history.js",
        "mark.svg",
        "routes.js",
        "style.css",
        "times.js",
        "token.js",
        "troubled.js",
        "words.js",
    ];
    assert!(served.iter().eq(files.iter()), "{served:?}");
}

/// The quoted texts behind each of these openings.
fn references(text: &str, openings: &[&str]) -> Vec<String> {
    let behind = |opening| text.split(opening).skip(1).filter_map(|rest| rest.split('"').next());
    openings.iter().flat_map(|opening| behind(*opening)).map(str::to_owned).collect()
}

#[tokio::test]
async fn no_script_writes_markup_from_text() {
    let dashboard = Open::watching([]).await;
    for name in ["app", "component", "dom", "history", "routes", "times", "token", "troubled", "words"] {
        let script = dashboard.get(&format!("/assets/{name}.js")).await.body;
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", ".style."] {
            assert!(!script.contains(sink), "{name}.js uses {sink}");
        }
    }
}
