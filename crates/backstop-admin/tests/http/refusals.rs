//! Whom the dashboard refuses, and the headers that nobody gets around.

use std::sync::Arc;

use serde_json::json;

use crate::support::{Answer, Hanging, Open};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

async fn addressed(dashboard: &Open, host: &str) -> Answer {
    dashboard.exchange(&format!("GET /health HTTP/1.1\r\n{host}\r\n")).await
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered() {
    let dashboard = Open::watching([]).await;
    let own = dashboard.address;
    let ours =
        [&format!("{own}"), "127.0.0.1", "localhost", "LOCALHOST:9", "localhost:7878", "[::1]", "[::1]:80"];
    for host in ours {
        assert_eq!(addressed(&dashboard, &format!("Host: {host}\r\n")).await.code, 200, "{host}");
    }
    let theirs = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "evil@localhost",
        "10.0.0.1",
        "",
        "\"",
    ];
    for host in theirs {
        assert_eq!(addressed(&dashboard, &format!("Host: {host}\r\n")).await.code, 421, "{host}");
    }
    assert_eq!(addressed(&dashboard, "").await.code, 421, "no Host at all");
    assert_eq!(
        addressed(&dashboard, "Host: localhost\r\nHost: evil.example\r\n").await.code,
        421,
        "two of them"
    );
}

#[tokio::test]
async fn a_request_line_that_names_another_host_is_refused() {
    let dashboard = Open::watching([]).await;
    let named = |host| format!("GET http://{host}/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(dashboard.exchange(&named("evil.example")).await.code, 421);
    assert_eq!(dashboard.exchange(&named("localhost")).await.code, 200);
}

#[tokio::test]
async fn another_page_cannot_change_anything() {
    let dashboard = Open::watching([]).await;
    for origin in ["http://evil.example", "http://127.0.0.1:1", "null", "https://localhost"] {
        let answer = dashboard.send("POST", "/api/v1/components", &format!("Origin: {origin}\r\n")).await;
        assert_eq!(answer.code, 403, "{origin}");
        assert!(answer.json()["error"].as_str().unwrap().contains("another site's page"));
    }
    let own = format!("Origin: http://{}\r\n", dashboard.address);
    assert_eq!(
        dashboard.send("POST", "/api/v1/components", &own).await.code,
        405,
        "let in, but there is no such action"
    );
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let dashboard = Open::watching([]).await;
    let answers = [
        dashboard.get("/").await,
        dashboard.get("/assets/app.js").await,
        dashboard.get("/api/v1/components").await,
        dashboard.get("/health").await,
        dashboard.get("/nowhere").await,
        dashboard.send("DELETE", "/health", "").await,
        dashboard.send("POST", "/", "Origin: null\r\n").await,
        addressed(&dashboard, "Host: evil.example\r\n").await,
    ];
    for answer in answers {
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_sentence_in_the_language_of_the_asker() {
    let dashboard = Open::watching([]).await;
    let sentence = "there is nothing at this path; the dashboard is at /";
    for path in ["/api", "/api/v1/nowhere", "/api/v1/components/"] {
        let answer = dashboard.get(path).await;
        assert_eq!((answer.code, answer.json()), (404, json!({"error": sentence})), "{path}");
    }
    for path in ["/nowhere", "/apis", "/assets/../Cargo.toml", "/assets/%2e%2e/Cargo.toml"] {
        let answer = dashboard.get(path).await;
        assert_eq!((answer.code, answer.body.trim_end()), (404, sentence), "{path}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_which_to_use() {
    let dashboard = Open::watching([]).await;
    for path in ["/", "/health", "/metrics", "/assets/style.css"] {
        let answer = dashboard.send("PUT", path, "").await;
        assert_eq!((answer.code, answer.header("allow")), (405, Some("GET,HEAD")), "{path}");
        assert_eq!(answer.body, "this path does not answer PUT; use GET\n");
    }
    assert_eq!(dashboard.send("PUT", "/api/v1/components", "").await.code, 405);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_before_it_is_read() {
    let dashboard = Open::watching([]).await;
    assert_eq!(dashboard.send("POST", "/api/v1/components", "Content-Length: 65537\r\n").await.code, 413);
    assert_eq!(dashboard.send("GET", "/", &format!("X-Long: {}\r\n", "a".repeat(20_000))).await.code, 431);
}

#[tokio::test]
async fn a_request_that_does_not_say_its_length_is_read_no_further_than_others() {
    let dashboard = Open::watching([]).await;
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    let head = "POST /api/v1/operations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = dashboard.exchange(&format!("{head}{}1\r\n \r\n0\r\n\r\n", chunk.repeat(4))).await;
    assert_eq!(answer.code, 413, "{answer:?}");
    let answer = dashboard.exchange(&format!("{head}{}0\r\n\r\n", chunk.repeat(4))).await;
    assert_eq!(answer.code, 403, "64 KiB are read: {answer:?}");
}

#[tokio::test]
async fn a_crowd_is_told_to_come_back() {
    let dashboard = Arc::new(Open::watching([Arc::new(Hanging) as _]).await);
    let crowd: Vec<_> = (0..40)
        .map(|_| {
            let dashboard = dashboard.clone();
            tokio::spawn(async move { dashboard.get("/api/v1/components").await })
        })
        .collect();
    let mut turned_away = 0;
    for client in crowd {
        let answer = client.await.unwrap();
        match answer.code {
            503 => assert!(answer.json()["error"].as_str().unwrap().ends_with("try again in a moment")),
            code => assert_eq!(code, 200),
        }
        turned_away += usize::from(answer.code == 503);
    }
    assert!((1..=8).contains(&turned_away), "{turned_away}");
    assert_eq!(dashboard.get("/").await.code, 200, "and is let in later");
}
