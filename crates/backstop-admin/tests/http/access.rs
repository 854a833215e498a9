//! Tokens: who is let in with one, and what is open without.

use backstop_admin::{Admin, Role, Token};
use backstop_core::inspect::Health;
use backstop_testkit::logs::Logs;
use serde_json::json;
use tracing::Level;

use crate::support::{Open, Saying};

const SECRET: &str = "bst_5a1e";

async fn guarded() -> Open {
    let admin = Admin::new()
        .watch(Saying::health("orders", Health::Degraded("slow".into())))
        .metrics(|| "outbox_append 1\n".to_owned())
        .tokens([Token::of("eyes", Role::Viewer, SECRET)])
        .hosts(["backstop.example".to_owned()]);
    Open::new(admin).await
}

fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

#[tokio::test]
async fn with_tokens_nobody_looks_without_one() {
    let dashboard = guarded().await;
    for path in ["/api/v1/components", "/metrics", "/nowhere"] {
        for wrong in [String::new(), bearer("bst_wrong"), "Authorization: Basic YTpi\r\n".to_owned()] {
            let answer = dashboard.send("GET", path, &wrong).await;
            assert_eq!(
                (answer.code, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{path} {wrong}"
            );
            assert!(answer.body.contains("needs an access token"), "{}", answer.body);
        }
    }
    assert_eq!(dashboard.send("GET", "/metrics", &bearer(SECRET)).await.body, "outbox_append 1\n");
    assert_eq!(
        dashboard.send("GET", "/api/v1/components", &bearer(SECRET)).await.json()[0]["name"],
        "orders"
    );
}

#[tokio::test]
async fn the_page_can_be_loaded_and_health_is_a_word_without_a_token() {
    let dashboard = guarded().await;
    for path in ["/", "/assets/app.js", "/assets/token.js"] {
        assert_eq!(dashboard.get(path).await.code, 200, "{path}");
    }
    let health = dashboard.get("/health").await;
    assert_eq!((health.code, health.json()), (200, json!({"status": "DEGRADED"})));
    let health = dashboard.send("GET", "/health", &bearer(SECRET)).await.json();
    assert_eq!(health["components"][0]["why"], "slow");
    for path in ["/live", "/ready"] {
        assert_eq!(dashboard.get(path).await.json(), json!({"status": "UP"}), "{path}");
    }
}

#[tokio::test]
async fn wrong_tokens_are_told_of_once_in_a_while_and_never_shown() {
    let logs = Logs::catch();
    let dashboard = guarded().await;
    dashboard.get("/metrics").await; // without one, as a browser does at first
    assert!(logs.having(Level::WARN, "wrong access token").is_empty(), "{}", logs.all());
    for number in 0..20 {
        assert_eq!(
            dashboard.send("GET", "/metrics", &bearer(&format!("bst_hunter{number}"))).await.code,
            401
        );
    }
    let told = logs.having(Level::WARN, "wrong access token");
    assert_eq!(told.len(), 1, "{}", logs.all());
    assert!(told[0].contains("127.0.0.1") && told[0].contains("/metrics"), "{}", told[0]);
    assert!(!logs.all().contains("hunter"), "{}", logs.all());
}

#[tokio::test]
async fn a_role_that_is_too_low_is_told_so() {
    let dashboard = guarded().await;
    let answer = dashboard.send("POST", "/api/v1/components", &bearer(SECRET)).await;
    assert_eq!(answer.code, 403);
    assert_eq!(answer.json()["error"], "the role of this access token does not allow this");
}

#[tokio::test]
async fn names_that_were_given_and_addresses_are_answered_and_other_names_are_not() {
    let dashboard = guarded().await;
    let addressed = async |host: &str| {
        dashboard.exchange(&format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.code
    };
    for ours in ["backstop.example", "Backstop.Example:443", "192.0.2.7:7878", "[2001:db8::1]", "localhost"] {
        assert_eq!(addressed(ours).await, 200, "{ours}");
    }
    for theirs in ["evil.example", "backstop.example.evil.example", "192.0.2.7.evil.example"] {
        assert_eq!(addressed(theirs).await, 421, "{theirs}");
    }
}

#[tokio::test]
async fn another_address_than_loopback_is_for_tokens_only() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    assert!(Admin::new().bind(everywhere).await.is_err());
    let token = Token::of("eyes", Role::Viewer, SECRET);
    assert!(Admin::new().tokens([token]).bind(everywhere).await.is_ok());
}
