//! Receivers on loopback: one that speaks HTTP and remembers, one that says whatever bytes it is told to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::failure::Kind;
use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_http::{Webhook, WebhookBuilder};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// An answer: status, headers, body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

pub(crate) fn status(status: u16) -> Reply {
    Reply { status, ..Reply::default() }
}

impl Reply {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn saying(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// A server that answers by its script, then 204 for ever.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    arrived: Mutex<Vec<Arrived>>,
    connections: AtomicUsize,
}

impl Receiver {
    pub(crate) async fn new() -> Self {
        Self::answering([]).await
    }

    pub(crate) async fn answering(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { script: Mutex::new(script.into_iter().collect()), ..Shared::default() });
        let accepting = tokio::spawn(serve(listener, Arc::clone(&shared))).abort_handle();
        Self { address, shared, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// A webhook to this server, which loopback is opened for.
    pub(crate) fn webhook(&self) -> WebhookBuilder {
        local(&self.url())
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.shared.arrived.lock().unwrap().clone()
    }

    pub(crate) fn only(&self) -> Arrived {
        let mut arrived = self.arrived();
        assert_eq!(arrived.len(), 1, "{arrived:?}");
        arrived.remove(0)
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&shared)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    assert_eq!(head.method, "POST");
    let path = head.uri.to_string();
    shared.arrived.lock().unwrap().push(Arrived { path, headers: head.headers, body });
    let reply = shared.script.lock().unwrap().pop_front().unwrap_or_else(|| status(204));
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(reply.body)).unwrap())
}

/// A server that reads a request's beginning, then writes these bytes and closes.
pub(crate) async fn raw(reply: impl Into<Vec<u8>>) -> (String, Arc<Mutex<Vec<u8>>>) {
    let reply = reply.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let hearing = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 64 * 1024];
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            hearing.lock().unwrap().extend_from_slice(&bytes[..count]);
            let _ = stream.write_all(&reply).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, heard)
}

/// A webhook for which loopback is open, and which waits for milliseconds only.
pub(crate) fn local(url: &str) -> WebhookBuilder {
    Webhook::to(url).allow_network("127.0.0.0/8").pause(Duration::from_millis(20))
}

pub(crate) fn order() -> Event {
    order_of("evt-1")
}

fn order_of(id: &str) -> Event {
    Event::of("OrderPlaced")
        .id(id)
        .aggregate("Order", "42")
        .tenant_id("acme")
        .occurred_at("2030-06-01T12:00:00.000123Z".parse().unwrap())
        .payload_json(r#"{"total":1.10}"#)
        .build()
        .unwrap()
}

/// Sends one order through a webhook, each time another.
pub(crate) async fn sent(webhook: &Webhook) -> Result<Outcome, Failure> {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("sent-{}", SENT.fetch_add(1, Ordering::Relaxed));
    webhook.handle(order_of(&id)).await
}

/// When to probe a target that is said to be unavailable.
pub(crate) fn unavailable(answer: Result<Outcome, Failure>) -> Duration {
    let failure = answer.expect_err("it is unavailable");
    match failure.kind() {
        Kind::Unavailable(wait) => wait.unwrap_or_default(),
        _ => panic!("not unavailable but {failure:?}"),
    }
}
