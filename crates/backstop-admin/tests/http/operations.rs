//! What an operator changes: who may, what is answered, and that it ends once it has begun.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstop_admin::{Admin, Role, Token};
use backstop_core::inspect::{Health, Inspect, Report};
use backstop_core::operate::{Changed, Operate, Operation, Refused};
use serde_json::json;
use tokio::sync::Notify;

use crate::support::{Answer, Open, Saying, report};

/// A component that counts what it is asked for.
#[derive(Default)]
struct Lever {
    pulled: AtomicU64,
    begun: Notify,
    go_on: Notify,
}

impl Inspect for Lever {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async { report("orders → h", Health::Up) })
    }

    fn operable(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

impl Operate for Lever {
    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Pin<Box<dyn Future<Output = Result<Changed, Refused>> + Send + 'a>> {
        Box::pin(async move {
            match operation {
                Operation::Enable => {
                    let pulled = self.pulled.fetch_add(1, Ordering::SeqCst) + 1;
                    Ok(Changed::new(pulled, "it is enabled"))
                }
                Operation::Replay { ids } if ids.is_empty() => panic!("on purpose"),
                Operation::Replay { .. } => {
                    self.begun.notify_one();
                    self.go_on.notified().await;
                    self.pulled.fetch_add(100, Ordering::SeqCst);
                    Ok(Changed::new(1, "it was slow"))
                }
                Operation::Discard { ids } => Err(Refused::Failed(format!("cannot discard {ids:?}"))),
                _ => Err(Refused::NotOffered),
            }
        })
    }
}

async fn guarded(lever: Arc<Lever>) -> Open {
    let admin = Admin::new()
        .watch(lever)
        .watch(Saying::health("still", Health::Up))
        .watch(Saying::health("twin", Health::Up))
        .watch(Saying::health("twin", Health::Up))
        .tokens([Token::of("eyes", Role::Viewer, "see"), Token::of("hands", Role::Operator, "do")]);
    Open::new(admin).await
}

async fn ask(dashboard: &Open, headers: &str, body: &str) -> Answer {
    let (host, length) = (dashboard.address, body.len());
    let head = format!(
        "POST /api/v1/operations HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    dashboard.exchange(&(head + body)).await
}

const DO: &str = "Authorization: Bearer do\r\nContent-Type: application/json\r\n";
const SEE: &str = "Authorization: Bearer see\r\nContent-Type: application/json\r\n";

fn enable() -> String {
    json!({"kind": "outbox", "name": "orders → h", "operation": "enable"}).to_string()
}

#[tokio::test]
async fn an_operator_changes_a_component_and_is_told_what_has_changed() {
    let lever = Arc::<Lever>::default();
    let dashboard = guarded(lever.clone()).await;
    let answer = ask(&dashboard, DO, &enable()).await;
    assert_eq!((answer.code, answer.json()), (200, json!({"changed": 1, "told": "it is enabled"})));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(lever.pulled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nobody_else_changes_anything() {
    let lever = Arc::<Lever>::default();
    let dashboard = guarded(lever.clone()).await;
    for (headers, code) in [
        (SEE, 403),
        ("Content-Type: application/json\r\n", 401),
        ("Authorization: Bearer wrong\r\nContent-Type: application/json\r\n", 401),
        (
            "Authorization: Bearer do\r\nContent-Type: application/json\r\nOrigin: http://evil.example\r\n",
            403,
        ),
    ] {
        assert_eq!(ask(&dashboard, headers, &enable()).await.code, code, "{headers}");
    }
    // Without tokens anybody on this machine may look, and nobody may change anything.
    let open = Open::watching([lever.clone() as Arc<dyn Inspect>]).await;
    for headers in ["Content-Type: application/json\r\n", DO] {
        let answer = ask(&open, headers, &enable()).await;
        assert_eq!(answer.code, 403, "{headers}");
        assert!(answer.json()["error"].as_str().unwrap().contains("`backstop token --role operator`"));
    }
    assert_eq!(lever.pulled.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_cannot_be_done_is_told_in_a_sentence() {
    let dashboard = guarded(Arc::default()).await;
    let of = |name: &str, more: serde_json::Value| {
        let mut asked = json!({"kind": "outbox", "name": name});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked.to_string()
    };
    for (body, code, told) in [
        (of("nobody", json!({"operation": "enable"})), 404, "there is no outbox of the name nobody"),
        (of("still", json!({"operation": "enable"})), 409, "it has no such operation"),
        (
            of("twin", json!({"operation": "enable"})),
            409,
            "several components of kind outbox have the name twin",
        ),
        (of("orders → h", json!({"operation": "discard", "ids": ["a"]})), 500, "cannot discard"),
        (of("orders → h", json!({"operation": "replay", "ids": []})), 500, "the component panicked"),
        (of("orders → h", json!({"operation": "explode"})), 422, "this is no operation"),
        (of("orders → h", json!({"operation": "replay"})), 422, "this is no operation"),
        (of("orders → h", json!({"operation": "replay", "ids": "a"})), 422, "this is no operation"),
        ("{".to_owned(), 400, "this is no operation"),
        (String::new(), 400, "this is no operation"),
    ] {
        let answer = ask(&dashboard, DO, &body).await;
        assert_eq!(answer.code, code, "{body}: {answer:?}");
        assert!(answer.json()["error"].as_str().unwrap().contains(told), "{body}: {answer:?}");
    }
    let unlabelled = ask(&dashboard, "Authorization: Bearer do\r\n", &enable()).await;
    assert_eq!(unlabelled.code, 415);
    let answer = dashboard.send("GET", "/api/v1/operations", "Authorization: Bearer do\r\n").await;
    assert_eq!(
        (answer.code, answer.json()["error"].as_str()),
        (405, Some("this path does not answer GET; use POST"))
    );
    // And it still works.
    assert_eq!(ask(&dashboard, DO, &enable()).await.code, 200);
}

#[tokio::test]
async fn a_change_that_has_begun_ends_although_its_asker_leaves() {
    let lever = Arc::<Lever>::default();
    let dashboard = Arc::new(guarded(lever.clone()).await);
    let body =
        json!({"kind": "outbox", "name": "orders → h", "operation": "replay", "ids": ["a"]}).to_string();
    let asking = dashboard.clone();
    let asker = tokio::spawn(async move { ask(&asking, DO, &body).await });
    lever.begun.notified().await;
    asker.abort();
    let _ = asker.await;
    lever.go_on.notify_one();
    while lever.pulled.load(Ordering::SeqCst) < 100 {
        tokio::task::yield_now().await;
    }
}
